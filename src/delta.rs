//! Deltas and what is made of them: the two domains in which a lossy record works (format.md, section 8).

mod ordered;
mod value;

pub use ordered::{Ordered, OrderedSum};
pub use value::{Value, ValueSum};

use crate::float::Element;
use crate::kernels::{FastTable, Steps};
use std::fmt::Debug;

/// All delta entries with the same sign and exponent (value domain: the exponent field; ordered bits: the bit length).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket {
    pub exponent: u16,
    pub negative: bool,
}

impl Bucket {
    #[inline(always)]
    pub fn index(self) -> usize {
        usize::from(self.exponent) * 2 + usize::from(self.negative)
    }

    #[inline(always)]
    pub fn of_index(index: usize) -> Self {
        Bucket { exponent: (index / 2) as u16, negative: index % 2 == 1 }
    }
}

/// How target and base become a delta, and base and delta a reconstruction.
pub trait Domain<E: Element>: Copy + Send + Sync + 'static {
    type Delta: Copy + Default + PartialEq + PartialOrd + Send + Sync + Debug;
    /// Sums deltas so that the result does not depend on threads or vector width.
    type Sum: Summation<Self::Delta>;
    /// One more than the highest [`Bucket::index`].
    const BUCKETS: usize;

    fn new() -> Self;
    /// `target - base`, or `None` where it cannot be told in this domain: the entry is an exception.
    fn delta(self, target: E, base: E) -> Option<Self::Delta>;
    /// The delta as a number.
    fn size(delta: Self::Delta) -> f64;
    /// `None` for a delta of zero.
    fn bucket(self, delta: Self::Delta) -> Option<Bucket>;
    /// The reconstruction.
    fn apply(self, base: E, delta: Self::Delta) -> E;

    /// Width in bits of an entry's refinement field when `r` bits are asked for.
    fn field_width(self, bucket: Bucket, r: u32) -> u32;
    /// The refinement field of a delta that is not zero.
    fn field(self, delta: Self::Delta, r: u32) -> u64;
    /// The middle of the cell that `field` names.
    fn cell(self, bucket: Bucket, r: u32, field: u64) -> Self::Delta;
    /// Half the width of a bucket, as a number.
    fn reach(self, bucket: Bucket) -> f64;
    /// As a number, a delta of so many units of the target's last place.
    fn of_places(self, target: E, places: f64) -> f64;
    /// `(least + greatest) / 2`, rounded once.
    fn midrange(self, least: Self::Delta, greatest: Self::Delta) -> Self::Delta;

    /// The table for the fast loop, where there is one for these types and it can hold the buckets.
    fn fast_table(self, kept: &[Bucket], representatives: &[Self::Delta]) -> Option<FastTable>;

    /// The representatives for the fast loops, likewise.
    fn steps(self, representatives: &[Self::Delta]) -> Option<Steps>;
}

/// Entries whose buckets are found before they are counted and summed.
pub const BLOCK: usize = 256;

/// A sum of deltas in eight lanes (entry i of a chunk in lane i mod 8), and their mean.
pub trait Summation<D>: Clone + Default + Debug + Send {
    /// What a delta adds.
    type Term: Copy + Default;
    fn term(delta: D) -> Self::Term;
    /// Adds those of a block whose place is `place`. Blocks follow each other from the start of a chunk on.
    fn add(&mut self, terms: &[Self::Term; BLOCK], places: &[u64; BLOCK], place: u64);
    /// Folds the lanes: the end of a chunk.
    fn close_chunk(&mut self);
    /// One that is known, and closed.
    fn of_total(total: f64) -> Self;
    /// Adds the sum of the next chunk; both are closed.
    fn append(&mut self, next: &Self);
    /// The mean of `count` entries, rounded once to nearest even; `None` if the sum has overflowed.
    fn mean(&self, count: u64) -> Option<D>;
}

#[cfg(test)]
mod tests;
