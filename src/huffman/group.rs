//! A group of symbols under one code: one stream, or four (format.md, section 6).

use super::{Code, Decoder, FOUR_STREAMS_FROM};
use crate::bits::{BitReader, BitWriter};
use crate::error::Parsed;
use crate::wire::{Reader, put_varint};

/// Where each stream of a group of `n` symbols (or fields) ends. Streams past the last are empty.
pub fn stream_ends(n: usize) -> [usize; 4] {
    if n < FOUR_STREAMS_FROM {
        return [n, n, n, n];
    }
    let quarter = n.div_ceil(4).next_multiple_of(32);
    [quarter, 2 * quarter, 3 * quarter, n]
}

/// The streams of `n` symbols as ranges: one, or four.
pub fn stream_ranges(n: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let streams = if n < FOUR_STREAMS_FROM { 1 } else { 4 };
    let ends = stream_ends(n);
    (0..streams).map(move |k| if k == 0 { 0..ends[0] } else { ends[k - 1]..ends[k] })
}

/// Appends a group. `scratch` holds the streams meanwhile.
pub fn encode_group(symbols: &[u8], code: &Code, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
    if symbols.is_empty() {
        return;
    }
    scratch.clear();
    for range in stream_ranges(symbols.len()) {
        let start = scratch.len();
        let mut writer = BitWriter::new(scratch);
        for &symbol in &symbols[range] {
            let (word, length) = code.word(symbol);
            writer.put(word, length);
        }
        writer.finish();
        put_varint(out, (scratch.len() - start) as u64);
    }
    out.extend_from_slice(scratch);
}

/// Reads a group of `symbols.len()` symbols.
pub fn decode_group(input: &mut Reader<'_>, decoder: &Decoder, symbols: &mut [u8]) -> Parsed<()> {
    if symbols.is_empty() {
        return Ok(());
    }
    let mut lengths = [0; 4];
    for (length, _) in lengths.iter_mut().zip(stream_ranges(symbols.len())) {
        *length = input.count()?;
    }
    for (range, length) in stream_ranges(symbols.len()).zip(lengths) {
        let start = input.position();
        let bytes = input.slice(length)?;
        let used = decode_stream(bytes, decoder, &mut symbols[range]).map_err(|flaw| flaw.shifted(start))?;
        if used != length {
            return Err(input.flaw("a stream is longer than its symbols"));
        }
    }
    Ok(())
}

fn decode_stream(bytes: &[u8], decoder: &Decoder, symbols: &mut [u8]) -> Parsed<usize> {
    let mut reader = BitReader::new(bytes);
    for slot in symbols {
        let (symbol, length) = decoder.symbol(reader.peek());
        reader.take(length)?;
        *slot = symbol;
    }
    reader.finish()
}

/// An upper bound, in bits, of what a group takes besides its codes.
pub fn group_bits(n: usize, code_bits: u64) -> u64 {
    let streams = if n == 0 { 0 } else { stream_ranges(n).count() as u64 };
    code_bits + streams * (8 * crate::wire::varint_length(code_bits / 8 + 1) as u64 + 7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn symbols() -> impl Strategy<Value = Vec<u8>> {
        (0usize..3000, 2u8..=255).prop_flat_map(|(n, k)| prop::collection::vec(0..k, n))
    }

    proptest! {
        #[test]
        fn groups_come_back(symbols in symbols()) {
            let mut counts = vec![0u64; 256];
            symbols.iter().for_each(|&s| counts[usize::from(s)] += 1);
            let code = Code::of_counts(&counts);
            let (mut scratch, mut out) = (Vec::new(), Vec::new());
            encode_group(&symbols, &code, &mut scratch, &mut out);
            prop_assert!(out.len() as u64 * 8 <= group_bits(symbols.len(), code.bits(&counts)));
            let mut decoded = vec![0; symbols.len()];
            let mut reader = Reader::new(&out);
            decode_group(&mut reader, &Decoder::new(&code), &mut decoded).expect("own output");
            prop_assert_eq!(reader.remaining(), 0);
            prop_assert_eq!(decoded, symbols);
        }

        #[test]
        fn damage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..600), n in 0usize..2000) {
            let decoder = Decoder::new(&Code::of_counts(&[9, 5, 3, 1, 1]));
            let mut decoded = vec![0; n];
            if decode_group(&mut Reader::new(&bytes), &decoder, &mut decoded).is_ok() {
                prop_assert!(decoded.iter().all(|&s| s < 5));
            }
        }
    }

    #[test]
    fn the_streams_of_the_smallest_large_group() {
        assert_eq!(stream_ends(1023), [1023; 4]);
        assert_eq!(stream_ends(1024), [256, 512, 768, 1024]);
        assert_eq!(stream_ends(1025), [288, 576, 864, 1025]);
    }
}
