//! Tables in the shape that fast loops want, and where those loops do not apply.
//!
//! A fast loop takes a table from here, does whole groups of entries, and hands what is unusual back to the plain loop.

use crate::delta::Bucket;

/// Entries that fast loops work on together: two stripes of a content sum of f32.
pub const GROUP: usize = 32;

/// Buckets of f32 values that lie within 15 exponents.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueTable {
    /// The largest promoted exponent field. Entries above it are unusual.
    pub top: u8,
    /// Symbols of positive and of negative deltas with exponent field `top - i`; the last is 0, for all below.
    pub positive: [u8; 16],
    pub negative: [u8; 16],
    /// By symbol; that of 0 is -0.0, which leaves every base as it is when added.
    pub representatives: [f32; 16],
}

impl ValueTable {
    /// Below, a delta of zero would seem to have a bucket.
    const LEAST_TOP: u16 = 15;

    /// `None` where the buckets do not fit. `kept` and `representatives` are in the order of the symbols.
    pub fn new(kept: &[Bucket], representatives: impl Iterator<Item = f32>) -> Option<Self> {
        let top = kept.iter().map(|bucket| bucket.exponent).max().unwrap_or(127);
        if !(Self::LEAST_TOP..255).contains(&top) {
            return None;
        }
        let mut table =
            ValueTable { top: top as u8, positive: [0; 16], negative: [0; 16], representatives: [-0.0; 16] };
        for ((symbol, bucket), representative) in (1u8..).zip(kept).zip(representatives) {
            let below = usize::from(top - bucket.exponent);
            let signed = if bucket.negative { &mut table.negative } else { &mut table.positive };
            *signed.get_mut(below).filter(|_| below < 15)? = symbol;
            table.representatives[usize::from(symbol)] = representative;
        }
        Some(table)
    }
}

/// A Huffman code of at most 7 bits over at most 16 symbols: codewords (bit-reversed, as they stand in a stream) and lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShortCode {
    pub words: [u8; 16],
    pub lengths: [u8; 16],
}

impl ShortCode {
    /// `None` where the code is too long or too large.
    pub fn new(words: &[u16], lengths: &[u8]) -> Option<Self> {
        if lengths.len() > 16 || lengths.iter().any(|length| *length > 7) {
            return None;
        }
        let mut code = ShortCode { words: [0; 16], lengths: [0; 16] };
        for (symbol, (&word, &length)) in words.iter().zip(lengths).enumerate() {
            (code.words[symbol], code.lengths[symbol]) = (word as u8, length);
        }
        Some(code)
    }
}

/// Bits on their way to a buffer: fewer than 8 between calls.
#[derive(Debug, Default, Clone, Copy)]
pub struct Pending {
    pub bits: u64,
    pub count: u32,
}
