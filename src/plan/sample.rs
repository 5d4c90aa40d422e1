//! Samples of large tensors, from which a plan is made in one pass over little memory.

use super::chunk_of;
use super::kept::Kept;
use crate::float::Element;
use crate::simd::wide;
use crate::statistics::Against;
use std::hint::black_box;

/// Tensors with more elements are planned from samples.
pub const SAMPLED_FROM: usize = 1 << 18;

/// Runs of entries in a spread sample, and the entries of one: a line of cache of f32.
const RUNS: usize = 4096;
const RUN: usize = 16;

/// Blocks in a block sample, and the entries of one.
const BLOCKS: usize = 16;
pub const BLOCK_LOG2: u8 = 12;

/// Entries of target and base; a whole number of blocks.
pub struct Sample<E> {
    pub target: Kept<E>,
    pub base: Option<Kept<E>>,
    blocks: Vec<usize>,
}

impl<E: Element> Sample<E> {
    /// Entries that differ from the base.
    pub fn changed(&self) -> usize {
        self.base.as_deref().map_or(0, |base| count_changed(&self.target, base))
    }

    /// A sample of entries that were gathered before.
    pub fn new(target: Kept<E>, base: Option<Kept<E>>) -> Self {
        let blocks = (0..target.len() >> BLOCK_LOG2).collect();
        Sample { target, base, blocks }
    }

    /// The sample as something to plan from, in chunks of 2^[`BLOCK_LOG2`].
    pub fn source(&self) -> Source<'_, E> {
        Source { target: &self.target, base: self.base.as_deref(), chunk_log2: BLOCK_LOG2, chunks: &self.blocks }
    }
}

/// Some chunks of a tensor, of 2^log2 elements but for its last.
#[derive(Clone, Copy)]
pub struct Source<'a, E> {
    pub target: &'a [E],
    pub base: Option<&'a [E]>,
    pub chunk_log2: u8,
    /// Numbers of the chunks; not empty.
    pub chunks: &'a [usize],
}

impl<'a, E: Element> Source<'a, E> {
    /// Entries in all.
    pub fn elements(&self) -> usize {
        self.chunks.iter().map(|&number| chunk_of(self.target, self.chunk_log2, number).len()).sum()
    }

    /// A chunk of target and base, by its place in `chunks`.
    pub fn chunk(&self, place: usize) -> (&'a [E], Against<'a, E>) {
        let of = |elements: &'a [E]| chunk_of(elements, self.chunk_log2, self.chunks[place]);
        (of(self.target), self.base.map_or(Against::Zero, |base| Against::Base(of(base))))
    }

    /// 4096 short runs from all over: for the distribution. The tensor has more than [`SAMPLED_FROM`] elements.
    pub fn spread(&self) -> Sample<E> {
        self.gather(RUNS, RUN)
    }

    /// 16 long blocks: for the distances between promoted entries.
    pub fn blocks(&self) -> Sample<E> {
        self.gather(BLOCKS, 1 << BLOCK_LOG2)
    }

    /// One piece from each of `pieces` equal parts, at a hashed place in it: a fixed stride could beat with the length of rows.
    pub fn gather(&self, pieces: usize, length: usize) -> Sample<E> {
        let entries = pieces * length;
        let mut target = Kept::with_room(entries);
        let mut base = self.base.map(|_| Kept::with_room(entries));
        let starts: Vec<usize> = (0..pieces).map(|piece| self.start(piece, pieces, length)).collect();
        // Copying short runs waits for the memory of one after the other; reading both ends of each does not.
        let ends = |elements: &[E], start: usize| elements[start].bits() ^ elements[start + length - 1].bits();
        black_box(
            starts.iter().fold(0, |bits, &start| {
                bits ^ ends(self.target, start) ^ self.base.map_or(0, |base| ends(base, start))
            }),
        );
        for (number, start) in starts.into_iter().enumerate() {
            let (piece, place) = (start..start + length, number * length..(number + 1) * length);
            target[place.clone()].copy_from_slice(&self.target[piece.clone()]);
            if let (Some(sampled), Some(base)) = (&mut base, self.base) {
                sampled[place].copy_from_slice(&base[piece]);
            }
        }
        Sample::new(target, base)
    }

    fn start(&self, piece: usize, pieces: usize, length: usize) -> usize {
        // A place among the sampled chunks, laid side by side.
        let part = (self.chunks.len() << self.chunk_log2) / pieces;
        let place = piece * part + scaled(hash(piece as u64), part);
        let chunk = self.chunks[place >> self.chunk_log2] << self.chunk_log2;
        let start = chunk + (place & ((1 << self.chunk_log2) - 1));
        start.min(self.target.len().saturating_sub(length))
    }
}

wide! {
    fn count_changed[E: Element](target: &[E], base: &[E]) -> usize {
        target.iter().zip(base).map(|(target, base)| usize::from(target.bits() != base.bits())).sum()
    }
}

/// Runs that are looked at to tell whether tensors are siblings.
const LOOKS: usize = 64;

/// About a thousand places of a tensor, all of a small one, in short runs from all over; the same for all tensors of one length.
pub fn sampled_places(elements: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let sampled = elements > LOOKS * RUN;
    let part = elements / LOOKS;
    (0..if sampled { LOOKS } else { 1 }).map(move |run| {
        let start = run * part + scaled(hash(run as u64), part.saturating_sub(RUN));
        if sampled { start..start + RUN } else { 0..elements }
    })
}

/// `hash`, scaled to a number below `limit`.
fn scaled(hash: u64, limit: usize) -> usize {
    ((u128::from(hash) * limit as u128) >> 64) as usize
}

fn hash(n: u64) -> u64 {
    let z = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

/// Whether so many entries have a twin that zstd may find what the other ways cannot.
pub fn is_repetitive<E: Element>(target: &[E]) -> bool {
    let looked_at = target.len().min(256);
    let mut bits: Vec<u64> = (0..looked_at).map(|k| target[scaled(hash(k as u64), target.len())].bits()).collect();
    bits.sort_unstable();
    bits.dedup();
    bits.len() * 4 < looked_at * 3
}
