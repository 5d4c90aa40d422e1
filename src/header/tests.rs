use super::*;
use crate::coding::Coding;
use crate::float::ElementType;
use crate::predict::{Formula, Prediction};
use proptest::prelude::*;

fn index(lengths: &[Option<u64>]) -> Vec<ChunkEntry> {
    lengths.iter().map(|&length| ChunkEntry { length, sum: if length.is_some() { 77 } else { 0 } }).collect()
}

fn header(base: Base, kind: Kind, lengths: &[Option<u64>]) -> RecordHeader {
    RecordHeader { base, kind, chunk_log2: 6, exceptions: false, index: index(lengths) }
}

fn constant(meaning: Meaning, domain: LossyDomain, refinement: u8) -> Kind {
    Kind::Lossy { domain, refinement, error: 0.5, meaning, coding: Coding::Constant(0) }
}

fn comes_back(header: &RecordHeader, element: ElementType) {
    let mut bytes = Vec::new();
    header.write(element, &mut bytes);
    let elements = header.index.len() << 6;
    assert_eq!(RecordHeader::of_bytes(&bytes, element, elements).as_ref(), Ok(header));
    assert!(RecordHeader::of_bytes(&bytes[..bytes.len() - 1], element, elements).is_err());
}

fn prediction(formula: Formula) -> Prediction {
    let (siblings, coefficients) = formula.arity();
    Prediction {
        formula,
        siblings: (0..siblings as u32).collect(),
        coefficients: (0..coefficients).map(|k| k as f64 + 0.5).collect(),
    }
}

#[test]
fn every_kind_comes_back() {
    let buckets = vec![Bucket { exponent: 3, negative: true }, Bucket { exponent: 1, negative: false }];
    let exact = |top| Kind::Difference { highest: 2, top, coding: Coding::Fixed(2) };
    comes_back(&header(Base::Zero, Kind::Link(300), &[Some(0), Some(0)]), ElementType::BF16);
    comes_back(&header(Base::Previous, Kind::Bytes { planes: 4 }, &[Some(9), None]), ElementType::Bytes(4));
    comes_back(&header(Base::Previous, exact(31), &[None, Some(1 << 40)]), ElementType::F32);
    for element in [ElementType::F16, ElementType::BF16, ElementType::F32, ElementType::F64] {
        for formula in [Formula::Direction, Formula::AdaptiveDirection, Formula::SecondMoment] {
            comes_back(&header(Base::Predicted(prediction(formula)), exact(9), &[Some(5)]), element);
        }
        let values = Meaning::Values(vec![0.5, -3.0]);
        comes_back(&header(Base::Zero, constant(values, LossyDomain::Value, 0), &[Some(0)]), element);
        let integers = Meaning::Integers(vec![-1, 60000]);
        comes_back(&header(Base::Zero, constant(integers, LossyDomain::Ordered, 0), &[Some(0)]), element);
        let refined = constant(Meaning::Buckets(buckets.clone()), LossyDomain::OrderedNonNegative, 7);
        comes_back(&header(Base::Previous, refined, &[Some(3)]), element);
    }
    let wide = Meaning::Integers(vec![(1 << 65) - 1, 1 - (1 << 65)]);
    comes_back(&header(Base::Zero, constant(wide, LossyDomain::Ordered, 0), &[Some(0)]), ElementType::F64);
}

#[test]
fn combinations_that_cannot_be_are_refused() {
    let refused = |header: RecordHeader, element| {
        let mut bytes = Vec::new();
        header.write(element, &mut bytes);
        assert!(RecordHeader::of_bytes(&bytes, element, header.index.len() << 6).is_err(), "{header:?}");
    };
    let difference = || Kind::Difference { highest: 2, top: 9, coding: Coding::Fixed(2) };
    refused(header(Base::Zero, Kind::Same, &[]), ElementType::F32);
    refused(header(Base::Zero, difference(), &[Some(1)]), ElementType::F32);
    refused(header(Base::Previous, difference(), &[Some(1)]), ElementType::Bytes(4));
    refused(header(Base::Zero, Kind::Bytes { planes: 4 }, &[None]), ElementType::Bytes(4));
    refused(header(Base::Zero, Kind::Bytes { planes: 3 }, &[Some(1)]), ElementType::Bytes(4));
    let values = |value| constant(Meaning::Values(vec![value]), LossyDomain::Value, 0);
    refused(header(Base::Own, values(1.0), &[Some(1)]), ElementType::F32);
    refused(header(Base::Previous, values(0.0), &[Some(1)]), ElementType::F32);
    refused(header(Base::Previous, values(f64::INFINITY), &[Some(1)]), ElementType::F32);
    let mut with_exceptions = header(Base::Previous, difference(), &[Some(1)]);
    with_exceptions.exceptions = true;
    refused(with_exceptions, ElementType::F32);
}

proptest! {
    #[test]
    fn junk_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..80), elements in 0usize..100_000) {
        for element in [ElementType::F16, ElementType::F32, ElementType::F64, ElementType::Bytes(3)] {
            if let Ok(header) = RecordHeader::of_bytes(&bytes, element, elements) {
                let mut again = Vec::new();
                header.write(element, &mut again);
                prop_assert_eq!(RecordHeader::of_bytes(&again, element, elements), Ok(header));
            }
        }
    }
}

/// The table of format.md, section 5, and section 16.
#[test]
fn a_place_allows_what_the_format_says() {
    let exact = |base| header(base, Kind::Classes { highest: 0, top: 0, coding: Coding::Constant(0) }, &[]);
    let lossy = |base| header(base, constant(Meaning::Values(vec![1.0]), LossyDomain::Value, 0), &[]);
    let bases = || [Base::Zero, Base::Previous, Base::Predicted(prediction(Formula::Direction)), Base::Own];
    let table = [
        (Place::Full, [true, false, false, false], [true, false, false, false]),
        (Place::Delta, [true, true, true, false], [true, true, true, false]),
        (Place::Residual, [true, false, false, true], [false; 4]),
        (Place::Frame, [true, true, false, false], [true, true, false, false]),
    ];
    for (place, of_exact, of_lossy) in table {
        for (k, base) in bases().into_iter().enumerate() {
            assert_eq!(exact(base.clone()).check_place(place).is_ok(), of_exact[k], "{place:?} {base:?}");
            assert_eq!(lossy(base.clone()).check_place(place).is_ok(), of_lossy[k], "{place:?} {base:?}");
        }
        let link = header(Base::Zero, Kind::Link(0), &[]);
        assert_eq!(link.check_place(place).is_ok(), place != Place::Frame);
    }
}

#[test]
fn same_is_one_byte() {
    for (bytes, fine) in [(&[0x10][..], true), (&[0x30], true), (&[0x50, 8], false), (&[0x70, 8], false)] {
        assert_eq!(RecordHeader::of_bytes(bytes, ElementType::F32, 100).is_ok(), fine, "{bytes:x?}");
    }
}
