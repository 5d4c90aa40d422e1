//! Mask coding: which elements have a symbol, eight to a byte, then the symbols.

use super::Scratch;
use super::tokens::mask8;
use crate::error::Parsed;
use crate::huffman::{Code, Decoder, decode_group, encode_group};
use crate::simd::SLACK;
use crate::simd::highest_of;
#[cfg(target_arch = "x86_64")]
use crate::simd::{self, MASKED};
use crate::sink::Sink;
use crate::wire::Reader;

/// The mask byte of up to eight symbols.
#[inline(always)]
pub fn mask_byte(symbols: &[u8]) -> u8 {
    match <[u8; 8]>::try_from(symbols) {
        Ok(eight) => mask8(eight),
        Err(_) => symbols.iter().enumerate().fold(0, |byte, (i, &symbol)| byte | u8::from(symbol != 0) << i),
    }
}

pub fn encode(symbols: &[u8], masks: &Code, code: Option<&Code>, scratch: &mut Scratch, out: &mut dyn Sink) {
    let Scratch { units, marked, streams, unfit, .. } = scratch;
    let bytes = symbols.len().div_ceil(8);
    grow(units, bytes);
    grow(marked, symbols.len() + SLACK);
    let count = split(symbols, &mut units[..bytes], marked);
    *unfit |= !encode_group(&units[..bytes], masks, streams, out);
    *unfit |= match code {
        Some(code) => !encode_group(&marked[..count], code, streams, out),
        None => highest_of(&marked[..count]) > 0,
    };
}

/// Makes `buffer` at least so long.
pub fn grow<T: Clone + Default>(buffer: &mut Vec<T>, length: usize) {
    if buffer.len() < length {
        buffer.resize(length, T::default());
    }
}

/// Fills `masks` (one for every 8 symbols), and `marked` with the symbols that are not 0, less one; tells how many these are.
fn split(symbols: &[u8], masks: &mut [u8], marked: &mut [u8]) -> usize {
    let (mut done, mut count) = (0, 0);
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = simd::avx2() {
        done = symbols.len() / MASKED * MASKED;
        count = avx2.split_marks(&symbols[..done], masks, marked);
    }
    for (group, mask) in symbols[done..].chunks(8).zip(&mut masks[done / 8..]) {
        *mask = mask_byte(group);
    }
    for &symbol in &symbols[done..] {
        // Always written and counted only if marked: no branch to guess.
        marked[count] = symbol.wrapping_sub(1);
        count += usize::from(symbol != 0);
    }
    count
}

pub fn decode(
    input: &mut Reader<'_>,
    masks: &Decoder,
    code: Option<&Decoder>,
    symbols: &mut [u8],
    scratch: &mut Scratch,
) -> Parsed<()> {
    let Scratch { units, marked, ahead, .. } = scratch;
    let bytes = symbols.len().div_ceil(8);
    grow(units, bytes);
    let units = &mut units[..bytes];
    decode_group(input, masks, units, ahead)?;
    let past_the_end = symbols.len() % 8;
    if past_the_end > 0 && units.last().is_some_and(|last| last >> past_the_end != 0) {
        return Err(input.flaw("a mask marks elements past the end"));
    }
    let count = count_marks(units);
    grow(marked, count + SLACK);
    match code {
        Some(code) => decode_group(input, code, &mut marked[..count], ahead)?,
        None => marked[..count].fill(0),
    }
    place(units, &marked[..count + SLACK], symbols);
    Ok(())
}

fn count_marks(masks: &[u8]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = simd::avx2() {
        return avx2.count_marks(masks);
    }
    masks.iter().map(|mask| mask.count_ones() as usize).sum()
}

/// The way back from [`split`]; `marked` has [`SLACK`] bytes past the last.
fn place(masks: &[u8], marked: &[u8], symbols: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = simd::avx2() {
        let (whole, rest) = symbols.split_at_mut(symbols.len() / 8 * 8);
        let (masks, last) = masks.split_at(whole.len() / 8);
        let used = avx2.place_marked(masks, marked, whole);
        return place_plain(last, &marked[used..], rest);
    }
    place_plain(masks, marked, symbols);
}

fn place_plain(masks: &[u8], marked: &[u8], symbols: &mut [u8]) {
    let mut next = 0;
    for (mask, group) in masks.iter().zip(symbols.chunks_mut(8)) {
        for (i, symbol) in group.iter_mut().enumerate() {
            let mark = mask >> i & 1;
            *symbol = mark * (marked[next].wrapping_add(1));
            next += usize::from(mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn marks_and_marked_symbols_are_those_of_the_symbols(symbols in prop::collection::vec(prop_oneof![Just(0u8), 0u8..16], 0..500)) {
            let mut masks = vec![0; symbols.len().div_ceil(8)];
            let mut marked = vec![77; symbols.len() + SLACK];
            let count = split(&symbols, &mut masks, &mut marked);
            let expected: Vec<u8> = symbols.iter().filter(|symbol| **symbol != 0).map(|symbol| symbol - 1).collect();
            prop_assert_eq!(&marked[..count], &expected[..]);
            let bits: Vec<u8> = (0..symbols.len()).map(|i| masks[i / 8] >> (i % 8) & 1).collect();
            prop_assert_eq!(bits, symbols.iter().map(|symbol| u8::from(*symbol != 0)).collect::<Vec<_>>());
            for place in [place, place_plain] {
                let mut placed = vec![99; symbols.len()];
                place(&masks, &marked[..count + SLACK], &mut placed);
                prop_assert_eq!(&placed, &symbols);
            }
        }
    }
}
