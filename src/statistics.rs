//! What is known of the buckets of a tensor or a chunk: how many entries each has, and their extremes and sums.

use crate::delta::{Bucket, Domain, Summation};
use crate::float::Element;
use crate::simd::wide;
use std::cell::RefCell;

/// Buckets that there is room for at once; a chunk rarely has more.
const USUAL_BUCKETS: usize = 32;

thread_local! {
    /// By index of a bucket: its place among those found so far, from 1 on; all 0 between chunks.
    static PLACES: RefCell<Vec<u16>> = RefCell::default();

    /// By index of a bucket: its entries, in two halves that take turns; all 0 between chunks.
    static TALLIES: RefCell<Vec<[u32; 2]>> = RefCell::default();
}

/// How many entries each bucket has: all that promotion looks at.
pub trait Counted {
    fn entries(&self) -> u64;

    /// Of the buckets that are not empty, rising by [`Bucket::index`].
    fn counts(&self) -> impl DoubleEndedIterator<Item = (Bucket, u64)>;
}

/// What is known of one bucket.
#[derive(Debug, Clone)]
pub struct BucketStatistics<E: Element, D: Domain<E>> {
    pub count: u64,
    pub least: D::Delta,
    pub greatest: D::Delta,
    sum: D::Sum,
}

/// The non-empty buckets of a tensor, or of a chunk.
#[derive(Debug, Clone)]
pub struct Statistics<E: Element, D: Domain<E>> {
    /// Rising by [`Bucket::index`].
    pub buckets: Vec<(Bucket, BucketStatistics<E, D>)>,
    pub entries: u64,
}

impl<E: Element, D: Domain<E>> Default for Statistics<E, D> {
    fn default() -> Self {
        Statistics { buckets: Vec::new(), entries: 0 }
    }
}

impl<E: Element, D: Domain<E>> Counted for Statistics<E, D> {
    fn entries(&self) -> u64 {
        self.entries
    }

    fn counts(&self) -> impl DoubleEndedIterator<Item = (Bucket, u64)> {
        self.buckets.iter().map(|(bucket, statistics)| (*bucket, statistics.count))
    }
}

/// Counts alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    buckets: Vec<(Bucket, u64)>,
    entries: u64,
}

impl Counted for Counts {
    fn entries(&self) -> u64 {
        self.entries
    }

    fn counts(&self) -> impl DoubleEndedIterator<Item = (Bucket, u64)> {
        self.buckets.iter().copied()
    }
}

impl Counts {
    /// The counts of one chunk, of fewer than 2^32 entries.
    pub fn of_chunk<E: Element, D: Domain<E>>(domain: D, target: &[E], base: Against<'_, E>) -> Self {
        TALLIES.with_borrow_mut(|tallies| {
            // The first is of what is in no bucket.
            tallies.resize(tallies.len().max(1 + D::BUCKETS), [0; 2]);
            tally(domain, target, base, &mut tallies[..]);
            let of_buckets = tallies[1..=D::BUCKETS].iter().enumerate().filter(|(_, tally)| **tally != [0; 2]);
            let sum = |[a, b]: [u32; 2]| u64::from(a) + u64::from(b);
            let buckets = of_buckets.map(|(index, &tally)| (Bucket::of_index(index), sum(tally))).collect();
            tallies[..=D::BUCKETS].fill([0; 2]);
            Counts { buckets, entries: target.len() as u64 }
        })
    }

    /// Adds the counts of another chunk.
    pub fn append(&mut self, next: Self) {
        self.entries += next.entries;
        append(&mut self.buckets, next.buckets, |count, next| *count += next);
    }
}

/// Adds what is known of buckets to what is known of others; both rise by [`Bucket::index`].
fn append<T>(all: &mut Vec<(Bucket, T)>, next: Vec<(Bucket, T)>, add: impl Fn(&mut T, T)) {
    if all.is_empty() {
        *all = next;
        return;
    }
    for (bucket, of_next) in next {
        match all.binary_search_by_key(&bucket.index(), |(b, _)| b.index()) {
            Ok(at) => add(&mut all[at].1, of_next),
            Err(at) => all.insert(at, (bucket, of_next)),
        }
    }
}

/// Entries whose buckets are found before they are counted.
const BLOCK: usize = 256;

fn tally<E: Element, D: Domain<E>>(domain: D, target: &[E], base: Against<'_, E>, tallies: &mut [[u32; 2]]) {
    let mut places = [0u16; BLOCK];
    for (number, target) in target.chunks(BLOCK).enumerate() {
        let base = match base {
            Against::Zero => Against::Zero,
            Against::Base(base) => Against::Base(&base[number * BLOCK..][..target.len()]),
        };
        find_places(domain, target, base, &mut places[..target.len()]);
        for pair in places[..target.len()].chunks(2) {
            for (half, &place) in pair.iter().enumerate() {
                tallies[usize::from(place)][half] += 1;
            }
        }
    }
}

wide! {
    /// One more than the index of each entry's bucket, 0 for those in none.
    fn find_places[E: Element, D: Domain<E>](domain: D, target: &[E], base: Against<'_, E>, places: &mut [u16]) -> () {
        for (i, (place, &t)) in places.iter_mut().zip(target).enumerate() {
            *place = bucket_of(domain, t, base.at(i)).map_or(0, |(bucket, _)| bucket.index() as u16 + 1);
        }
    }
}

/// The bucket and the delta of an entry; `None` where it is as it was, or an exception.
#[inline(always)]
fn bucket_of<E: Element, D: Domain<E>>(domain: D, target: E, base: E) -> Option<(Bucket, D::Delta)> {
    if target.bits() == base.bits() || !target.finite() {
        return None;
    }
    let delta = domain.delta(target, base)?;
    Some((domain.bucket(delta)?, delta))
}

/// Where the base of an entry comes from while nothing is written.
#[derive(Debug, Clone, Copy)]
pub enum Against<'a, E> {
    Zero,
    Base(&'a [E]),
}

impl<E: Element> Against<'_, E> {
    #[inline(always)]
    pub fn at(&self, i: usize) -> E {
        match self {
            Against::Zero => E::ZERO,
            Against::Base(base) => base[i],
        }
    }
}

impl<E: Element, D: Domain<E>> Statistics<E, D> {
    /// The statistics of one chunk.
    pub fn of_chunk(domain: D, target: &[E], base: Against<'_, E>) -> Self {
        let mut buckets: Vec<(Bucket, BucketStatistics<E, D>)> = Vec::with_capacity(USUAL_BUCKETS);
        PLACES.with_borrow_mut(|places| {
            places.resize(places.len().max(D::BUCKETS), 0);
            for (i, &t) in target.iter().enumerate() {
                let Some((bucket, delta)) = bucket_of(domain, t, base.at(i)) else { continue };
                let place = &mut places[bucket.index()];
                if *place == 0 {
                    buckets.push((bucket, BucketStatistics::of_extremes(0, delta, delta)));
                    *place = buckets.len() as u16;
                }
                buckets[usize::from(*place) - 1].1.include(i, delta);
            }
            buckets.iter().for_each(|(bucket, _)| places[bucket.index()] = 0);
        });
        buckets.iter_mut().for_each(|(_, statistics)| statistics.sum.close_chunk());
        buckets.sort_unstable_by_key(|(bucket, _)| bucket.index());
        Statistics { buckets, entries: target.len() as u64 }
    }

    /// Adds the statistics of the chunk that follows.
    pub fn append(&mut self, next: Self) {
        self.entries += next.entries;
        append(&mut self.buckets, next.buckets, |statistics, next| statistics.append(&next));
    }
}

impl<E: Element, D: Domain<E>> BucketStatistics<E, D> {
    /// Without the sum: a mean cannot be told.
    pub fn of_extremes(count: u64, least: D::Delta, greatest: D::Delta) -> Self {
        BucketStatistics { count, least, greatest, sum: D::Sum::default() }
    }

    #[inline(always)]
    fn include(&mut self, i: usize, delta: D::Delta) {
        self.count += 1;
        self.sum.add(i, delta);
        // Without branches, which are guessed wrong where there are few entries.
        self.least = if delta < self.least { delta } else { self.least };
        self.greatest = if delta > self.greatest { delta } else { self.greatest };
    }

    fn append(&mut self, next: &Self) {
        self.count += next.count;
        self.sum.append(&next.sum);
        if next.least < self.least {
            self.least = next.least;
        }
        if next.greatest > self.greatest {
            self.greatest = next.greatest;
        }
    }

    pub fn midrange(&self) -> D::Delta {
        D::new().midrange(self.least, self.greatest)
    }

    /// The mean; the midrange where the sum has overflowed.
    pub fn mean(&self) -> D::Delta {
        self.sum.mean(self.count).unwrap_or_else(|| self.midrange())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::{Ordered, Value};
    use proptest::prelude::*;

    fn counts_are_those_of_the_statistics<E: Element, D: Domain<E>>(target: &[E], base: Against<'_, E>) {
        let statistics = Statistics::of_chunk(D::new(), target, base);
        let counts = Counts::of_chunk(D::new(), target, base);
        assert_eq!(counts.counts().collect::<Vec<_>>(), statistics.counts().collect::<Vec<_>>());
        assert_eq!(counts.entries(), statistics.entries());
    }

    proptest! {
        #[test]
        fn counts_alone_are_the_same(bits in prop::collection::vec((any::<u64>(), any::<u64>(), 0u8..4), 0..700)) {
            let pick = |of: fn(&(u64, u64, u8)) -> u64| bits.iter().map(of).map(f64::from_bits).collect::<Vec<f64>>();
            let (target, base) = (pick(|b| b.0), pick(|b| if b.2 == 0 { b.0 } else { b.1 }));
            let narrow = |wide: &[f64]| wide.iter().map(|x| f32::from_bits((x.to_bits() >> 32) as u32)).collect::<Vec<f32>>();
            let (t, b) = (narrow(&target), narrow(&base));
            counts_are_those_of_the_statistics::<f32, Value>(&t, Against::Base(&b));
            counts_are_those_of_the_statistics::<f32, Value>(&t, Against::Zero);
            counts_are_those_of_the_statistics::<f32, Ordered<true>>(&t, Against::Zero);
            counts_are_those_of_the_statistics::<f32, Ordered<false>>(&t, Against::Base(&b));
            counts_are_those_of_the_statistics::<f64, Value>(&target, Against::Base(&base));
            counts_are_those_of_the_statistics::<f64, Ordered<false>>(&target, Against::Zero);
        }
    }

    #[test]
    fn counts_of_chunks_add_up() {
        let target: Vec<f32> = (0..1000u16).map(|i| f32::from(i) * 0.37 - 50.0).collect();
        let mut all = Counts::default();
        target.chunks(300).for_each(|chunk| all.append(Counts::of_chunk(Value, chunk, Against::Zero)));
        assert_eq!(all, Counts::of_chunk(Value, &target, Against::Zero));
    }
}
