//! A group of symbols under one code: one stream, or four (format.md, section 6).

use super::{Code, Decoder, FOUR_STREAMS_FROM};
use crate::bits::BitReader;
use crate::error::{Flaw, Parsed};
use crate::kernels::Pending;
use crate::simd::ahead::Ahead;
use crate::simd::bits;
use crate::simd::streams::{Lane, Stand, decode_lanes};
#[cfg(target_arch = "x86_64")]
use crate::simd::{self, SYMBOLS};
use crate::sink::Sink;
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

/// Appends a group. `scratch` holds the streams meanwhile. `false`: a symbol has no codeword, and what is written is useless.
#[must_use]
pub fn encode_group(symbols: &[u8], code: &Code, scratch: &mut Vec<u8>, out: &mut dyn Sink) -> bool {
    if symbols.is_empty() {
        return true;
    }
    let mut used = 0;
    for range in stream_ranges(symbols.len()) {
        let room = 2 * range.len() + STREAM_SLACK;
        if scratch.len() < used + room {
            scratch.resize(used + room, 0);
        }
        let length = encode_stream(&symbols[range], code, &mut scratch[used..]);
        put_varint(out, length as u64);
        used += length;
    }
    out.put(&scratch[..used]);
    code.covers(symbols)
}

/// What a stream's room must have beyond two bytes a symbol.
const STREAM_SLACK: usize = 16;

/// Writes a stream to `out` and tells how many bytes it has.
fn encode_stream(symbols: &[u8], code: &Code, out: &mut [u8]) -> usize {
    let (mut pending, mut at, mut done) = (Pending::default(), 0, 0);
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = simd::avx2() {
        if let Some(short) = code.short() {
            done = symbols.len() / SYMBOLS * SYMBOLS;
            at = avx2.encode_short(&symbols[..done], short, &mut pending, out);
        } else if let Some(bytes) = code.bytes() {
            (done, at) = avx2.encode_bytes(symbols, bytes, &mut pending, out);
        }
    }
    at + encode_rest(&symbols[done..], code, pending, &mut out[at..])
}

bits! {
    /// Writes what follows the bits that wait, to the end of the stream; tells how many bytes.
    fn encode_rest[](
        symbols: &[u8],
        code: &Code,
        pending: Pending,
        out: &mut [u8],
    ) -> usize {
        let (Pending { mut bits, mut count }, mut at) = (pending, 0);
        let mut put = |word: u64, length: u32| {
            bits |= word << count;
            out[at..at + 8].copy_from_slice(&bits.to_le_bytes());
            at += ((count + length) / 8) as usize;
            bits >>= (count + length) & !7;
            count = (count + length) % 8;
        };
        let (fours, rest) = symbols.as_chunks::<4>();
        for &[a, b, c, d] in fours {
            // Four codes are at most 44 bits, on top of fewer than 8. Made as pairs, so that they need not wait for each other.
            let (first, second) = (join(code.word(a), code.word(b)), join(code.word(c), code.word(d)));
            let (word, length) = join(first, second);
            put(word, length);
        }
        for &symbol in rest {
            let (word, length) = code.word(symbol);
            put(word, length);
        }
        if count > 0 {
            out[at] = bits as u8;
            at += 1;
        }
        at
    }
}

/// Two runs of bits, one after the other.
#[inline(always)]
fn join((first, length): (u64, u32), (second, second_length): (u64, u32)) -> (u64, u32) {
    (first | second << length, length + second_length)
}

/// Reads a group of `symbols.len()` symbols, `N` a codeword. `ahead` is asked for meanwhile.
pub fn decode_group<const N: usize>(
    input: &mut Reader<'_>,
    decoder: &Decoder<N>,
    symbols: &mut [u8],
    ahead: &mut Ahead,
) -> Parsed<()> {
    if symbols.is_empty() {
        return Ok(());
    }
    let words = symbols.len().div_ceil(N);
    let mut lengths = [0; 4];
    for (length, _) in lengths.iter_mut().zip(stream_ranges(words)) {
        *length = input.count()?;
    }
    let (mut lanes, mut starts): ([Lane<'_>; 4], _) = (Default::default(), [0; 4]);
    let mut rest = symbols;
    for (k, range) in stream_ranges(words).enumerate() {
        starts[k] = input.position();
        let (output, later) = rest.split_at_mut((N * range.len()).min(rest.len()));
        rest = later;
        lanes[k] = Lane { stream: input.slice(lengths[k])?, output, stand: Stand::default() };
    }
    if let Some(entries) = decoder.entries(words) {
        decode_lanes(entries, &mut lanes, ahead);
        lanes.iter_mut().for_each(|lane| entries.decode_end(lane));
    }
    for (lane, start) in lanes.iter_mut().zip(starts) {
        let used = decode_rest(lane, decoder).map_err(|flaw| flaw.shifted(start))?;
        if used != lane.stream.len() {
            return Err(input.flaw("a stream is longer than its symbols"));
        }
    }
    Ok(())
}

/// Decodes what is left of a stream and returns how many bytes it has.
fn decode_rest<const N: usize>(lane: &mut Lane<'_>, decoder: &Decoder<N>) -> Parsed<usize> {
    let Stand { bits, symbols } = lane.stand;
    let at = bits / 8;
    let rest = decode_words(&lane.stream[at..], (bits % 8) as u32, decoder, &mut lane.output[symbols..]);
    Ok(at + rest.map_err(|flaw| flaw.shifted(at))?)
}

/// Codeword by codeword, from a bit of the first byte on.
fn decode_words<const N: usize>(bytes: &[u8], first: u32, decoder: &Decoder<N>, symbols: &mut [u8]) -> Parsed<usize> {
    let mut reader = BitReader::new(bytes);
    reader.get(first)?;
    for slots in symbols.chunks_mut(N) {
        let (found, length) = decoder.symbols(reader.peek());
        reader.take(length)?;
        let (found, past_the_end) = found.split_at(slots.len());
        slots.copy_from_slice(found);
        if past_the_end.iter().any(|symbol| *symbol != 0) {
            return Err(Flaw::new(bytes.len(), "a codeword's symbols go past the end"));
        }
    }
    reader.finish()
}

/// An upper bound, in bits, of what a group takes besides its codes.
pub fn group_bits(n: usize, code_bits: u64) -> u64 {
    let streams = if n == 0 { 0 } else { stream_ranges(n).count() as u64 };
    code_bits + streams * (8 * crate::wire::varint_length(code_bits / 8 + 1) as u64 + 7)
}

#[cfg(test)]
mod tests;
