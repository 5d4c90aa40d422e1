//! Decoding a record by the letter of the format.

use super::{Bytes, fields, read_symbols};
use crate::float::{Arith, Element};
use crate::header::{Base, Kind, LossyDomain, Meaning, RecordHeader};

/// The reconstruction; `base` is what the header says it is.
pub fn decode_record<E: Element>(header: &RecordHeader, payload: &[u8], base: &[E]) -> Vec<E> {
    if header.kind == Kind::Same {
        return base.to_vec();
    }
    let mut rest = payload;
    let mut result = Vec::new();
    for (chunk, entry) in base.chunks(1 << header.chunk_log2).zip(&header.index) {
        let Some(length) = entry.length else {
            result.extend_from_slice(chunk);
            continue;
        };
        let (stored, after) = rest.split_at(length as usize);
        rest = after;
        let zeros = vec![E::ZERO; chunk.len()];
        let from_zero = header.base == Base::Zero || matches!(header.kind, Kind::Classes { .. });
        let decoded = decode_chunk(header, stored, if from_zero { &zeros } else { chunk });
        assert_eq!(super::content_sum(bytemuck::cast_slice(&decoded)), entry.sum);
        result.extend(decoded);
    }
    assert!(rest.is_empty());
    result
}

fn decode_chunk<E: Element>(header: &RecordHeader, stored: &[u8], base: &[E]) -> Vec<E> {
    let mut input = Bytes { bytes: stored };
    let exceptions = if header.exceptions { exceptions::<E>(&mut input) } else { Vec::new() };
    let mut elements = match &header.kind {
        Kind::Bytes { planes } => return bytes_chunk(stored, *planes, base.len()),
        Kind::Lossy { domain, refinement, meaning, coding, .. } => {
            let symbols = read_symbols(&mut input, coding, meaning.symbols(), base.len());
            lossy_elements(&mut input, *domain, u32::from(*refinement), meaning, &symbols, base)
        }
        Kind::Classes { highest, top, coding } => {
            let symbols = read_symbols(&mut input, coding, *highest, base.len());
            class_elements(&mut input, *top, coding.skips_zeros(), &symbols)
        }
        Kind::Difference { highest, top, coding } => {
            let symbols = read_symbols(&mut input, coding, *highest, base.len());
            difference_elements(&mut input, *top, &symbols, base)
        }
        Kind::Same | Kind::Link(_) => unreachable!("no chunks"),
    };
    assert!(input.bytes.is_empty());
    for (position, element) in exceptions {
        elements[position] = element;
    }
    elements
}

fn exceptions<E: Element>(input: &mut Bytes<'_>) -> Vec<(usize, E)> {
    let count = input.varint();
    let mut next = 0;
    let mut positions = Vec::new();
    for _ in 0..count {
        positions.push(next + input.varint());
        next = positions[positions.len() - 1] + 1;
    }
    let element = |position| (position, E::of_bits(input.take(E::BITS as usize / 8).number(E::BITS)));
    positions.into_iter().map(element).collect()
}

fn bytes_chunk<E: Element>(stored: &[u8], planes: u8, n: usize) -> Vec<E> {
    let size = E::BITS as usize / 8;
    let raw = if stored.len() == n * size { stored.to_vec() } else { zstd::decode_all(stored).expect("a zstd frame") };
    assert_eq!(raw.len(), n * size);
    let byte = |i: usize, k: usize| if planes == 0 { raw[i * size + k] } else { raw[k * n + i] };
    (0..n).map(|i| E::of_bits((0..size).map(|k| u64::from(byte(i, k)) << (8 * k)).sum())).collect()
}

fn lossy_elements<E: Element>(
    input: &mut Bytes<'_>,
    domain: LossyDomain,
    r: u32,
    meaning: &Meaning,
    symbols: &[u8],
    base: &[E],
) -> Vec<E> {
    let ordered = domain != LossyDomain::Value;
    let width = |symbol: u8| match meaning {
        Meaning::Buckets(buckets) if ordered => r.min(u32::from(buckets[usize::from(symbol) - 1].exponent) - 1),
        _ => r,
    };
    let widths: Vec<u32> = symbols.iter().filter(|s| **s > 0).map(|&s| width(s)).collect();
    let mut values = if r > 0 { fields(input, &widths) } else { vec![0; widths.len()] }.into_iter();
    let lowest = if domain == LossyDomain::OrderedNonNegative { 0 } else { -1 - E::LARGEST };
    let add_value = |base: E, delta: E::A| E::round(base.to_arith().plus(delta));
    let add_ordered = |base: E, delta: i128| {
        let sum = (i128::from(base.ordered()) + delta).clamp(i128::from(lowest), i128::from(E::LARGEST));
        E::of_ordered(sum as i64)
    };
    let element = |(&base, &symbol): (&E, &u8)| {
        if symbol == 0 {
            return base;
        }
        let at = usize::from(symbol) - 1;
        let field = values.next().expect("a field for each symbol");
        match meaning {
            Meaning::Values(values) => add_value(base, E::A::of_f64(values[at])),
            Meaning::Integers(integers) => add_ordered(base, integers[at]),
            Meaning::Buckets(buckets) if ordered => {
                let length = u32::from(buckets[at].exponent);
                let w = r.min(length - 1);
                let half = if w < length - 1 { 1i128 << (length - 2 - w) } else { 0 };
                let magnitude = (1i128 << (length - 1)) + (i128::from(field) << (length - 1 - w)) + half;
                add_ordered(base, if buckets[at].negative { -magnitude } else { magnitude })
            }
            Meaning::Buckets(buckets) => {
                let m = E::A::MANTISSA_BITS;
                let half = if r < m { 1u64 << (m - r - 1) } else { 0 };
                let sign = u64::from(buckets[at].negative) << (m + E::A::EXPONENT_BITS);
                let bits = sign | u64::from(buckets[at].exponent) << m | field << (m - r) | half;
                add_value(base, E::A::of_bits(bits))
            }
        }
    };
    base.iter().zip(symbols).map(element).collect()
}

/// The class of each element, and whether it has a field.
fn classes(input: &mut Bytes<'_>, top: u16, symbols: &[u8], escape_bytes: usize) -> Vec<Option<u32>> {
    let escapes = symbols.iter().filter(|s| **s == 15).count();
    let read = |_| input.take(escape_bytes).number(8 * escape_bytes as u32) as u32;
    let mut escaped = (0..escapes).map(read).collect::<Vec<_>>().into_iter();
    let class = |&symbol: &u8| match symbol {
        0 => None,
        15 => escaped.next(),
        s => Some(u32::from(top) - (u32::from(s) - 1)),
    };
    symbols.iter().map(class).collect()
}

fn class_elements<E: Element>(input: &mut Bytes<'_>, top: u16, skips_zeros: bool, symbols: &[u8]) -> Vec<E> {
    let classes = classes(input, top, symbols, if E::BITS == 64 { 2 } else { 1 });
    let with_field = |class: &Option<u32>| class.is_some() || !skips_zeros;
    let widths = vec![E::MANTISSA_BITS + 1; classes.iter().filter(|c| with_field(c)).count()];
    let mut values = fields(input, &widths).into_iter();
    let element = |class: &Option<u32>| {
        let field = if with_field(class) { values.next().expect("a field") } else { 0 };
        let mantissa = field & ((1 << E::MANTISSA_BITS) - 1);
        let sign = field >> E::MANTISSA_BITS;
        let exponent = u64::from(class.unwrap_or(0));
        E::of_bits(sign << (E::BITS - 1) | exponent << E::MANTISSA_BITS | mantissa)
    };
    classes.iter().map(element).collect()
}

fn difference_elements<E: Element>(input: &mut Bytes<'_>, top: u16, symbols: &[u8], base: &[E]) -> Vec<E> {
    let lengths = classes(input, top, symbols, if E::BITS == 64 { 2 } else { 1 });
    let widths: Vec<u32> = lengths.iter().flatten().copied().collect();
    let mut values = fields(input, &widths).into_iter();
    let element = |(&base, length): (&E, &Option<u32>)| {
        let Some(length) = length else { return base };
        let field = values.next().expect("a field");
        let low = field & ((1u64 << (length - 1)) - 1);
        let magnitude = i128::from(1u64 << (length - 1) | low);
        let difference = if field >> (length - 1) & 1 == 1 { -magnitude } else { magnitude };
        let wide = i128::from(base.ordered()) + difference;
        // Wrapped into the element's width.
        let shift = 128 - E::BITS;
        E::of_ordered((wide << shift >> shift) as i64)
    };
    base.iter().zip(&lengths).map(element).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::CodingChoice;
    use crate::{Encoder, Spec};
    use half::{bf16, f16};
    use proptest::prelude::*;

    fn agrees<E: Element>(spec: Spec, pairs: &[(u64, u64)]) {
        let mask = u64::MAX >> (64 - E::BITS);
        let (target, before): (Vec<E>, Vec<E>) =
            pairs.iter().map(|&(t, b)| (E::of_bits(t & mask), E::of_bits(b & mask))).unzip();
        let encoder = Encoder::new(spec).expect("valid");
        let (mut base, mut payload) = (before.clone(), Vec::new());
        let header = encoder.encode(&target, &mut base, &mut payload).expect("encodes");
        assert_eq!(bits(&decode_record(&header, &payload, &before)), bits(&base));
        payload.clear();
        let header = encoder.encode_full(&target, &mut payload).expect("encodes");
        assert_eq!(bits(&decode_record(&header, &payload, &before)), bits(&target));
        payload.clear();
        let header = encoder.encode_residual(&target, &base, &mut payload).expect("encodes");
        assert_eq!(bits(&decode_record(&header, &payload, &base)), bits(&target));
    }

    fn bits<E: Element>(elements: &[E]) -> Vec<u64> {
        elements.iter().map(|e| e.bits()).collect()
    }

    fn spec() -> impl Strategy<Value = Spec> {
        let choices = [
            CodingChoice::Cheapest,
            CodingChoice::Plain,
            CodingChoice::Mask,
            CodingChoice::Tokens,
            CodingChoice::Fixed,
            CodingChoice::Pairs,
        ];
        (0u8..5, 1u8..=7, prop_oneof![Just(0u8), 1u8..=23], prop::sample::select(choices.to_vec()), 6u8..12).prop_map(
            |(which, levels, refinement, coding, chunk_log2)| {
                let mut spec = if which == 0 { Spec::exact() } else { Spec::lossy(levels) };
                if let Some(lossy) = &mut spec.lossy {
                    lossy.refinement = refinement;
                    lossy.coding = coding;
                    lossy.exact_fallback = which > 3;
                }
                Spec { chunk_log2, ..spec }
            },
        )
    }

    proptest! {
        #[test]
        fn the_decoder_reads_what_the_format_says(
            spec in spec(), entries in prop::collection::vec((any::<u64>(), 0u32..60, 0u8..8), 0..3000), runs in any::<bool>(),
        ) {
            let pair = |(i, &(bits, shift, kind)): (usize, &(u64, u32, u8))| match kind {
                _ if runs && i % 50 > 2 => (bits, bits),
                0..=5 => (bits, bits ^ (bits.rotate_left(19) >> shift)),
                6 => (0, 0),
                _ => (bits, bits.rotate_left(29)),
            };
            let pairs: Vec<(u64, u64)> = entries.iter().enumerate().map(pair).collect();
            agrees::<f32>(spec, &pairs);
            agrees::<f64>(spec, &pairs);
            agrees::<f16>(spec, &pairs);
            agrees::<bf16>(spec, &pairs);
        }
    }
}
