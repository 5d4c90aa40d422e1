//! Huffman streams decoded side by side, several symbols a look-up. No vector instructions, but unchecked reads and writes.

use super::ahead::Ahead;
use super::bits;
use crate::bits::word_at;

/// Bits that index the table.
const INDEX_BITS: u32 = 11;

/// Symbols that an entry has at most.
const ENTRY_SYMBOLS: usize = 6;

/// Look-ups for each load of bits: 5 * 11 <= 57.
const LOOKUPS: usize = 5;

/// Lines of each stretch of [`Ahead`] for each load of bits.
const LINES_AHEAD: usize = 4;

/// By the next [`INDEX_BITS`] bits: the bits that some symbols take in byte 0 (so that a shift can take the whole entry as its
/// count), up to 6 symbols, and their number in byte 7.
pub struct Entries(Box<[u64; 1 << INDEX_BITS]>);

impl Entries {
    /// `next`: the symbols, and the length of their codeword, that the lowest [`INDEX_BITS`] bits start with.
    pub fn new<const N: usize>(next: impl Fn(u64) -> ([u8; N], u32)) -> Self {
        const { assert!(N > 0 && N <= ENTRY_SYMBOLS, "every entry gives something") };
        let entry = |index: u64| {
            let (mut entry, mut used, mut count) = (0, 0, 0);
            while count + N <= ENTRY_SYMBOLS {
                let (symbols, length) = next(index >> used);
                if used + length > INDEX_BITS {
                    break;
                }
                for (k, symbol) in symbols.into_iter().enumerate() {
                    entry |= u64::from(symbol) << (8 + 8 * (count + k));
                }
                used += length;
                count += N;
            }
            entry | u64::from(used) | (count as u64) << 56
        };
        let mut entries = Box::new([0; 1 << INDEX_BITS]);
        entries.iter_mut().zip(0..).for_each(|(slot, index)| *slot = entry(index));
        Entries(entries)
    }

    #[cfg(test)]
    pub fn of(&self, index: u64) -> u64 {
        self.0[index as usize]
    }
}

/// Where a stream stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stand {
    /// Bits that are decoded.
    pub bits: usize,
    /// Symbols that they gave.
    pub symbols: usize,
}

impl Stand {
    /// Whether a load of bits, and the symbols of as many look-ups as it serves for, lie within a stream and an output of so many bytes.
    #[inline(always)]
    fn fits(self, stream: usize, output: usize) -> bool {
        self.bits / 8 + 8 <= stream && output.saturating_sub(self.symbols) >= LOOKUPS * ENTRY_SYMBOLS + 2
    }
}

/// A stream, and where its symbols go.
#[derive(Debug, Default)]
pub struct Lane<'a> {
    pub stream: &'a [u8],
    pub output: &'a mut [u8],
    pub stand: Stand,
}

/// Decodes as much of at most four lanes, from where they stand, as can be done without looking at their ends, those side by side
/// that have not come near their own. `ahead` is asked for meanwhile.
pub fn decode_lanes(entries: &Entries, lanes: &mut [Lane<'_>], ahead: &mut Ahead) {
    // Where symbols are not alike everywhere, streams of as many symbols end far from each other.
    loop {
        let mut open = lanes.iter_mut().filter(|lane| lane.stand.fits(lane.stream.len(), lane.output.len()));
        match (open.next(), open.next(), open.next(), open.next()) {
            (Some(a), Some(b), Some(c), Some(d)) => decode_beside(entries, [a, b, c, d], ahead),
            (Some(a), Some(b), Some(c), None) => decode_beside(entries, [a, b, c], ahead),
            (Some(a), Some(b), None, _) => decode_beside(entries, [a, b], ahead),
            (Some(a), None, ..) => decode_beside(entries, [a], ahead),
            (None, ..) => break,
        }
    }
}

bits! {
    /// Until the first has come near its end.
    fn decode_beside[const K: usize](entries: &Entries, lanes: [&mut Lane<'_>; K], ahead: &mut Ahead) -> () {
        const { assert!(K > 0, "no stream would ever end") };
        let mut lanes = lanes;
        let mut stands = lanes.each_ref().map(|lane| lane.stand);
        let lengths = lanes.each_ref().map(|lane| lane.stream.len());
        let rooms = lanes.each_ref().map(|lane| lane.output.len());
        let sources = lanes.each_ref().map(|lane| lane.stream.as_ptr());
        let targets = lanes.each_mut().map(|lane| lane.output.as_mut_ptr());
        while (0..K).all(|k| stands[k].fits(lengths[k], rooms[k])) {
            ahead.step(LINES_AHEAD);
            // SAFETY: `fits`: the 8 bytes from here on are in the stream.
            let load = |k: usize| unsafe { sources[k].add(stands[k].bits / 8).cast::<u64>().read_unaligned() };
            // Of 57 bits at most 55 are used. The zeros above the mark then tell how many.
            let mut buffers: [u64; K] = std::array::from_fn(|k| u64::from_le(load(k)) >> (stands[k].bits % 8) | 1 << 63);
            let mut symbols = stands.map(|stand| stand.symbols);
            for _ in 0..LOOKUPS {
                for k in 0..K {
                    let entry = entries.0[(buffers[k] & ((1 << INDEX_BITS) - 1)) as usize];
                    buffers[k] >>= entry & 63;
                    // SAFETY: `fits`: no entry gives more than 6 symbols, and 4 have been looked up since at most, so that these 8
                    // bytes are among the 32 left.
                    unsafe { targets[k].add(symbols[k]).cast::<u64>().write_unaligned((entry >> 8).to_le()) };
                    symbols[k] += (entry >> 56) as usize;
                }
            }
            for (stand, (buffer, symbols)) in stands.iter_mut().zip(buffers.into_iter().zip(symbols)) {
                *stand = Stand { bits: stand.bits + buffer.leading_zeros() as usize, symbols };
            }
        }
        lanes.iter_mut().zip(stands).for_each(|(lane, stand)| lane.stand = stand);
    }
}

impl Entries {
    /// Goes on with a lane until what is left of its stream, or of its output, is less than an entry has.
    pub fn decode_end(&self, lane: &mut Lane<'_>) {
        let Stand { bits, symbols } = &mut lane.stand;
        loop {
            let mut word = word_at(lane.stream, *bits);
            for _ in 0..LOOKUPS {
                let entry = self.0[(word & ((1 << INDEX_BITS) - 1)) as usize];
                let (used, count) = ((entry & 63) as usize, (entry >> 56) as usize);
                let slots = &mut lane.output[*symbols..];
                if slots.len() < count || (*bits + used).div_ceil(8) > lane.stream.len() || slots.is_empty() {
                    return;
                }
                let found = (entry >> 8).to_le_bytes();
                match slots.first_chunk_mut() {
                    Some(slots) => *slots = found,
                    None => slots[..count].copy_from_slice(&found[..count]),
                }
                word >>= used;
                *bits += used;
                *symbols += count;
            }
        }
    }
}
