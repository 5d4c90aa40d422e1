//! Symbols -> tokens and run fields.

use super::{mask64, split_run};
use crate::coding::mask::{SLACK, grow, split};
use crate::coding::{Fields, Scratch, Tokens};
use crate::huffman::{encode_group, highest_of};
use crate::simd::{self, wide};
use crate::wire::put_varint;

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
