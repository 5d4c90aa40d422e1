//! Token coding: one codeword for a symbol and the zeros before it.

use super::mask::{SLACK, grow, split};
use super::{FieldReader, Fields, Scratch, Tokens};
use crate::error::Parsed;
use crate::huffman::{Decoder, decode_group, encode_group, highest_of};
use crate::simd::{self, wide};
use crate::wire::{Reader, put_varint};

/// A run of zeros as its class, and its low bits with their width (0 for a class below 2^rho).
#[inline(always)]
pub fn split_run(run: u32, rho: u32) -> (u32, u64, u32) {
    // Without branches: near the boundary they would be guessed wrong half of the time.
    let long = u32::from(run >> rho != 0);
    let octave = 31 - (run | 1).leading_zeros();
    let class = if long == 1 { (1 << rho) + octave - rho } else { run };
    let width = octave * long;
    (class, u64::from(run & ((1 << width) - 1)), width)
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

/// Calls `token` with each symbol that is not 0 and the zeros before it. `mask` tells which of 64 symbols are not 0.
#[inline(always)]
pub fn for_each_token(symbols: &[u8], mask: impl Fn(&[u8; 64]) -> u64, mut token: impl FnMut(u32, u8)) {
    let mut after = 0;
    let (blocks, rest) = symbols.as_chunks::<64>();
    for (number, block) in blocks.iter().enumerate() {
        let mut marks = mask(block);
        while marks != 0 {
            let i = marks.trailing_zeros() as usize;
            let at = 64 * number + i;
            token((at - after) as u32, block[i % 64]);
            after = at + 1;
            marks &= marks - 1;
        }
    }
    for (i, &symbol) in rest.iter().enumerate().filter(|(_, symbol)| **symbol != 0) {
        let at = 64 * blocks.len() + i;
        token((at - after) as u32, symbol);
        after = at + 1;
    }
}

/// Which of 64 symbols are not 0.
#[inline(always)]
pub fn mask64(block: &[u8; 64]) -> u64 {
    let (eights, _) = block.as_chunks::<8>();
    eights.iter().rev().fold(0, |mask, eight| mask << 8 | u64::from(mask8(*eight)))
}

/// Which of 8 symbols (below 128) are not 0.
#[inline(always)]
pub fn mask8(eight: [u8; 8]) -> u8 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let marks = (u64::from_le_bytes(eight) + LOW) >> 7 & 0x0101_0101_0101_0101;
    // Bit 0 of byte i to bit 56 + i of the product.
    (marks.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

pub fn encode(symbols: &[u8], tokens: &Tokens, scratch: &mut Scratch, out: &mut Vec<u8>) {
    let shape = Shape { rho: tokens.rho, highest: tokens.highest };
    let marked = mark(symbols, &mut scratch.marks);
    scratch.runs.restart(symbols.len());
    grow(&mut scratch.units, symbols.len() + SLACK);
    let count = if symbols.len() <= MOST_PLACES && has_few_long(symbols.len(), marked, tokens.rho) {
        together(symbols, shape, scratch)
    } else {
        let Scratch { units, runs, marks, .. } = scratch;
        one_by_one(symbols, marks, shape, units, runs)
    };
    let Scratch { units, streams, runs, unfit, .. } = scratch;
    put_varint(out, count as u64);
    *unfit |= !encode_group(&units[..count], &tokens.code, streams, out) || highest_of(symbols) > tokens.highest;
    runs.write(out);
}

/// Which symbols of each 64 are not 0; how many in all.
fn mark(symbols: &[u8], marks: &mut Vec<u64>) -> usize {
    let (blocks, _) = symbols.as_chunks::<64>();
    marks.resize(blocks.len(), 0);
    match simd::avx2() {
        #[cfg(target_arch = "x86_64")]
        Some(avx2) => avx2.mark(blocks, marks),
        _ => marks.iter_mut().zip(blocks).map(|(marks, block)| set_and_count(marks, mask64(block))).sum(),
    }
}

fn set_and_count(to: &mut u64, marks: u64) -> usize {
    *to = marks;
    marks.count_ones() as usize
}

/// Whether so few runs are long that it pays to look for them afterwards: less than one in eight, if the symbols lie at random.
fn has_few_long(symbols: usize, marked: usize, rho: u32) -> bool {
    marked << rho > 2 * symbols
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    rho: u32,
    /// K
    highest: u8,
}

impl Shape {
    /// `below`: the symbol less one.
    #[inline(always)]
    fn unit(self, class: u32, below: u8) -> u8 {
        (class as u8).wrapping_mul(self.highest).wrapping_add(below)
    }
}

/// Symbols whose places are numbers of 16 bits.
const MOST_PLACES: usize = 1 << 16;

/// Makes the tokens of many symbols at once, of long runs afterwards; tells how many there are.
fn together(symbols: &[u8], shape: Shape, scratch: &mut Scratch) -> usize {
    let Scratch { units, marked, masks, places, runs, .. } = scratch;
    let bytes = symbols.len().div_ceil(8);
    grow(masks, bytes);
    grow(marked, symbols.len() + SLACK);
    grow(places, 8 * bytes + 1 + SLACK);
    let count = split(symbols, &mut masks[..bytes], marked);
    // What stands before the first place.
    places[0] = u16::MAX;
    find_places(&masks[..bytes], &mut places[1..]);
    let (below, places) = (&marked[..count], &places[..=count]);
    short_units(below, places, shape, &mut units[..count]);
    for_each_long(places, shape.rho, |k, run| {
        let (class, low, width) = split_run(run, shape.rho);
        units[k] = shape.unit(class, below[k]);
        runs.push(low, width);
    });
    count
}

/// Where the marks are; `places` has room for eight of each mask, and [`SLACK`].
fn find_places(masks: &[u8], places: &mut [u16]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = simd::avx2() {
        avx2.find_places(masks, places);
        return;
    }
    let marks = masks.iter().enumerate().flat_map(|(byte, &mask)| {
        let marked = (0..8).filter(move |i| mask >> i & 1 == 1);
        marked.map(move |i| (8 * byte + i) as u16)
    });
    places.iter_mut().zip(marks).for_each(|(place, mark)| *place = mark);
}

/// The zeros between a place and the one before.
#[inline(always)]
fn run_between(before: u16, place: u16) -> u16 {
    place.wrapping_sub(before).wrapping_sub(1)
}

wide! {
    /// The units of all tokens as if no run were long.
    fn short_units[](below: &[u8], places: &[u16], shape: Shape, units: &mut [u8]) -> () {
        let runs = places.iter().zip(&places[1..]).map(|(before, place)| run_between(*before, *place));
        for ((unit, run), &below) in units.iter_mut().zip(runs).zip(below) {
            *unit = shape.unit(u32::from(run), below);
        }
    }
}

/// Tokens that are looked through together for long runs.
const BLOCK: usize = 16;

/// Calls `long` with the number and the run of each token whose run is long.
fn for_each_long(places: &[u16], rho: u32, mut long: impl FnMut(usize, u32)) {
    let count = places.len() - 1;
    for start in (0..count).step_by(BLOCK) {
        let places = &places[start..(start + BLOCK).min(count) + 1];
        if any_long(places, rho) {
            for (k, pair) in places.windows(2).enumerate() {
                let run = u32::from(run_between(pair[0], pair[1]));
                if run >> rho != 0 {
                    long(start + k, run);
                }
            }
        }
    }
}

#[inline(always)]
fn any_long(places: &[u16], rho: u32) -> bool {
    let runs = places.iter().zip(&places[1..]).map(|(before, place)| run_between(*before, *place));
    runs.fold(0, |all, run| all | run) >> rho != 0
}

wide! {
    /// Writes the token of each symbol to `units`, the run fields to `runs`, and tells how many tokens there are. `marks`: of whole
    /// blocks of 64 symbols.
    fn one_by_one[](symbols: &[u8], marks: &[u64], shape: Shape, units: &mut [u8], runs: &mut Fields) -> usize {
        let (mut count, mut after) = (0, 0);
        let mut add = |at: usize, symbol: u8| {
            let run = (at - after) as u32;
            let (class, low, width) = split_run(run, shape.rho);
            runs.push_if(run >> shape.rho != 0, low, width);
            units[count] = shape.unit(class, symbol.wrapping_sub(1));
            (after, count) = (at + 1, count + 1);
        };
        let (blocks, rest) = symbols.as_chunks::<64>();
        for (k, (block, &marks)) in blocks.iter().zip(marks).enumerate() {
            let mut left = marks;
            while left != 0 {
                let i = left.trailing_zeros() as usize;
                left &= left - 1;
                add(64 * k + i, block[i % 64]);
            }
        }
        for (i, &symbol) in rest.iter().enumerate().filter(|(_, symbol)| **symbol != 0) {
            add(64 * blocks.len() + i, symbol);
        }
        count
    }
}

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
