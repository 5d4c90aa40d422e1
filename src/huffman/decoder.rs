//! The tables that decode a code: one codeword a look-up, or up to six symbols.

use super::{Code, MAX_LENGTH};
use crate::simd::streams::Entries;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Finds the symbols that a stream goes on with, of which a codeword stands for `N`.
pub struct Decoder<const N: usize = 1> {
    /// Indexed by the next [`MAX_LENGTH`] bits: what the code has a word for, and the word's length in the high byte.
    single: Vec<u16>,
    /// What that stands for.
    meanings: Box<[[u8; N]; 256]>,
    /// Made when there have been enough codewords to repay it.
    several: OnceLock<Entries>,
    /// Codewords that it would have served for.
    wanted: AtomicUsize,
}

/// So many codewords repay the making of the table with several symbols an entry.
const SEVERAL_FROM: usize = 8192;

impl Decoder {
    pub fn new(code: &Code) -> Self {
        Decoder::of_meanings(code, Box::new(std::array::from_fn(|unit| [unit as u8])))
    }
}

impl<const N: usize> Decoder<N> {
    /// `meanings`: the symbols that each of what the code has words for stands for.
    pub fn of_meanings(code: &Code, meanings: Box<[[u8; N]; 256]>) -> Self {
        let mut single = vec![0; 1 << MAX_LENGTH];
        for (symbol, (&word, &length)) in code.words().iter().zip(code.lengths()).enumerate() {
            if length > 0 {
                for entry in single.iter_mut().skip(usize::from(word)).step_by(1 << length) {
                    *entry = u16::from(length) << 8 | symbol as u16;
                }
            }
        }
        Decoder { single, meanings, several: OnceLock::new(), wanted: AtomicUsize::new(0) }
    }

    /// Symbols and length of the codeword that the lowest bits of `bits` start with.
    #[inline(always)]
    pub fn symbols(&self, bits: u64) -> ([u8; N], u32) {
        let entry = self.single[(bits & ((1 << MAX_LENGTH) - 1)) as usize];
        (self.meanings[usize::from(entry as u8)], u32::from(entry >> 8))
    }

    /// The table of several symbols a look-up, for so many codewords more; `None` where it does not pay yet.
    pub fn entries(&self, words: usize) -> Option<&Entries> {
        if let Some(entries) = self.several.get() {
            return Some(entries);
        }
        // A race only makes the table a little sooner or later.
        let wanted = self.wanted.fetch_add(words, Ordering::Relaxed) + words;
        (wanted >= SEVERAL_FROM).then(|| self.several.get_or_init(|| Entries::new(|bits| self.symbols(bits))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_entry_is_its_symbols(counts in prop::collection::vec(0u64..1000, 2..=256), index in 0u64..2048) {
            let code = Code::of_counts(&counts);
            same(&Decoder::new(&code), index);
            same(&Decoder::of_meanings(&code, Box::new(std::array::from_fn(|unit| [unit as u8, !unit as u8]))), index);
        }
    }

    fn same<const N: usize>(decoder: &Decoder<N>, index: u64) {
        let entry = decoder.entries(SEVERAL_FROM).expect("repaid").of(index);
        let (count, used) = (entry >> 56, entry & 255);
        assert!(count >= 1 && (count as usize).is_multiple_of(N) && used <= 11);
        let (mut bits, mut k) = (index, 0);
        while k < count {
            let (symbols, length) = decoder.symbols(bits);
            for symbol in symbols {
                assert_eq!(symbol, (entry >> (8 + 8 * k)) as u8);
                k += 1;
            }
            bits >>= length;
        }
    }
}
