//! Tokens and run fields -> symbols.

use super::class_run;
use crate::coding::mask::grow;
use crate::coding::packed::unpack_all;
use crate::coding::{FieldReader, Scratch, Tokens};
use crate::error::Parsed;
use crate::huffman::{Decoder, decode_group};
use crate::simd::marks::{mark_from, pick, spread};
use crate::simd::places::place_runs;
use crate::simd::wide;
use crate::wire::Reader;

/// Symbols whose places are numbers of 16 bits.
pub const MOST_PLACES: usize = 1 << 16;

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
            let (run, width) = if class < last { class_run(class, tokens.rho) } else { (1, 0) };
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
    if symbols.len() <= MOST_PLACES {
        let count = read(input, decoder, meanings, symbols.len(), scratch)?;
        place(input, count, symbols, scratch)
    } else {
        let count = read_units(input, decoder, symbols.len(), scratch)?;
        let units = &scratch.units[..count];
        let mut runs = FieldReader::new(input, count_from(units, meanings.long));
        symbols.fill(0);
        if !place_one_by_one(units, meanings, &mut runs, symbols) {
            return Err(input.flaw(PAST_THE_END));
        }
        runs.finish(input)
    }
}

const PAST_THE_END: &str = "a token lies past the end";

fn read_units(input: &mut Reader<'_>, decoder: &Decoder, elements: usize, scratch: &mut Scratch) -> Parsed<usize> {
    let count = input.count()?;
    if count > elements {
        return Err(input.flaw("more tokens than elements"));
    }
    grow(&mut scratch.units, count);
    decode_group(input, decoder, &mut scratch.units[..count], &mut scratch.ahead)?;
    Ok(count)
}

/// Reads the tokens of a chunk of at most [`MOST_PLACES`] elements and tells how many there are. Their runs and symbols are in
/// `scratch` then; some may lie past the end.
pub fn read(
    input: &mut Reader<'_>,
    decoder: &Decoder,
    meanings: &Meanings,
    elements: usize,
    scratch: &mut Scratch,
) -> Parsed<usize> {
    let count = read_units(input, decoder, elements, scratch)?;
    let Scratch { units, gaps, marked, marks, near, read, .. } = scratch;
    let units = &units[..count];
    grow(gaps, count);
    grow(marked, count);
    short_runs(units, meanings.highest, &mut gaps[..count], &mut marked[..count]);
    mark_from(units, meanings.long, marks);
    near.clear();
    pick(units, marks, near);
    if !near.is_empty() {
        read.widths.clear();
        read.widths.extend(near.iter().map(|&unit| meanings.of[usize::from(unit)].width));
        unpack_all(input, &read.widths, &mut read.fields)?;
        grow(&mut read.runs, near.len());
        if !long_runs(&read.widths, &read.fields, &mut read.runs) {
            return Err(input.flaw(PAST_THE_END));
        }
        spread(&read.runs[..near.len()], marks, &mut gaps[..count]);
    }
    Ok(count)
}

/// Writes the symbols that have been read, `count` of them.
fn place(input: &Reader<'_>, count: usize, symbols: &mut [u8], scratch: &Scratch) -> Parsed<()> {
    symbols.fill(0);
    let placed = place_runs(&scratch.gaps[..count], &scratch.marked[..count], symbols);
    placed.then_some(()).ok_or_else(|| input.flaw(PAST_THE_END))
}

/// The runs of the symbols that have been read, and these, where all lie within so many elements.
pub fn apart<'a>(
    input: &Reader<'_>,
    count: usize,
    elements: usize,
    scratch: &'a Scratch,
) -> Parsed<(&'a [u16], &'a [u8])> {
    let runs = &scratch.gaps[..count];
    let fit = sum_of_runs(runs) + count <= elements;
    fit.then_some((runs, &scratch.marked[..count])).ok_or_else(|| input.flaw(PAST_THE_END))
}

/// Run fields, while they are read.
#[derive(Default)]
pub struct RunFields {
    widths: Vec<u8>,
    fields: Vec<u32>,
    runs: Vec<u16>,
}

wide! {
    /// How many of these are at least `least`.
    fn count_from[](units: &[u8], least: u8) -> usize {
        units.chunks(255).map(|some| usize::from(some.iter().map(|&unit| u8::from(unit >= least)).sum::<u8>())).sum()
    }
}

wide! {
    /// The sum of at most 2^16 runs.
    fn sum_of_runs[](runs: &[u16]) -> usize {
        runs.iter().map(|&run| u32::from(run)).sum::<u32>() as usize
    }
}

wide! {
    /// Runs of which all bits below the highest one stand in fields; `false` where one is not below [`MOST_PLACES`].
    fn long_runs[](widths: &[u8], fields: &[u32], runs: &mut [u16]) -> bool {
        let mut all = 0;
        for ((&width, &field), run) in widths.iter().zip(fields).zip(runs) {
            let highest = 1u32 << (width & 31);
            let whole = highest | field & (highest - 1);
            all |= whole;
            *run = whole as u16;
        }
        all < MOST_PLACES as u32
    }
}

wide! {
    /// The runs of tokens as if none were long, and their symbols.
    fn short_runs[](units: &[u8], highest: u8, runs: &mut [u16], symbols: &mut [u8]) -> () {
        // The quotient of any byte: it is too large by less than 1 / 256, and so by less than what is missing to the next. One in 16
        // bits, so that a vector has a multiplication for it; the inverse of 1 has more.
        let inverse = if highest > 1 { u16::MAX / u16::from(highest) + 1 } else { 0 };
        let whole = if highest > 1 { 0 } else { u16::MAX };
        for ((&unit, run), symbol) in units.iter().zip(runs).zip(symbols) {
            let unit = u16::from(unit);
            *run = ((u32::from(unit) * u32::from(inverse)) >> 16) as u16 | unit & whole;
            *symbol = (unit - run.wrapping_mul(u16::from(highest.max(1)))) as u8 + 1;
        }
    }
}

/// For chunks of any length: the twin of [`read`] and [`place`].
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
    use crate::huffman::{Code, encode_group};
    use crate::wire::put_varint;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the tokens are, and whether or not there are enough fields.
        #[test]
        fn together_as_one_by_one(
            highest in 1u8..=15, rho in 0u32..=4, units in prop::collection::vec(prop_oneof![9 => 0u8..20, 1 => any::<u8>()], 0..3000),
            fields in prop::collection::vec(prop_oneof![9 => Just(0u8), 1 => any::<u8>()], 0..3000), length in 0usize..MOST_PLACES,
        ) {
            let code = Code::of_counts(&[1; 256]);
            let meanings = Meanings::new(&Tokens { rho, highest, code: code.clone() });
            let mut stored = Vec::new();
            put_varint(&mut stored, units.len() as u64);
            prop_assert!(encode_group(&units, &code, &mut Vec::new(), &mut stored));
            let start = stored.len();
            stored.extend_from_slice(&fields);

            let mut input = Reader::new(&stored[start..]);
            let mut runs = FieldReader::new(&input, count_from(&units, meanings.long));
            let mut plain = vec![0; length];
            let placed = units.len() <= length
                && place_one_by_one(&units, &meanings, &mut runs, &mut plain)
                && runs.finish(&mut input).is_ok();

            let (mut scratch, mut fast) = (Scratch::default(), vec![0; length]);
            let mut from = Reader::new(&stored);
            let told = decode(&mut from, &Decoder::new(&code), &meanings, &mut fast, &mut scratch);
            prop_assert_eq!(told.is_ok(), placed);
            if placed {
                prop_assert_eq!(from.remaining(), input.remaining());
                prop_assert_eq!(&fast, &plain);
                let (runs, found) = apart(&from, units.len(), length, &scratch).expect("within");
                prop_assert!(runs.len() == found.len() && found.iter().eq(plain.iter().filter(|symbol| **symbol != 0)));
                prop_assert!(apart(&from, units.len(), plain.iter().rposition(|s| *s != 0).unwrap_or(1), &scratch).is_err() || units.is_empty());
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
