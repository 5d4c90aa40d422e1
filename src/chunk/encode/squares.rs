//! The error of a record, from sums of squares.

use crate::float::{Arith, Element};

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

/// Sums squares of differences in eight lanes, entry i in lane i mod 8.
#[derive(Default)]
struct Lanes([f64; 8]);

impl Lanes {
    /// Adds eight differences; those that are not finite count as none.
    #[inline(always)]
    fn add(&mut self, differences: [f64; 8]) {
        for (lane, difference) in self.0.iter_mut().zip(differences) {
            let counted = if difference.is_finite() { difference } else { 0.0 };
            *lane += counted * counted;
        }
    }

    fn total(&self) -> f64 {
        let l = self.0;
        ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
    }
}

fn sum_of_squares<E: Element>(target: &[E], other: &[E]) -> f64 {
    let difference = |t: E, o: E| t.to_arith().to_f64() - o.to_arith().to_f64();
    let mut lanes = Lanes::default();
    let (targets, rest) = target.as_chunks::<8>();
    let (others, other_rest) = other.as_chunks::<8>();
    for (target, other) in targets.iter().zip(others) {
        lanes.add(std::array::from_fn(|k| difference(target[k], other[k])));
    }
    lanes.add(std::array::from_fn(|k| if k < rest.len() { difference(rest[k], other_rest[k]) } else { 0.0 }));
    lanes.total()
}

/// Which entries of a chunk the error is measured over.
#[derive(Debug, Clone, Copy)]
pub enum Measured {
    All,
    /// About one block of 256 in 64, by a hash of its place; `chunk`: the chunk's number.
    Sample {
        chunk: usize,
    },
}

const BLOCK: usize = 256;

impl Measured {
    /// The sum of squares of the differences.
    pub fn squares<E: Element>(self, target: &[E], other: &[E]) -> f64 {
        let Measured::Sample { chunk } = self else { return sum_of_squares(target, other) };
        let blocks = target.chunks(BLOCK).zip(other.chunks(BLOCK)).enumerate();
        let chosen = blocks.filter(|(number, _)| is_sampled(chunk, *number));
        chosen.map(|(_, (target, other))| sum_of_squares(target, other)).sum()
    }
}

fn is_sampled(chunk: usize, block: usize) -> bool {
    let hash = ((chunk as u64) << 20 | block as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 58 == 0
}
