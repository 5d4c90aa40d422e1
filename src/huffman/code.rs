//! A code: lengths, the canonical codewords, and the table that decodes them.

use super::MAX_LENGTH;

/// A complete canonical code. Codewords are kept bit-reversed, as they stand in a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    lengths: Vec<u8>,
    words: Vec<u16>,
}

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
        let words = lengths.iter().map(|&length| Self::next_word(length, &mut next)).collect();
        Some(Code { lengths: lengths.to_vec(), words })
    }

    fn next_word(length: u8, next: &mut [u32]) -> u16 {
        if length == 0 {
            return 0;
        }
        let word = next[usize::from(length)] as u16;
        next[usize::from(length)] += 1;
        word.reverse_bits() >> (16 - length)
    }

    /// The optimal code for these counts; symbols that do not occur have none. If fewer than two occur, the lowest others join
    /// them, so that the code is complete. There must be at least two symbols.
    pub fn of_counts(counts: &[u64]) -> Self {
        let mut counts = counts.to_vec();
        let missing = 2usize.saturating_sub(counts.iter().filter(|count| **count > 0).count());
        for count in counts.iter_mut().filter(|count| **count == 0).take(missing) {
            *count = 1;
        }
        let mut lengths = vec![0; counts.len()];
        super::code_lengths(&counts, MAX_LENGTH, &mut lengths);
        let code = Code::of_lengths(&lengths);
        debug_assert!(code.is_some());
        code.unwrap_or(Code { lengths: Vec::new(), words: Vec::new() })
    }

    pub fn lengths(&self) -> &[u8] {
        &self.lengths
    }

    /// The bit-reversed codeword and its length.
    #[inline(always)]
    pub fn word(&self, symbol: u8) -> (u64, u32) {
        let symbol = usize::from(symbol);
        (u64::from(self.words[symbol]), u32::from(self.lengths[symbol]))
    }

    /// Bits that these counts of symbols take.
    pub fn bits(&self, counts: &[u64]) -> u64 {
        counts.iter().zip(&self.lengths).map(|(count, &length)| count * u64::from(length)).sum()
    }
}

/// Finds the symbol that a stream goes on with.
pub struct Decoder {
    /// Indexed by the next [`MAX_LENGTH`] bits: symbol, and its length in the high byte.
    entries: Vec<u16>,
}

impl Decoder {
    pub fn new(code: &Code) -> Self {
        let mut entries = vec![0; 1 << MAX_LENGTH];
        for (symbol, (&word, &length)) in code.words.iter().zip(&code.lengths).enumerate() {
            if length > 0 {
                for entry in entries.iter_mut().skip(usize::from(word)).step_by(1 << length) {
                    *entry = u16::from(length) << 8 | symbol as u16;
                }
            }
        }
        Decoder { entries }
    }

    /// Symbol and length of the code that the lowest bits of `bits` start with.
    #[inline(always)]
    pub fn symbol(&self, bits: u64) -> (u8, u32) {
        let entry = self.entries[(bits & ((1 << MAX_LENGTH) - 1)) as usize];
        (entry as u8, u32::from(entry >> 8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        fn the_table_finds_every_codeword(counts in prop::collection::vec(0u64..1000, 2..=256), junk: u64) {
            let code = Code::of_counts(&counts);
            let decoder = Decoder::new(&code);
            for symbol in 0..counts.len() {
                let (word, length) = code.word(symbol as u8);
                if length > 0 {
                    prop_assert_eq!(decoder.symbol(word | junk << length), (symbol as u8, length));
                }
            }
        }
    }
}
