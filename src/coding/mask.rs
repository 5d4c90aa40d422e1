//! Mask coding: which elements have a symbol, eight to a byte, then the symbols.

use super::Scratch;
use super::tokens::mask8;
use crate::error::Parsed;
use crate::huffman::{Code, Decoder, decode_group, encode_group};
use crate::wire::Reader;

/// The mask byte of up to eight symbols.
#[inline(always)]
pub fn mask_byte(symbols: &[u8]) -> u8 {
    match <[u8; 8]>::try_from(symbols) {
        Ok(eight) => mask8(eight),
        Err(_) => symbols.iter().enumerate().fold(0, |byte, (i, &symbol)| byte | u8::from(symbol != 0) << i),
    }
}

pub fn encode(symbols: &[u8], masks: &Code, code: Option<&Code>, scratch: &mut Scratch, out: &mut Vec<u8>) {
    scratch.units.clear();
    scratch.units.extend(symbols.chunks(8).map(mask_byte));
    encode_group(&scratch.units, masks, &mut scratch.streams, out);
    if let Some(code) = code {
        scratch.units.clear();
        scratch.units.extend(symbols.iter().filter(|symbol| **symbol != 0).map(|symbol| symbol - 1));
        encode_group(&scratch.units, code, &mut scratch.streams, out);
    }
}

pub fn decode(
    input: &mut Reader<'_>,
    masks: &Decoder,
    code: Option<&Decoder>,
    symbols: &mut [u8],
    scratch: &mut Scratch,
) -> Parsed<()> {
    let units = &mut scratch.units;
    units.clear();
    units.resize(symbols.len().div_ceil(8), 0);
    decode_group(input, masks, units)?;
    let past_the_end = symbols.len() % 8;
    if past_the_end > 0 && units.last().is_some_and(|last| last >> past_the_end != 0) {
        return Err(input.flaw("a mask marks elements past the end"));
    }
    for (mask, group) in units.iter().zip(symbols.chunks_mut(8)) {
        group.iter_mut().enumerate().for_each(|(i, symbol)| *symbol = mask >> i & 1);
    }
    let Some(code) = code else { return Ok(()) };
    let marked = units.iter().map(|mask| mask.count_ones() as usize).sum();
    units.clear();
    units.resize(marked, 0);
    decode_group(input, code, units)?;
    let marked = symbols.iter_mut().filter(|symbol| **symbol != 0);
    marked.zip(units).for_each(|(symbol, unit)| *symbol = *unit + 1);
    Ok(())
}
