//! Four Huffman streams decoded side by side, several symbols a look-up. No vector instructions, but unchecked reads and writes.

use super::ahead::Ahead;

/// Bits that index the table.
pub const INDEX_BITS: u32 = 11;

/// Symbols that an entry has at most.
pub const ENTRY_SYMBOLS: usize = 7;

/// Look-ups for each load of bits: 5 * 11 <= 57.
const LOOKUPS: usize = 5;

/// Lines of each stretch of [`Ahead`] for each load of bits.
const LINES_AHEAD: usize = 4;

/// By the next [`INDEX_BITS`] bits: up to 7 symbols in the low bytes, the bits that they take in bits 56..60, their number in
/// bits 60..63.
pub type Entries = [u64; 1 << INDEX_BITS];

/// Where a stream stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stand {
    /// Bits that are decoded.
    pub bits: usize,
    /// Symbols that they gave.
    pub symbols: usize,
}

/// Decodes as much of four streams as can be done without looking at their ends.
/// `ahead` is asked for meanwhile.
pub fn decode_four(entries: &Entries, streams: [&[u8]; 4], outputs: [&mut [u8]; 4], ahead: &mut Ahead) -> [Stand; 4] {
    let mut stands = [Stand::default(); 4];
    let lengths = streams.map(<[u8]>::len);
    let rooms: [usize; 4] = std::array::from_fn(|k| outputs[k].len());
    let sources = streams.map(<[u8]>::as_ptr);
    let targets = outputs.map(<[u8]>::as_mut_ptr);
    let fits = |stands: &[Stand; 4]| {
        (0..4).all(|k| stands[k].bits / 8 + 8 <= lengths[k] && stands[k].symbols + LOOKUPS * ENTRY_SYMBOLS < rooms[k])
    };
    while fits(&stands) {
        ahead.step(LINES_AHEAD);
        let mut buffers = [0u64; 4];
        for k in 0..4 {
            // SAFETY: `fits`: the 8 bytes from here on are in the stream.
            let word = unsafe { sources[k].add(stands[k].bits / 8).cast::<u64>().read_unaligned() };
            buffers[k] = u64::from_le(word) >> (stands[k].bits % 8);
        }
        for _ in 0..LOOKUPS {
            for k in 0..4 {
                let entry = entries[(buffers[k] & ((1 << INDEX_BITS) - 1)) as usize];
                // SAFETY: `fits`: at most 4 * 7 symbols have been written since, so these 8 bytes are among the 36 left.
                unsafe { targets[k].add(stands[k].symbols).cast::<u64>().write_unaligned(entry.to_le()) };
                let bits = entry >> 56 & 15;
                buffers[k] >>= bits;
                stands[k].bits += bits as usize;
                stands[k].symbols += (entry >> 60) as usize;
            }
        }
    }
    stands
}
