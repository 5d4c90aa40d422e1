//! Tokens and run fields -> symbols.

use super::class_run;
use crate::coding::mask::grow;
use crate::coding::{FieldReader, Scratch, Tokens};
use crate::error::Parsed;
use crate::huffman::{Decoder, decode_group};
use crate::simd::marks::{for_each_mark, mark_from};
use crate::simd::places::place_runs;
use crate::simd::wide;
use crate::wire::Reader;

/// Symbols whose places are numbers of 16 bits.
const MOST_PLACES: usize = 1 << 16;

/// What each token stands for.
pub struct Meanings {
    of: Box<[Meaning; 256]>,
    /// K
    highest: u8,
    /// From here on tokens have run fields (which may have no bits).
    long: u8,
}

#[derive(Clone, Copy, Default)]
struct Meaning {
    /// The least run of its class.
    run: u32,
    /// Bits of its run field.
    width: u8,
    symbol: u8,
}

impl Meanings {
    pub fn new(tokens: &Tokens) -> Self {
        let highest = u32::from(tokens.highest).max(1);
        let of_unit = |unit: usize| {
            let class = unit as u32 / highest;
            // Classes past the last that a chunk can have have no codeword.
            let last = (1 << tokens.rho) + 24 - tokens.rho;
            let (run, width) = if class < last { class_run(class, tokens.rho) } else { (0, 0) };
            Meaning { run, width: width as u8, symbol: (unit as u32 % highest) as u8 + 1 }
        };
        // At most 15 << 4.
        let long = (highest << tokens.rho) as u8;
        Meanings { of: Box::new(std::array::from_fn(of_unit)), highest: highest as u8, long }
    }
}

/// Reads the symbols of a chunk.
pub fn decode(
    input: &mut Reader<'_>,
    decoder: &Decoder,
    meanings: &Meanings,
    symbols: &mut [u8],
    scratch: &mut Scratch,
) -> Parsed<()> {
    let count = input.count()?;
    if count > symbols.len() {
        return Err(input.flaw("more tokens than elements"));
    }
    grow(&mut scratch.units, count);
    decode_group(input, decoder, &mut scratch.units[..count], &mut scratch.ahead)?;
    let Scratch { units, gaps, marked, marks, .. } = scratch;
    let units = &units[..count];
    let mut runs = FieldReader::new(input, count_from(units, meanings.long));
    symbols.fill(0);
    let placed = if symbols.len() <= MOST_PLACES {
        grow(gaps, count);
        grow(marked, count);
        let apart = (&mut gaps[..count], &mut marked[..count]);
        place_together(units, meanings, &mut runs, symbols, apart, marks)
    } else {
        place_one_by_one(units, meanings, &mut runs, symbols)
    };
    if !placed {
        return Err(input.flaw("a token lies past the end"));
    }
    runs.finish(input)
}

wide! {
    /// How many of these are at least `least`.
    fn count_from[](units: &[u8], least: u8) -> usize {
        units.chunks(255).map(|some| usize::from(some.iter().map(|&unit| u8::from(unit >= least)).sum::<u8>())).sum()
    }
}

/// Writes the symbols of tokens, the runs of many of which are found at once, the long ones afterwards; `false` where one lies past
/// the end. `apart`: room for the run and the symbol of each.
fn place_together(
    units: &[u8],
    meanings: &Meanings,
    fields: &mut FieldReader<'_>,
    symbols: &mut [u8],
    apart: (&mut [u16], &mut [u8]),
    marks: &mut Vec<u64>,
) -> bool {
    let (runs, found) = apart;
    short_runs(units, meanings.highest, runs, found);
    let mut fits = true;
    mark_from(units, meanings.long, marks);
    for_each_mark(marks, |k| {
        let Meaning { run, width, .. } = meanings.of[usize::from(units[k])];
        let run = u64::from(run) + fields.get_if(true, u32::from(width));
        fits &= run < MOST_PLACES as u64;
        runs[k] = run as u16;
    });
    fits && place_runs(runs, found, symbols)
}

wide! {
    /// The runs of tokens as if none were long, and their symbols.
    fn short_runs[](units: &[u8], highest: u8, runs: &mut [u16], symbols: &mut [u8]) -> () {
        let highest = u16::from(highest.max(1));
        // The quotient of any byte: it is too large by less than 1 / 256, and so by less than what is missing to the next.
        let inverse = u32::from(u16::MAX / highest) + 1;
        for ((&unit, run), symbol) in units.iter().zip(runs).zip(symbols) {
            *run = ((u32::from(unit) * inverse) >> 16) as u16;
            *symbol = (u16::from(unit) - *run * highest) as u8 + 1;
        }
    }
}

/// The twin of [`place_together`], for chunks of any length.
fn place_one_by_one(units: &[u8], meanings: &Meanings, runs: &mut FieldReader<'_>, symbols: &mut [u8]) -> bool {
    let mut at = 0usize;
    for &unit in units {
        let Meaning { run, width, symbol } = meanings.of[usize::from(unit)];
        at += run as usize + runs.get_if(unit >= meanings.long, u32::from(width)) as usize;
        let Some(slot) = symbols.get_mut(at) else { return false };
        *slot = symbol;
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::tokens::split_run;
    use crate::huffman::Code;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the tokens are, and whether or not there are enough fields.
        #[test]
        fn together_as_one_by_one(
            highest in 1u8..=15, rho in 0u32..=4, units in prop::collection::vec(prop_oneof![9 => 0u8..20, 1 => any::<u8>()], 0..3000),
            fields in prop::collection::vec(prop_oneof![9 => Just(0u8), 1 => any::<u8>()], 0..3000), length in 0usize..MOST_PLACES,
        ) {
            let meanings = Meanings::new(&Tokens { rho, highest, code: Code::of_counts(&[1, 1]) });
            let input = Reader::new(&fields);
            let reader = || FieldReader::new(&input, count_from(&units, meanings.long));
            let (mut fast, mut plain) = (vec![0; length], vec![0; length]);
            let mut apart = (vec![0; units.len()], vec![0; units.len()]);
            let apart = (&mut apart.0[..], &mut apart.1[..]);
            let placed = place_together(&units, &meanings, &mut reader(), &mut fast, apart, &mut Vec::new());
            prop_assert_eq!(placed, place_one_by_one(&units, &meanings, &mut reader(), &mut plain));
            if placed {
                prop_assert_eq!(fast, plain);
            }
        }
    }

    /// Up to the longest runs, which only the largest chunks have.
    #[test]
    fn every_class_that_is_written_is_read() {
        for (rho, highest) in (0..=4).flat_map(|rho| [1u8, 3, 7].map(|highest| (rho, highest))) {
            let meanings = Meanings::new(&Tokens { rho, highest, code: Code::of_counts(&[1, 1]) });
            for run in (0..24).flat_map(|octave| [1 << octave, (2 << octave) - 1]).chain([0]) {
                let (class, low, width) = split_run(run, rho);
                let meaning = meanings.of[class as usize * usize::from(highest)];
                assert_eq!((meaning.run + low as u32, u32::from(meaning.width)), (run, width), "{rho} {class}");
            }
        }
    }
}
