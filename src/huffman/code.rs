//! A code: lengths and the canonical codewords.

use super::MAX_LENGTH;
use crate::float::log2;
use crate::kernels::{ByteCode, ShortCode};
use crate::simd::{self, highest_of};
use std::sync::{Arc, OnceLock};

/// A code of short words may take more bits than the best one, by this part.
const QUICKER_WORTH: u64 = 256;

/// A complete canonical code. Codewords are kept bit-reversed, as they stand in a stream.
#[derive(Debug, Clone)]
pub struct Code(Arc<Tables>);

#[derive(Debug)]
struct Tables {
    lengths: Vec<u8>,
    words: Vec<u16>,
    /// By symbol: the word, and its length from bit 16 on.
    packed: [u32; 256],
    short: Option<ShortCode>,
    /// Where it serves; made when something is encoded.
    bytes: OnceLock<Option<Box<ByteCode>>>,
}

/// The lengths tell all.
impl PartialEq for Code {
    fn eq(&self, other: &Self) -> bool {
        self.lengths() == other.lengths()
    }
}

impl Eq for Code {}

impl Code {
    /// The code of these lengths, or `None` unless at least two symbols are used, none is longer than [`MAX_LENGTH`], and the
    /// Kraft sum is exactly one.
    pub fn of_lengths(lengths: &[u8]) -> Option<Self> {
        let mut used = [0u32; MAX_LENGTH as usize + 1];
        for &length in lengths {
            *used.get_mut(usize::from(length))? += 1;
        }
        used[0] = 0;
        let kraft: u64 = (1..=MAX_LENGTH).map(|l| u64::from(used[usize::from(l)]) << (MAX_LENGTH - l)).sum();
        if kraft != 1 << MAX_LENGTH || used.iter().sum::<u32>() < 2 {
            return None;
        }
        let mut next = [0u32; MAX_LENGTH as usize + 2];
        for length in 1..=usize::from(MAX_LENGTH) {
            next[length + 1] = (next[length] + used[length]) << 1;
        }
        let words: Vec<u16> = lengths.iter().map(|&length| Self::next_word(length, &mut next)).collect();
        if lengths.len() > 256 {
            return None;
        }
        let mut packed = [0; 256];
        for (slot, (&word, &length)) in packed.iter_mut().zip(words.iter().zip(lengths)) {
            *slot = u32::from(word) | u32::from(length) << 16;
        }
        let short = ShortCode::new(&words, lengths);
        let lengths = lengths.to_vec();
        Some(Code(Arc::new(Tables { lengths, words, packed, short, bytes: OnceLock::new() })))
    }

    fn next_word(length: u8, next: &mut [u32]) -> u16 {
        if length == 0 {
            return 0;
        }
        let word = next[usize::from(length)] as u16;
        next[usize::from(length)] += 1;
        word.reverse_bits() >> (16 - length)
    }

    /// The optimal code for these counts, as [`best_lengths`] tells.
    pub fn of_counts(counts: &[u64]) -> Self {
        Code::of_lengths(&best_lengths(counts, MAX_LENGTH)).expect("package-merge gives complete codes")
    }

    pub fn lengths(&self) -> &[u8] {
        &self.0.lengths
    }

    /// The code for the vector encoder, if it is short enough.
    pub fn short(&self) -> Option<&ShortCode> {
        self.0.short.as_ref()
    }

    /// The code for the vector encoder of any symbols, where there is one and the code is not short.
    pub fn bytes(&self) -> Option<&ByteCode> {
        let serves = self.0.short.is_none() && simd::encodes_bytes();
        let make = || serves.then(|| Box::new(ByteCode::new(self.words(), self.lengths())));
        self.0.bytes.get_or_init(make).as_deref()
    }

    /// The bit-reversed codewords.
    pub fn words(&self) -> &[u16] {
        &self.0.words
    }

    /// Whether all of these have a codeword.
    pub fn covers(&self, symbols: &[u8]) -> bool {
        if self.0.lengths.iter().all(|length| *length > 0) {
            return usize::from(highest_of(symbols)) < self.0.lengths.len();
        }
        let mut seen = [false; 256];
        symbols.iter().for_each(|symbol| seen[usize::from(*symbol)] = true);
        seen.iter().zip(&self.0.packed).all(|(seen, packed)| !seen || *packed != 0)
    }

    /// The bit-reversed codeword and its length.
    #[inline(always)]
    pub fn word(&self, symbol: u8) -> (u64, u32) {
        let packed = self.0.packed[usize::from(symbol)];
        (u64::from(packed & 0xffff), packed >> 16)
    }
}

/// The lengths of the optimal code for these counts with none above `limit`; symbols that do not occur have none. If fewer than
/// two occur, the lowest others join them, so that the code is complete. There must be at least two symbols.
pub fn best_lengths(counts: &[u64], limit: u8) -> Vec<u8> {
    let mut lengths = vec![0; counts.len()];
    let missing = 2usize.saturating_sub(counts.iter().filter(|count| **count > 0).count());
    if missing == 0 {
        super::code_lengths(counts, limit, &mut lengths);
        return lengths;
    }
    let mut counts = counts.to_vec();
    counts.iter_mut().filter(|count| **count == 0).take(missing).for_each(|count| *count = 1);
    super::code_lengths(&counts, limit, &mut lengths);
    lengths
}

/// The lengths of the optimal code, or of the optimal one of those that the vector encoder can take, where that costs no more
/// than 1 bit in [`QUICKER_WORTH`] of what there is: the codewords and `beside` bits.
pub fn quick_lengths(counts: &[u64], beside: u64) -> Vec<u8> {
    let best = best_lengths(counts, MAX_LENGTH);
    if counts.len() > ShortCode::SYMBOLS || best.iter().all(|length| *length <= ShortCode::LONGEST) {
        return best;
    }
    let short = best_lengths(counts, ShortCode::LONGEST);
    let (bits, of_short) = (coded_bits(counts, &best), coded_bits(counts, &short));
    if of_short - bits <= (bits + beside) / QUICKER_WORTH { short } else { best }
}

/// Bits that these counts of symbols take under a code of these lengths.
pub fn coded_bits(counts: &[u64], lengths: &[u8]) -> u64 {
    counts.iter().zip(lengths).map(|(count, &length)| count * u64::from(length)).sum()
}

/// A count times its logarithm; of a count of 0, too, this is 0.
const fn weighted(count: u64) -> f64 {
    count as f64 * log2(if count == 0 { 1.0 } else { count as f64 })
}

/// Of the counts of small tensors.
static WEIGHTED: [f64; 256] = {
    let mut table = [0.0; 256];
    let mut count = 0;
    while count < 256 {
        table[count] = weighted(count as u64);
        count += 1;
    }
    table
};

/// Bits that no code for these counts takes less than: Shannon's entropy, rounded down.
pub fn least_bits(counts: &[u64]) -> u64 {
    let looked_up = |count: u64| WEIGHTED.get(count as usize).copied().unwrap_or_else(|| weighted(count));
    let total: u64 = counts.iter().sum();
    let known: f64 = counts.iter().map(|count| looked_up(*count)).sum();
    // The logarithm is not exact.
    let slack = 1.0 + 1e-6 * total as f64;
    (looked_up(total) - known - slack) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::huffman::Decoder;

    #[test]
    fn codewords_rise_by_length_then_symbol() {
        let code = Code::of_lengths(&[3, 1, 0, 3, 2]).expect("complete");
        let plain: Vec<String> = [1, 4, 0, 3]
            .map(|s| {
                let (word, length) = code.word(s);
                (0..length).map(|k| if word >> k & 1 == 1 { '1' } else { '0' }).collect()
            })
            .to_vec();
        assert_eq!(plain, ["0", "10", "110", "111"]);
    }

    #[test]
    fn incomplete_and_oversubscribed_codes_are_refused() {
        for lengths in [&[][..], &[1], &[0, 0], &[1, 2], &[1, 1, 1], &[12, 1], &[2, 2, 2]] {
            assert_eq!(Code::of_lengths(lengths), None, "{lengths:?}");
        }
    }

    proptest! {
        #[test]
        fn no_code_takes_less_than_the_least(
            counts in prop::collection::vec(prop_oneof![Just(0), 1u64..10, (0u32..40).prop_map(|s| 1 << s)], 2..=256),
        ) {
            let bits = coded_bits(&counts, &best_lengths(&counts, MAX_LENGTH));
            let least = least_bits(&counts);
            prop_assert!(least <= bits);
            // Huffman's codes take less than a bit more for each (Gallager, 1978), if their lengths are not limited.
            let free = coded_bits(&counts, &best_lengths(&counts, 40));
            let total: u64 = counts.iter().sum();
            prop_assert!(free <= least + 3 + total + total / 500_000);
        }

        #[test]
        fn the_table_finds_every_codeword(counts in prop::collection::vec(0u64..1000, 2..=256), junk: u64) {
            let code = Code::of_counts(&counts);
            let decoder = Decoder::new(&code);
            for symbol in 0..counts.len() {
                let (word, length) = code.word(symbol as u8);
                if length > 0 {
                    prop_assert_eq!(decoder.symbols(word | junk << length), ([symbol as u8], length));
                }
            }
        }
    }
}
