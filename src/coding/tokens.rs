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
    for (at, &symbol) in symbols.iter().enumerate() {
        if symbol != 0 {
            token((at - after) as u32, symbol);
            after = at + 1;
        }
    }
}

pub fn encode(symbols: &[u8], tokens: &Tokens, scratch: &mut Scratch, out: &mut Vec<u8>) {
    let Scratch { units, streams, runs } = scratch;
    units.clear();
    runs.clear();
    for_each_token(symbols, |run, symbol| {
        let (class, low, width) = split_run(run, tokens.rho);
        units.push((class * u32::from(tokens.highest)) as u8 + symbol - 1);
        if class >> tokens.rho != 0 {
            runs.push(low, width);
        }
    });
    put_varint(out, units.len() as u64);
    encode_group(units, &tokens.code, streams, out);
    runs.write(out);
}

/// Reads the tokens of a chunk of `elements`, with their run fields.
pub fn decode(
    input: &mut Reader<'_>,
    decoder: &Decoder,
    tokens: &Tokens,
    elements: usize,
    scratch: &mut Scratch,
) -> Parsed<()> {
    let count = input.count()?;
    if count > elements {
        return Err(input.flaw("more tokens than elements"));
    }
    let Scratch { units, runs, .. } = scratch;
    units.clear();
    units.resize(count, 0);
    decode_group(input, decoder, units)?;
    let highest = u32::from(tokens.highest);
    runs.clear();
    for &unit in units.iter() {
        let class = u32::from(unit) / highest;
        if class >> tokens.rho != 0 {
            runs.expect(class_run(class, tokens.rho).1);
        }
    }
    runs.read(input)
}

/// Places the tokens that [`decode`] has left in `scratch`, once its run fields are read.
pub fn place(input: &Reader<'_>, tokens: &Tokens, symbols: &mut [u8], scratch: &Scratch) -> Parsed<()> {
    symbols.fill(0);
    let highest = u32::from(tokens.highest);
    let mut low = scratch.runs.values().iter();
    let mut at = 0usize;
    for &unit in &scratch.units {
        let (class, symbol) = (u32::from(unit) / highest, u32::from(unit) % highest + 1);
        let (mut run, _) = class_run(class, tokens.rho);
        if class >> tokens.rho != 0 {
            run += low.next().map_or(0, |&low| low as u32);
        }
        at += run as usize;
        let slot = symbols.get_mut(at).ok_or_else(|| input.flaw("a token lies past the end"))?;
        *slot = symbol as u8;
        at += 1;
    }
    Ok(())
}
