//! Token coding: one codeword for a symbol and the zeros before it.

use super::{Scratch, Tokens};
use crate::error::Parsed;
use crate::huffman::{Decoder, decode_group, encode_group};
use crate::wire::{Reader, put_varint};

/// A run of zeros as its class, and its low bits with their width (0 for a class below 2^rho).
#[inline(always)]
pub fn split_run(run: u32, rho: u32) -> (u32, u64, u32) {
    if run >> rho == 0 {
        return (run, 0, 0);
    }
    let octave = 31 - run.leading_zeros();
    ((1 << rho) + octave - rho, u64::from(run - (1 << octave)), octave)
}

/// The least run of a class, and the width of its low bits.
#[inline(always)]
pub fn class_run(class: u32, rho: u32) -> (u32, u32) {
    if class >> rho == 0 {
        return (class, 0);
    }
    let octave = class - (1 << rho) + rho;
    (1 << octave, octave)
}

/// Classes that runs below `elements` need.
pub fn classes(elements: u32, rho: u32) -> u32 {
    if elements == 0 { 0 } else { split_run(elements - 1, rho).0 + 1 }
}

/// Calls `token` with each symbol that is not 0 and the zeros before it.
#[inline(always)]
pub fn for_each_token(symbols: &[u8], mut token: impl FnMut(u32, u8)) {
    let mut after = 0;
    let mut at = |at: usize, symbol: u8| {
        token((at - after) as u32, symbol);
        after = at + 1;
    };
    let (eights, rest) = symbols.as_chunks::<8>();
    for (number, eight) in eights.iter().enumerate() {
        let mut marks = marks(*eight);
        while marks != 0 {
            let i = (marks.trailing_zeros() / 8) as usize;
            at(8 * number + i, eight[i % 8]);
            marks &= marks - 1;
        }
    }
    for (i, &symbol) in rest.iter().enumerate().filter(|(_, symbol)| **symbol != 0) {
        at(8 * eights.len() + i, symbol);
    }
}

/// The highest bit of every byte that is not 0, for bytes below 128.
#[inline(always)]
pub fn marks(eight: [u8; 8]) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    (u64::from_le_bytes(eight) + LOW) & !LOW
}

pub fn encode(symbols: &[u8], tokens: &Tokens, scratch: &mut Scratch, out: &mut Vec<u8>) {
    let Scratch { units, streams, runs } = scratch;
    runs.clear();
    if units.len() < symbols.len() {
        units.resize(symbols.len(), 0);
    }
    let (rho, highest) = (tokens.rho, u32::from(tokens.highest));
    let mut count = 0;
    for_each_token(symbols, |run, symbol| {
        let (class, low, width) = split_run(run, rho);
        units[count] = (class * highest) as u8 + symbol - 1;
        count += 1;
        if width > 0 {
            runs.push(low, width);
        }
    });
    put_varint(out, count as u64);
    encode_group(&units[..count], &tokens.code, streams, out);
    runs.write(out);
}

/// What each token stands for.
pub struct Meanings(Box<[Meaning; 256]>);

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
            let (run, width) = if class < 32 { class_run(class, tokens.rho) } else { (0, 0) };
            Meaning { run, width: width as u8, symbol: (unit as u32 % highest) as u8 + 1 }
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
    let Scratch { units, runs, .. } = scratch;
    if units.len() < count {
        units.resize(count, 0);
    }
    let units = &mut units[..count];
    decode_group(input, decoder, units)?;
    runs.clear();
    for meaning in units.iter().map(|&unit| meanings.0[usize::from(unit)]).filter(|meaning| meaning.width > 0) {
        runs.expect(u32::from(meaning.width));
    }
    runs.read(input)?;
    symbols.fill(0);
    let mut low = runs.values().iter();
    let mut at = 0usize;
    for &unit in units.iter() {
        let meaning = meanings.0[usize::from(unit)];
        at += meaning.run as usize;
        if meaning.width > 0 {
            at += low.next().map_or(0, |&low| low as usize);
        }
        let slot = symbols.get_mut(at).ok_or_else(|| input.flaw("a token lies past the end"))?;
        *slot = meaning.symbol;
        at += 1;
    }
    Ok(())
}
