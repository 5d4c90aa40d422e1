//! Symbols -> tokens and run fields.

use super::split_run;
use crate::coding::mask::grow;
use crate::coding::{Scratch, Tokens};
use crate::huffman::encode_group;
use crate::kernels::Found;
use crate::simd::highest_of;
use crate::simd::marks::{for_each_mark, mark_from};
#[cfg(target_arch = "x86_64")]
use crate::simd::{self, MASKED};
use crate::simd::{SLACK, wide};
use crate::sink::Sink;
use crate::wire::put_varint;

pub fn encode(symbols: &[u8], tokens: &Tokens, scratch: &mut Scratch, out: &mut dyn Sink) {
    let count = make(symbols, Shape { rho: tokens.rho, highest: tokens.highest }, scratch);
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

    /// Whether the units of a class are bytes. Those of short runs, which have no field, always are.
    #[inline(always)]
    fn has(self, class: u32) -> bool {
        (class + 1) * u32::from(self.highest) <= 256
    }
}

/// The tokens of a chunk's symbols and their run fields, those of long runs after all others; tells how many there are.
fn make(symbols: &[u8], shape: Shape, scratch: &mut Scratch) -> usize {
    let Scratch { units, marked, places, near, found, marks, runs, unfit, .. } = scratch;
    runs.restart(symbols.len());
    grow(marked, symbols.len() + SLACK);
    grow(places, symbols.len() + SLACK);
    split(symbols, marked, places, found);
    grow(units, found.count);
    grow(near, found.count);
    let (below, near) = (&marked[..found.count], &mut near[..found.count]);
    short_units(below, &places[..found.count], shape, units, near);
    found.far.iter().for_each(|&(k, _)| near[k as usize] = FAR);
    let mut far = found.far.iter();
    mark_from(near, 1 << shape.rho, marks);
    for_each_mark(marks, |k| {
        let run = if near[k] == FAR { far.next().map_or(0, |far| far.1) } else { u32::from(near[k]) };
        let (class, low, width) = split_run(run, shape.rho);
        units[k] = shape.unit(class, below[k]);
        // A run that is longer than the plan has seen: its unit would be that of a short one.
        *unfit |= !shape.has(class);
        runs.push(low, width);
    });
    found.count
}

/// Stands for a run that is in [`Found::far`], as every run is that is so long.
const FAR: u8 = 255;

/// The symbols that are not 0, less one, and their places modulo 256.
fn split(symbols: &[u8], below: &mut [u8], places: &mut [u8], found: &mut Found) {
    found.restart();
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = simd::avx2() {
        done = symbols.len() / MASKED * MASKED;
        avx2.split_places(&symbols[..done], below, places, found);
    }
    for (at, &symbol) in symbols.iter().enumerate().skip(done).filter(|(_, symbol)| **symbol != 0) {
        (below[found.count], places[found.count]) = (symbol - 1, at as u8);
        found.add_one(at);
    }
}

wide! {
    /// The units of all tokens as if no run were long, and their runs modulo 256.
    fn short_units[](below: &[u8], places: &[u8], shape: Shape, units: &mut [u8], near: &mut [u8]) -> () {
        let Some(&first) = places.first() else { return };
        (units[0], near[0]) = (shape.unit(u32::from(first), below[0]), first);
        let runs = places.iter().zip(&places[1..]).map(|(before, place)| place.wrapping_sub(*before).wrapping_sub(1));
        for (((unit, near), run), &below) in units[1..].iter_mut().zip(&mut near[1..]).zip(runs).zip(&below[1..]) {
            *unit = shape.unit(u32::from(run), below);
            *near = run;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::Fields;
    use crate::coding::tokens::for_each_token;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tokens_are_those_of_the_symbols_one_by_one(
            symbols in prop::collection::vec(prop_oneof![6 => Just(0u8), 1 => 1u8..=5], 0..3000),
            gap in prop_oneof![9 => 0usize..3000, 1 => 0usize..200_000], rho in 0u32..=4,
        ) {
            let symbols = [symbols.clone(), vec![0; gap], symbols].concat();
            let shape = Shape { rho, highest: 5 };
            let mut scratch = Scratch::default();
            let count = make(&symbols, shape, &mut scratch);
            let (mut units, mut runs) = (Vec::new(), Fields::default());
            runs.restart(symbols.len());
            for_each_token(&symbols, |run, symbol| {
                let (class, low, width) = split_run(run, rho);
                units.push(shape.unit(class, symbol - 1));
                if run >> rho != 0 {
                    runs.push(low, width);
                }
            });
            prop_assert_eq!(&scratch.units[..count], &units);
            let (mut fast, mut plain) = (Vec::new(), Vec::new());
            scratch.runs.write(&mut fast);
            runs.write(&mut plain);
            prop_assert_eq!(fast, plain);
        }
    }
}
