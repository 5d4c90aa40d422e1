//! The error of a record, from sums of squares.

use crate::delta::Domain;
use crate::float::{Arith, Element};
use crate::simd::wide;
use std::ops::Range;

/// Sums of squares over finite entries, for the error of a record.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Squares {
    /// Of reconstruction - target.
    pub error: f64,
    /// Of target - previous reconstruction.
    pub delta: f64,
}

impl Squares {
    pub fn add(&mut self, next: Squares) {
        self.error += next.error;
        self.delta += next.delta;
    }

    /// The error of the record: 0/0 is 0, and what cannot be told is infinite.
    pub fn error_of_record(self) -> f32 {
        if self.error == 0.0 {
            return 0.0;
        }
        let ratio = (self.error / self.delta).sqrt() as f32;
        if ratio.is_nan() { f32::INFINITY } else { ratio }
    }
}

wide! {
    /// The sum of squares of target - other.
    pub fn sum_of_squares[E: Element](target: &[E], other: &[E]) -> f64 {
        sum_in_lanes(target, other, |t, o| t.to_arith().to_f64() - o.to_arith().to_f64())
    }
}

wide! {
    /// The sum of squares of target - other as a domain tells it; what it cannot tell counts as none.
    pub fn sum_of_squares_in[E: Element, D: Domain<E>](domain: D, target: &[E], other: &[E]) -> f64 {
        sum_in_lanes(target, other, |t, o| domain.delta(t, o).map_or(0.0, |delta| D::size(delta)))
    }
}

/// In eight lanes, entry i in lane i mod 8; differences that are not finite count as none.
#[inline(always)]
fn sum_in_lanes<E: Element>(target: &[E], other: &[E], difference: impl Fn(E, E) -> f64) -> f64 {
    const { assert!(BLOCK.is_multiple_of(8), "blocks would begin in other lanes") };
    debug_assert_eq!(target.len(), other.len());
    let (mut l, mut squares) = ([0.0; 8], [0.0; BLOCK]);
    for (target, other) in target.chunks(BLOCK).zip(other.chunks(BLOCK)) {
        // In a loop of its own: together with the lanes the compiler makes short vectors of it.
        for ((square, &t), &o) in squares.iter_mut().zip(target).zip(other) {
            let difference = difference(t, o);
            let counted = if difference.is_finite() { difference } else { 0.0 };
            *square = counted * counted;
        }
        squares[target.len()..].fill(0.0);
        for eight in squares.as_chunks::<8>().0 {
            l.iter_mut().zip(eight).for_each(|(lane, square)| *lane += square);
        }
    }
    ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
}

/// Which entries of a chunk the error is measured over.
#[derive(Debug, Clone, Copy)]
pub enum Measured {
    All,
    Nothing,
    /// About one block of 256 in 64, by a hash of its place; `chunk`: the chunk's number.
    Sample {
        chunk: usize,
    },
}

const BLOCK: usize = 256;

/// Entries that are quantized in one go, all or none of them measured.
pub struct Segment {
    pub entries: Range<usize>,
    pub measured: bool,
}

impl Measured {
    /// The sum of squares of target - other, over the measured entries of a chunk.
    pub fn sum_of_squares<E: Element>(self, target: &[E], other: &[E]) -> f64 {
        let measured = self.segments(target.len()).filter(|segment| segment.measured);
        measured.map(|segment| sum_of_squares(&target[segment.entries.clone()], &other[segment.entries])).sum()
    }

    /// A chunk of so many entries in segments. All but the last are whole blocks.
    pub fn segments(self, entries: usize) -> impl Iterator<Item = Segment> {
        let mut start = 0;
        std::iter::from_fn(move || {
            let Measured::Sample { chunk } = self else {
                let all = Segment { entries: start..entries, measured: matches!(self, Measured::All) };
                start = entries;
                return (!all.entries.is_empty()).then_some(all);
            };
            let measured = is_sampled(chunk, start / BLOCK);
            let same = (start..entries).step_by(BLOCK).take_while(|at| is_sampled(chunk, at / BLOCK) == measured);
            let end = (start + BLOCK * same.count()).min(entries);
            let segment = Segment { entries: start..end, measured };
            start = end;
            (!segment.entries.is_empty()).then_some(segment)
        })
    }
}

fn is_sampled(chunk: usize, block: usize) -> bool {
    let hash = ((chunk as u64) << 20 | block as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 58 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_the_chunk_in_order() {
        for entries in [0, 1, 255, 256, 257, 65_536] {
            for measured in [Measured::All, Measured::Sample { chunk: 3 }] {
                let mut next = 0;
                for segment in measured.segments(entries) {
                    assert_eq!(segment.entries.start, next);
                    assert!(segment.entries.end == entries || segment.entries.len() % BLOCK == 0);
                    next = segment.entries.end;
                }
                assert_eq!(next, entries);
            }
        }
        let sampled = |chunk| Measured::Sample { chunk }.segments(1 << 16).filter(|s| s.measured).count();
        let total: usize = (0..64).map(sampled).sum();
        assert!((128..512).contains(&total), "{total} of 16384 blocks");
    }
}
