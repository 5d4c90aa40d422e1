//! Pair coding: a codeword for every two symbols.

use super::Scratch;
use super::mask::grow;
use crate::huffman::{Code, encode_group};
use crate::simd::{highest_of, wide};
use crate::sink::Sink;

/// The pair code of a record: the unit of two symbols is the first + (K + 1) * the second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pairs {
    /// The highest symbol, K.
    pub highest: u8,
    pub code: Code,
}

impl Pairs {
    /// The units that there are for the highest symbol K: at most 256.
    pub fn units(highest: u8) -> usize {
        let radix = usize::from(highest) + 1;
        radix * radix
    }

    /// What each unit stands for.
    pub fn meanings(&self) -> Box<[[u8; 2]; 256]> {
        let radix = u16::from(self.highest) + 1;
        Box::new(std::array::from_fn(|unit| [(unit as u16 % radix) as u8, (unit as u16 / radix) as u8]))
    }
}

/// Appends the symbols of a chunk. The last of an odd number is paired with 0.
pub fn encode(symbols: &[u8], pairs: &Pairs, scratch: &mut Scratch, out: &mut dyn Sink) {
    let Scratch { units, streams, unfit, .. } = scratch;
    let count = symbols.len().div_ceil(2);
    grow(units, count);
    join(symbols, pairs.highest, &mut units[..count]);
    *unfit |= !encode_group(&units[..count], &pairs.code, streams, out) || highest_of(symbols) > pairs.highest;
}

wide! {
    fn join[](symbols: &[u8], highest: u8, units: &mut [u8]) -> () {
        let radix = u16::from(highest) + 1;
        let (pairs, rest) = symbols.as_chunks::<2>();
        for (unit, pair) in units.iter_mut().zip(pairs) {
            // As a number of 16 bits: so it is a multiplication of vectors.
            let both = u16::from_le_bytes(*pair);
            *unit = (both & 255).wrapping_add((both >> 8).wrapping_mul(radix)) as u8;
        }
        if let (Some(last), Some(symbol)) = (units.last_mut(), rest.first()) {
            *last = *symbol;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn units_mean_their_symbols((highest, mut symbols) in (1u8..=15).prop_flat_map(|k| (Just(k), prop::collection::vec(0..=k, 0..300)))) {
            let pairs = Pairs { highest, code: Code::of_counts(&vec![1; Pairs::units(highest)]) };
            let meanings = pairs.meanings();
            let mut units = vec![0; symbols.len().div_ceil(2)];
            join(&symbols, highest, &mut units);
            let meant: Vec<u8> = units.iter().flat_map(|unit| meanings[usize::from(*unit)]).collect();
            symbols.resize(meant.len(), 0);
            prop_assert_eq!(meant, symbols);
        }
    }
}
