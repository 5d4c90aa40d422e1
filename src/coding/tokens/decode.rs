//! Tokens and run fields -> symbols.

use super::class_run;
use crate::coding::{FieldReader, Scratch, Tokens};
use crate::error::Parsed;
use crate::huffman::{Decoder, decode_group};
use crate::simd::wide;
use crate::wire::Reader;

/// What each token stands for.
pub struct Meanings(Box<[Meaning; 256]>);

#[derive(Clone, Copy, Default)]
struct Meaning {
    /// The least run of its class.
    run: u32,
    /// Bits of its run field.
    width: u8,
    /// 1 if it has a run field (which may have no bits), else 0.
    fields: u8,
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
            let fields = u8::from(class >> tokens.rho != 0);
            Meaning { run, width: width as u8, fields, symbol: (unit as u32 % highest) as u8 + 1 }
        };
        Meanings(Box::new(std::array::from_fn(of_unit)))
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
    let units = &mut scratch.units;
    if units.len() < count {
        units.resize(count, 0);
    }
    let units = &mut units[..count];
    decode_group(input, decoder, units)?;
    let fields = units.iter().map(|&unit| usize::from(meanings.0[usize::from(unit)].fields)).sum();
    let mut runs = FieldReader::new(input, fields);
    symbols.fill(0);
    if !place_tokens(units, meanings, 8 * fields < count, &mut runs, symbols) {
        return Err(input.flaw("a token lies past the end"));
    }
    runs.finish(input)
}

wide! {
    /// Writes the symbols of tokens; `false` where one lies past the end. `few_long`: few have run fields.
    fn place_tokens['a](
        units: &[u8],
        meanings: &Meanings,
        few_long: bool,
        runs: &mut FieldReader<'a>,
        symbols: &mut [u8],
    ) -> bool {
        let mut at = 0usize;
        for &unit in units {
            let meaning = meanings.0[usize::from(unit)];
            at += meaning.run as usize;
            if !few_long {
                at += runs.get_if(meaning.fields != 0, u32::from(meaning.width)) as usize;
            } else if meaning.fields != 0 {
                at += runs.get_if(true, u32::from(meaning.width)) as usize;
            }
            let Some(slot) = symbols.get_mut(at) else { return false };
            *slot = meaning.symbol;
            at += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::tokens::split_run;
    use crate::huffman::Code;

    /// Up to the longest runs, which only the largest chunks have.
    #[test]
    fn every_class_that_is_written_is_read() {
        for (rho, highest) in (0..=4).flat_map(|rho| [1u8, 3, 7].map(|highest| (rho, highest))) {
            let meanings = Meanings::new(&Tokens { rho, highest, code: Code::of_counts(&[1, 1]) });
            for run in (0..24).flat_map(|octave| [1 << octave, (2 << octave) - 1]).chain([0]) {
                let (class, low, width) = split_run(run, rho);
                let meaning = meanings.0[class as usize * usize::from(highest)];
                assert_eq!((meaning.run + low as u32, u32::from(meaning.width)), (run, width), "{rho} {class}");
            }
        }
    }
}
