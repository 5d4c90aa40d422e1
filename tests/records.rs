//! Records through the public interface: what goes in comes back, the writer's base is the reader's, and damage is found.

use ckptz::coding::CodingChoice;
use ckptz::float::{Element, ElementType};
use ckptz::header::{Kind, LossyDomain};
use ckptz::promote::{Promotion, Representative};
use ckptz::spec::{BaseChoice, DomainChoice, Lossy};
use ckptz::{Decoder, Encoder, RecordHeader, Spec};
use half::{bf16, f16};
use proptest::prelude::*;

const PAPER_TARGET: [f32; 10] = [1.34, 1.02, 0.39, 1.37, 1.34, 1.77, 1.03, 1.58, 1.93, 1.03];
const PAPER_BASE: [f32; 10] = [0.58, 1.5, 0.19, 1.3, 1.16, 1.28, 0.89, 1.19, 1.11, 0.94];

#[test]
fn the_papers_figure() {
    let mut base = PAPER_BASE;
    let mut payload = Vec::new();
    let encoder = Encoder::new(Spec::paper(2)).expect("a valid spec");
    let header = encoder.encode(&PAPER_TARGET, &mut base, &mut payload).expect("same lengths");
    let Kind::Lossy { meaning, coding, .. } = &header.kind else { panic!("not lossy") };
    let ckptz::header::Meaning::Values(values) = meaning else { panic!("not in the value domain") };
    let rounded: Vec<f64> = values.iter().map(|v| (v * 100.0).round() / 100.0).collect();
    assert_eq!(rounded, [0.79, 0.44, -0.48]);
    let ckptz::coding::Coding::Plain(code) = coding else { panic!("not plain") };
    assert_eq!(code.lengths(), [1, 2, 3, 3]);
    let next: Vec<f32> = base.iter().map(|b| (b * 100.0).round() / 100.0).collect();
    assert_eq!(next, [1.37, 1.02, 0.19, 1.3, 1.16, 1.72, 0.89, 1.63, 1.9, 0.94]);
    let mut reader = PAPER_BASE;
    Decoder::new(&header).expect("no siblings").decode(&payload, &mut reader).expect("own output");
    assert_eq!(reader, base);
}

#[test]
fn a_payload_longer_than_its_record_is_damage() {
    let encoder = Encoder::new(Spec::exact()).expect("a valid spec");
    for (mut base, kind_is_same) in [(PAPER_BASE, false), (PAPER_TARGET, true)] {
        let (mut reader, mut payload) = (base, Vec::new());
        let header = encoder.encode(&PAPER_TARGET, &mut base, &mut payload).expect("same lengths");
        assert_eq!(header.kind == Kind::Same, kind_is_same);
        payload.push(0);
        let found = Decoder::new(&header).expect("no siblings").decode(&payload, &mut reader);
        assert!(matches!(found, Err(ckptz::Error::Format { .. })), "{found:?}");
    }
}

#[test]
fn the_papers_figure_with_means() {
    let mut spec = Spec::paper(3);
    spec.lossy.as_mut().expect("lossy").representative = Representative::Mean;
    let mut base = PAPER_BASE;
    let header = Encoder::new(spec).expect("valid").encode(&PAPER_TARGET, &mut base, &mut Vec::new()).expect("encodes");
    let Kind::Lossy { meaning: ckptz::header::Meaning::Values(values), .. } = &header.kind else { panic!("lossy") };
    assert!(values.iter().any(|v| (v - 0.1733).abs() < 1e-4), "{values:?}");
}

/// Every dial of lossy coding.
fn lossy() -> impl Strategy<Value = Lossy> {
    let promotion =
        prop_oneof![(1u8..=4).prop_map(|bits| Promotion::Buckets { bits }), (1u8..=7).prop_map(Promotion::Levels)];
    (
        prop::sample::select(vec![DomainChoice::Auto, DomainChoice::Value, DomainChoice::Ordered]),
        promotion.clone(),
        promotion,
        prop::sample::select(vec![Representative::Mean, Representative::Midrange]),
        prop_oneof![Just(0u8), 0u8..=23],
        prop::sample::select(vec![BaseChoice::Auto, BaseChoice::Previous]),
        prop::sample::select(vec![
            CodingChoice::Cheapest,
            CodingChoice::Plain,
            CodingChoice::Mask,
            CodingChoice::Tokens,
            CodingChoice::Fixed,
            CodingChoice::Pairs,
        ]),
        any::<bool>(),
        prop::sample::select(vec![0usize, 16]),
    )
        .prop_map(
            |(
                domain,
                promotion,
                non_negative,
                representative,
                refinement,
                base,
                coding,
                exact_fallback,
                least_elements,
            )| Lossy {
                domain,
                promotion,
                non_negative,
                representative,
                refinement,
                bound: None,
                base,
                coding,
                exact_fallback,
                least_elements,
            },
        )
}

fn spec() -> impl Strategy<Value = Spec> {
    (prop::option::weighted(0.8, lossy()), 6u8..=24).prop_map(|(lossy, chunk_log2)| Spec {
        lossy,
        links: true,
        predict: true,
        chunk_log2,
    })
}

/// Pairs of target and base bits: near each other, equal, sparse, special.
fn pairs(width: u32) -> impl Strategy<Value = Vec<(u64, u64)>> {
    let mask = u64::MAX >> (64 - width);
    let entry = (any::<u64>(), 0u32..width, 0u8..10).prop_map(move |(bits, shift, kind)| {
        let target = bits & mask;
        let near = target ^ (bits.rotate_left(17) & mask) >> shift;
        let base = match kind {
            0..=5 => near,
            6 => target,
            7 => 0,
            8 => bits.rotate_left(31) & mask,
            _ => near | 1 << (width - 1),
        };
        (target, base)
    });
    let sign = 1u64 << (width - 1);
    (prop::collection::vec(entry, 0..400), any::<bool>()).prop_map(move |(mut pairs, positive)| {
        if positive {
            pairs.iter_mut().for_each(|(t, b)| (*t, *b) = (*t & !sign, *b & !sign));
        }
        pairs
    })
}

fn elements<E: Element>(pairs: &[(u64, u64)]) -> (Vec<E>, Vec<E>) {
    pairs.iter().map(|&(t, b)| (E::of_bits(t), E::of_bits(b))).unzip()
}

fn bits<E: Element>(elements: &[E]) -> Vec<u64> {
    elements.iter().map(|e| e.bits()).collect()
}

/// The header, through its bytes.
fn written(header: &RecordHeader, element: ElementType, elements: usize) -> RecordHeader {
    let mut bytes = Vec::new();
    header.write(element, &mut bytes);
    let parsed = RecordHeader::of_bytes(&bytes, element, elements).expect("own header");
    assert_eq!(&parsed, header);
    parsed
}

fn round_trip<E: Element>(spec: Spec, pairs: &[(u64, u64)]) {
    let (target, before) = elements::<E>(pairs);
    let encoder = Encoder::new(spec).expect("a valid spec");
    let (mut base, mut payload) = (before.clone(), Vec::new());
    let header = encoder.encode(&target, &mut base, &mut payload).expect("same lengths");
    let header = written(&header, E::TYPE, target.len());
    assert_eq!(header.payload_bytes(), payload.len() as u64);
    let mut reader = before.clone();
    Decoder::new(&header).expect("no siblings").decode(&payload, &mut reader).expect("own output");
    assert_eq!(bits(&reader), bits(&base));
    for (t, r) in target.iter().zip(&reader) {
        assert!(t.finite() || t.bits() == r.bits());
        assert!(!t.finite() || r.finite());
    }
    if !header.is_lossy() {
        assert_eq!(bits(&reader), bits(&target));
    }
    residual_leads_to_the_target(&encoder, &target, &base);
    full_comes_back(&encoder, &target);
}

fn residual_leads_to_the_target<E: Element>(encoder: &Encoder, target: &[E], base: &[E]) {
    let mut payload = Vec::new();
    let header = encoder.encode_residual(target, base, &mut payload).expect("same lengths");
    let header = written(&header, E::TYPE, target.len());
    let mut exact = base.to_vec();
    Decoder::new(&header).expect("no siblings").decode(&payload, &mut exact).expect("own output");
    assert_eq!(bits(&exact), bits(target));
}

fn full_comes_back<E: Element>(encoder: &Encoder, target: &[E]) {
    let mut payload = Vec::new();
    let header = encoder.encode_full(target, &mut payload).expect("encodes");
    let header = written(&header, E::TYPE, target.len());
    assert!(!header.needs_base());
    let mut full = vec![E::of_bits(1); target.len()];
    Decoder::new(&header).expect("no siblings").decode(&payload, &mut full).expect("own output");
    assert_eq!(bits(&full), bits(target));
}

proptest! {
    #[test]
    fn f32_comes_back(spec in spec(), pairs in pairs(32)) {
        round_trip::<f32>(spec, &pairs);
    }

    #[test]
    fn f64_comes_back(spec in spec(), pairs in pairs(64)) {
        round_trip::<f64>(spec, &pairs);
    }

    #[test]
    fn half_types_come_back(spec in spec(), pairs in pairs(16)) {
        round_trip::<f16>(spec, &pairs);
        round_trip::<bf16>(spec, &pairs);
    }

    #[test]
    fn damage_is_found(spec in spec(), pairs in pairs(32), at: prop::sample::Index, flip in 1u8..) {
        let (target, before) = elements::<f32>(&pairs);
        let (mut base, mut payload) = (before.clone(), Vec::new());
        let header = Encoder::new(spec).expect("valid").encode(&target, &mut base, &mut payload).expect("encodes");
        if !payload.is_empty() {
            let at = at.index(payload.len());
            payload[at] ^= flip;
            let mut reader = before.clone();
            let decoded = Decoder::new(&header).expect("no siblings").decode(&payload, &mut reader);
            prop_assert!(decoded.is_err() || bits(&reader) == bits(&base));
            let mut reader = before;
            prop_assert!(Decoder::new(&header).expect("no siblings").decode(&payload[..at], &mut reader).is_err());
        }
    }

    #[test]
    fn hostile_headers_never_panic(
        spec in spec(), pairs in pairs(32), at: prop::sample::Index, flip in 1u8.., junk in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let (target, before) = elements::<f32>(&pairs);
        let (mut base, mut payload, mut bytes) = (before.clone(), Vec::new(), Vec::new());
        let header = Encoder::new(spec).expect("valid").encode(&target, &mut base, &mut payload).expect("encodes");
        header.write(ElementType::F32, &mut bytes);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        for bytes in [&bytes, &junk] {
            for element in [ElementType::F16, ElementType::F32, ElementType::F64, ElementType::Bytes(4)] {
                let Ok(header) = RecordHeader::of_bytes(bytes, element, target.len()) else { continue };
                if let (ElementType::F32, Ok(decoder)) = (element, Decoder::new(&header)) {
                    let _ = decoder.decode(&payload, &mut before.clone());
                }
            }
        }
    }
}

/// More entries than are planned one by one.
const SAMPLED: usize = 1 << 18;

/// What happens to a large tensor in a step.
#[derive(Debug, Clone, Copy)]
enum Change {
    /// So many entries, anywhere.
    Sparse(usize),
    /// So many, side by side.
    Cluster(usize),
    All,
}

fn noise(n: u64) -> u64 {
    let z = (n ^ n >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (z ^ z >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Target and base, the base's entries of size 1 to 2. `negative`: so many of them have a sign.
fn large(elements: usize, change: Change, negative: usize, scale: f32, seed: u64) -> (Vec<f32>, Vec<f32>) {
    let unit = |n: u64| (noise(seed ^ n) >> 40) as f32 / (1 << 24) as f32;
    let place = |n: usize| noise(seed.rotate_left(7) ^ n as u64) as usize % elements;
    let mut base: Vec<f32> = (0..elements).map(|i| 1.0 + unit(i as u64)).collect();
    (0..negative).for_each(|n| base[place(n)] *= -1.0);
    let mut target = base.clone();
    let mut step = |i: usize| target[i] += scale * (unit(!(i as u64)) - 0.5);
    match change {
        Change::Sparse(count) => (0..count).for_each(|n| step(place(n + 1000))),
        Change::Cluster(length) => (place(7)..elements).take(length).for_each(&mut step),
        Change::All => (0..elements).for_each(&mut step),
    }
    (target, base)
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (1usize..20).prop_map(Change::Sparse),
        (1usize..5000).prop_map(Change::Sparse),
        (1usize..2000).prop_map(Change::Cluster),
        (1usize..SAMPLED).prop_map(Change::Cluster),
        Just(Change::All),
    ]
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum::<f64>().sqrt()
}

/// The record is read, loses less than was changed, and is no larger than an exact one.
fn large_comes_back(target: &[f32], before: &[f32], levels: u8) -> (RecordHeader, Vec<f32>) {
    let encode = |spec: Spec, base: &mut [f32]| {
        let mut payload = Vec::new();
        let header = Encoder::new(spec).expect("valid").encode(target, base, &mut payload).expect("same lengths");
        (header, payload)
    };
    let mut base = before.to_vec();
    let (header, payload) = encode(Spec::lossy(levels), &mut base);
    let mut reader = before.to_vec();
    Decoder::new(&header).expect("no siblings").decode(&payload, &mut reader).expect("own output");
    assert_eq!(bits(&reader), bits(&base));
    let (lost, changed) = (distance(&base, target), distance(before, target));
    assert!(lost < changed, "{lost} of {changed}: {header:?}");
    let (_, exact) = encode(Spec::exact(), &mut before.to_vec());
    assert!(payload.len() <= exact.len() + exact.len() / 50 + 512, "{} {}", payload.len(), exact.len());
    (header, base)
}

#[test]
fn few_changes_among_many_entries_are_kept() {
    for elements in [SAMPLED, 4 * SAMPLED] {
        let before = vec![1.0; elements];
        let mut target = before.clone();
        (0..4).for_each(|k| target[elements / 5 * k + 11] += 100.0 + k as f32);
        large_comes_back(&target, &before, 3);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn large_tensors_come_back(
        change in change(), more in 1usize..200_000, negative in 0usize..4, log2 in -12i32..=0, levels in 1u8..=7, seed: u64,
    ) {
        let (target, base) = large(SAMPLED + more, change, negative, 2f32.powi(log2), seed);
        prop_assume!(target != base);
        let (header, reconstruction) = large_comes_back(&target, &base, levels);
        if let Kind::Lossy { domain, .. } = header.kind {
            let signed = target.iter().chain(&base).any(|element| element.is_sign_negative());
            prop_assert!(domain != LossyDomain::Value || signed);
            // Signs that no sample has are exceptions.
            let exact = |(t, r): (&f32, &f32)| t.is_sign_positive() || t.to_bits() == r.to_bits();
            prop_assert!(domain == LossyDomain::Value || target.iter().zip(&reconstruction).all(exact));
        }
    }
}
