//! Symbols -> tokens and run fields.

use super::{MOST_PLACES, count_marks, for_each_mark, mark_from, split_run};
use crate::coding::mask::{SLACK, grow, split};
use crate::coding::{Fields, Scratch, Tokens};
use crate::huffman::{encode_group, highest_of};
#[cfg(target_arch = "x86_64")]
use crate::simd;
use crate::simd::wide;
use crate::wire::put_varint;

/// Where fewer than one symbol in so many is marked, taking them one by one is quicker.
const SPARSE: usize = 24;

pub fn encode(symbols: &[u8], tokens: &Tokens, scratch: &mut Scratch, out: &mut Vec<u8>) {
    let shape = Shape { rho: tokens.rho, highest: tokens.highest };
    scratch.runs.restart(symbols.len());
    grow(&mut scratch.units, symbols.len() + SLACK);
    mark_from(symbols, 1, &mut scratch.marks);
    let is_dense = SPARSE * count_marks(&scratch.marks) > symbols.len();
    let count = if is_dense && symbols.len() <= MOST_PLACES {
        together(symbols, shape, scratch)
    } else {
        let Scratch { units, marks, runs, .. } = scratch;
        one_by_one(symbols, marks, shape, units, runs)
    };
    let Scratch { units, streams, runs, unfit, .. } = scratch;
    put_varint(out, count as u64);
    *unfit |= !encode_group(&units[..count], &tokens.code, streams, out) || highest_of(symbols) > tokens.highest;
    runs.write(out);
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

/// Makes the tokens of many symbols at once, of long runs afterwards; tells how many there are.
fn together(symbols: &[u8], shape: Shape, scratch: &mut Scratch) -> usize {
    let Scratch { units, marked, masks, places, near, marks, runs, .. } = scratch;
    let bytes = symbols.len().div_ceil(8);
    grow(masks, bytes);
    grow(marked, symbols.len() + SLACK);
    grow(places, 8 * bytes + 1 + SLACK);
    let count = split(symbols, &mut masks[..bytes], marked);
    // What stands before the first place.
    places[0] = u16::MAX;
    find_places(&masks[..bytes], &mut places[1..]);
    grow(near, count);
    let (below, places, near) = (&marked[..count], &places[..=count], &mut near[..count]);
    short_units(below, places, shape, &mut units[..count], near);
    mark_from(near, 1 << shape.rho, marks);
    for_each_mark(marks, |k| {
        let run = u32::from(run_between(places[k], places[k + 1]));
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
    /// The units of all tokens as if no run were long, and their runs, at most 255.
    fn short_units[](below: &[u8], places: &[u16], shape: Shape, units: &mut [u8], near: &mut [u8]) -> () {
        let runs = places.iter().zip(&places[1..]).map(|(before, place)| run_between(*before, *place));
        for (((unit, near), run), &below) in units.iter_mut().zip(near).zip(runs).zip(below) {
            *unit = shape.unit(u32::from(run), below);
            *near = run.min(255) as u8;
        }
    }
}

wide! {
    /// Writes the token of each symbol to `units`, the run fields to `runs`, and tells how many tokens there are. `marks`: which symbols
    /// are not 0. The twin of [`together`], for chunks of any length.
    fn one_by_one[](symbols: &[u8], marks: &[u64], shape: Shape, units: &mut [u8], runs: &mut Fields) -> usize {
        let (mut count, mut after) = (0, 0);
        for_each_mark(marks, |at| {
            let run = (at - after) as u32;
            let (class, low, width) = split_run(run, shape.rho);
            runs.push_if(run >> shape.rho != 0, low, width);
            units[count] = shape.unit(class, symbols[at].wrapping_sub(1));
            (after, count) = (at + 1, count + 1);
        });
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn together_as_one_by_one(
            symbols in prop::collection::vec(prop_oneof![6 => Just(0u8), 1 => 1u8..=5], 0..3000),
            gap in 0usize..3000, rho in 0u32..=4,
        ) {
            let symbols = [symbols.clone(), vec![0; gap], symbols].concat();
            let shape = Shape { rho, highest: 5 };
            let mut scratch = Scratch::default();
            scratch.runs.restart(symbols.len());
            grow(&mut scratch.units, symbols.len() + SLACK);
            let count = together(&symbols, shape, &mut scratch);
            let (mut units, mut runs) = (vec![0; symbols.len() + 1], Fields::default());
            runs.restart(symbols.len() + 1);
            let mut marks = Vec::new();
            mark_from(&symbols, 1, &mut marks);
            prop_assert_eq!(one_by_one(&symbols, &marks, shape, &mut units, &mut runs), count);
            prop_assert_eq!(&units[..count], &scratch.units[..count]);
            let (mut fast, mut plain) = (Vec::new(), Vec::new());
            scratch.runs.write(&mut fast);
            runs.write(&mut plain);
            prop_assert_eq!(fast, plain);
        }
    }
}
