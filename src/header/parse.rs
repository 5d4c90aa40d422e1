//! A record header from untrusted bytes.

use super::{Base, CHUNK_LOG2, ChunkEntry, DEFAULT_CHUNK_LOG2, Kind, LossyDomain, Meaning, RecordHeader, chunk_count};
use crate::coding::Coding;
use crate::delta::Bucket;
use crate::error::{Parsed, Part, Result};
use crate::fenv;
use crate::float::ElementType;
use crate::predict::Prediction;
use crate::wire::Reader;

/// No record's payload is longer (format.md, section 13).
const MAX_PAYLOAD: u64 = 1 << 56;

/// A base of which only the number is known.
type BaseNumber = u8;

impl RecordHeader {
    /// The header that `bytes` are, no more and no less.
    pub fn of_bytes(bytes: &[u8], element: ElementType, elements: usize) -> Result<Self> {
        let mut input = Reader::new(bytes);
        let header = Self::parse(&mut input, element, elements).map_err(|flaw| flaw.within(Part::Header))?;
        if input.remaining() > 0 {
            return Err(input.flaw("bytes are left over after a record header").within(Part::Header));
        }
        Ok(header)
    }

    /// Reads the header of a record of `elements` elements of this type.
    pub(crate) fn parse(input: &mut Reader<'_>, element: ElementType, elements: usize) -> Parsed<Self> {
        // Widening a subnormal to f64 is arithmetic too.
        fenv::standard(|| Self::parse_parts(input, element, elements))
    }

    fn parse_parts(input: &mut Reader<'_>, element: ElementType, elements: usize) -> Parsed<Self> {
        let first = input.u8()?;
        let (kind, base) = (first & 15, first >> 4 & 3);
        let exceptions = first & 0x80 != 0;
        check_combination(input, kind, base, exceptions, element)?;
        if kind == 0 && first & 0x40 != 0 {
            return Err(input.flaw("a record `same` with a chunk size"));
        }
        let chunk_log2 = if first & 0x40 == 0 { DEFAULT_CHUNK_LOG2 } else { parse_chunk_log2(input)? };
        let (kind, base) = parse_kind(input, kind, base, element)?;
        let mut header = RecordHeader { base, kind, chunk_log2, exceptions, index: Vec::new() };
        if header.kind != Kind::Same {
            header.parse_index(input, chunk_count(elements, chunk_log2))?;
        }
        Ok(header)
    }

    fn parse_index(&mut self, input: &mut Reader<'_>, chunks: usize) -> Parsed<()> {
        if chunks > input.remaining() {
            return Err(input.flaw("the index is shorter than the tensor"));
        }
        let link = matches!(self.kind, Kind::Link(_));
        let may_be_unchanged = matches!(self.base, Base::Previous | Base::Own);
        let mut total = 0u64;
        self.index.reserve_exact(chunks);
        for _ in 0..chunks {
            let length = if link { Some(0) } else { input.varint()?.checked_sub(1) };
            if length.is_none() && !may_be_unchanged {
                return Err(input.flaw("an unchanged chunk without a base"));
            }
            total = total.saturating_add(length.unwrap_or(0));
            let sum = if length.is_some() { input.u64()? } else { 0 };
            self.index.push(ChunkEntry { length, sum });
        }
        if total > MAX_PAYLOAD {
            return Err(input.flaw("the chunks of a record are too long"));
        }
        Ok(())
    }
}

fn check_combination(
    input: &Reader<'_>,
    kind: u8,
    base: BaseNumber,
    exceptions: bool,
    element: ElementType,
) -> Parsed<()> {
    let base_fits = match kind {
        0 => base == 1 || base == 3,
        1 => base == 0,
        5 | 7 => base != 2,
        2..=4 => base <= 2,
        6 => base >= 1,
        _ => return Err(input.flaw("an unknown record kind")),
    };
    if !base_fits {
        return Err(input.flaw("a record kind with a base that it cannot have"));
    }
    if exceptions && !(2..=4).contains(&kind) {
        return Err(input.flaw("exceptions in a record that is not lossy"));
    }
    if (2..=6).contains(&kind) && !element.is_float() {
        return Err(input.flaw("a record kind for floats on a tensor of another dtype"));
    }
    Ok(())
}

fn parse_chunk_log2(input: &mut Reader<'_>) -> Parsed<u8> {
    let log2 = input.u8()?;
    if !CHUNK_LOG2.contains(&log2) || log2 == DEFAULT_CHUNK_LOG2 {
        return Err(input.flaw("a chunk size out of range"));
    }
    Ok(log2)
}

fn parse_base(input: &mut Reader<'_>, base: BaseNumber, element: ElementType) -> Parsed<Base> {
    Ok(match base {
        0 => Base::Zero,
        1 => Base::Previous,
        2 => Base::Predicted(Prediction::parse(input, element)?),
        _ => Base::Own,
    })
}

fn parse_kind(input: &mut Reader<'_>, kind: u8, base: BaseNumber, element: ElementType) -> Parsed<(Kind, Base)> {
    match kind {
        0 => Ok((Kind::Same, parse_base(input, base, element)?)),
        1 => {
            let source = u32::try_from(input.varint()?).map_err(|_| input.flaw("a record number is too large"))?;
            Ok((Kind::Link(source), Base::Zero))
        }
        2 => parse_lossy(input, LossyDomain::Value, base, element),
        3 => parse_lossy(input, LossyDomain::Ordered, base, element),
        4 => parse_lossy(input, LossyDomain::OrderedNonNegative, base, element),
        5 | 6 => parse_exact(input, kind == 5, base, element),
        _ => {
            let planes = input.u8()?;
            if planes != 0 && (usize::from(planes) != element.size() || planes < 2) {
                return Err(input.flaw("transposed bytes of another item size"));
            }
            Ok((Kind::Bytes { planes }, parse_base(input, base, element)?))
        }
    }
}

fn parse_lossy(
    input: &mut Reader<'_>,
    domain: LossyDomain,
    base: BaseNumber,
    element: ElementType,
) -> Parsed<(Kind, Base)> {
    let dials = input.u8()?;
    let (coding, refinement) = (dials & 7, dials >> 3);
    if refinement > 23 {
        return Err(input.flaw("more than 23 refinement bits"));
    }
    let error = f32::from_bits(u32::from(input.u16()?) << 16);
    if error.is_nan() || error.is_sign_negative() {
        return Err(input.flaw("an error that is not a number from 0 up"));
    }
    let base = parse_base(input, base, element)?;
    let count = usize::from(input.u8()?);
    if count > 15 {
        return Err(input.flaw("more than 15 symbols"));
    }
    let meaning = parse_meaning(input, domain, refinement, count, element)?;
    let coding = Coding::read_tables(coding, meaning.symbols(), input)?;
    Ok((Kind::Lossy { domain, refinement, error, meaning, coding }, base))
}

fn parse_meaning(
    input: &mut Reader<'_>,
    domain: LossyDomain,
    refinement: u8,
    count: usize,
    element: ElementType,
) -> Parsed<Meaning> {
    let value_domain = domain == LossyDomain::Value;
    Ok(match (refinement, value_domain) {
        (0, true) => Meaning::Values((0..count).map(|_| parse_representative(input, element)).collect::<Parsed<_>>()?),
        (0, false) => Meaning::Integers((0..count).map(|_| parse_integer(input, element)).collect::<Parsed<_>>()?),
        _ => Meaning::Buckets((0..count).map(|_| parse_bucket(input, value_domain, element)).collect::<Parsed<_>>()?),
    })
}

/// A value of the arithmetic type of `element`, which must be finite.
pub fn parse_arith(input: &mut Reader<'_>, element: ElementType) -> Parsed<f64> {
    let value = if element == ElementType::F64 { input.f64()? } else { f64::from(input.f32()?) };
    if !value.is_finite() {
        return Err(input.flaw("a number in a record header is not finite"));
    }
    Ok(value)
}

fn parse_representative(input: &mut Reader<'_>, element: ElementType) -> Parsed<f64> {
    let value = parse_arith(input, element)?;
    if value == 0.0 {
        return Err(input.flaw("a representative of zero"));
    }
    Ok(value)
}

fn parse_integer(input: &mut Reader<'_>, element: ElementType) -> Parsed<i128> {
    let integer = input.zigzag()?;
    let bits = 8 * element.size() as u32 + 1;
    if integer == 0 || integer.unsigned_abs() >> bits != 0 {
        return Err(input.flaw("a representative out of range"));
    }
    Ok(integer)
}

fn parse_bucket(input: &mut Reader<'_>, value_domain: bool, element: ElementType) -> Parsed<Bucket> {
    let packed = input.varint()?;
    let exponent = packed >> 1;
    let valid = match (value_domain, element) {
        (true, ElementType::F64) => exponent < 2047,
        (true, _) => exponent < 255,
        (false, _) => (1..=8 * element.size() as u64 + 1).contains(&exponent),
    };
    if !valid {
        return Err(input.flaw("a bucket out of range"));
    }
    Ok(Bucket { exponent: exponent as u16, negative: packed & 1 == 1 })
}

fn parse_exact(
    input: &mut Reader<'_>,
    by_exponent: bool,
    base: BaseNumber,
    element: ElementType,
) -> Parsed<(Kind, Base)> {
    let coding = input.u8()?;
    let base = parse_base(input, base, element)?;
    let highest = input.u8()?;
    if highest > 15 {
        return Err(input.flaw("more than 15 symbols"));
    }
    let top = if highest == 0 { 0 } else { input.varint()? };
    if top > 2047 {
        return Err(input.flaw("a class out of range"));
    }
    let top = top as u16;
    let coding = Coding::read_tables(coding, highest, input)?;
    let kind =
        if by_exponent { Kind::Classes { highest, top, coding } } else { Kind::Difference { highest, top, coding } };
    Ok((kind, base))
}
