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
        Decoder { single: table(code), meanings, several: OnceLock::new(), wanted: AtomicUsize::new(0) }
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

/// By length: the table of what begins with shorter words is doubled, and gets the words of this length.
fn table(code: &Code) -> Vec<u16> {
    let mut starts = [0usize; MAX_LENGTH as usize + 2];
    code.lengths().iter().for_each(|&length| starts[usize::from(length) + 1] += 1);
    (1..starts.len()).for_each(|length| starts[length] += starts[length - 1]);
    let (mut by_length, mut next) = ([0u8; 256], starts);
    for (symbol, &length) in code.lengths().iter().enumerate() {
        let place = &mut next[usize::from(length)];
        by_length[*place] = symbol as u8;
        *place += 1;
    }
    let mut table = vec![0; 1 << MAX_LENGTH];
    for length in 1..=usize::from(MAX_LENGTH) {
        let half = 1 << (length - 1);
        table.copy_within(..half, half);
        for &symbol in &by_length[starts[length]..starts[length + 1]] {
            table[usize::from(code.words()[usize::from(symbol)])] = (length as u16) << 8 | u16::from(symbol);
        }
    }
    table
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
