//! The tables that decode a code: one symbol a look-up, or up to six.

use super::{Code, MAX_LENGTH};
use crate::simd::streams::Entries;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Finds the symbols that a stream goes on with.
pub struct Decoder {
    /// Indexed by the next [`MAX_LENGTH`] bits: symbol, and its length in the high byte.
    single: Vec<u16>,
    /// Made when there have been enough symbols to repay it.
    several: OnceLock<Entries>,
    /// Symbols that it would have served for.
    wanted: AtomicUsize,
}

/// So many symbols repay the making of the table with several symbols an entry.
const SEVERAL_FROM: usize = 8192;

impl Decoder {
    pub fn new(code: &Code) -> Self {
        let mut single = vec![0; 1 << MAX_LENGTH];
        for (symbol, (&word, &length)) in code.words().iter().zip(code.lengths()).enumerate() {
            if length > 0 {
                for entry in single.iter_mut().skip(usize::from(word)).step_by(1 << length) {
                    *entry = u16::from(length) << 8 | symbol as u16;
                }
            }
        }
        Decoder { single, several: OnceLock::new(), wanted: AtomicUsize::new(0) }
    }

    /// Symbol and length of the code that the lowest bits of `bits` start with.
    #[inline(always)]
    pub fn symbol(&self, bits: u64) -> (u8, u32) {
        let entry = self.single[(bits & ((1 << MAX_LENGTH) - 1)) as usize];
        (entry as u8, u32::from(entry >> 8))
    }

    /// The table of several symbols a look-up, for `symbols` more; `None` where it does not pay yet.
    pub fn entries(&self, symbols: usize) -> Option<&Entries> {
        if let Some(entries) = self.several.get() {
            return Some(entries);
        }
        // A race only makes the table a little sooner or later.
        let wanted = self.wanted.fetch_add(symbols, Ordering::Relaxed) + symbols;
        (wanted >= SEVERAL_FROM).then(|| self.several.get_or_init(|| Entries::new(|bits| self.symbol(bits))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_entry_is_its_symbols(counts in prop::collection::vec(0u64..1000, 2..=256), index in 0u64..2048) {
            let decoder = Decoder::new(&Code::of_counts(&counts));
            let entry = decoder.entries(SEVERAL_FROM).expect("repaid").of(index);
            let (count, used) = (entry >> 56, entry & 255);
            prop_assert!(count >= 1 && used <= 11);
            let mut bits = index;
            for k in 0..count {
                let (symbol, length) = decoder.symbol(bits);
                prop_assert_eq!(symbol, (entry >> (8 + 8 * k)) as u8);
                bits >>= length;
            }
        }
    }
}
