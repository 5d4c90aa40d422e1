//! What is known of the buckets of a tensor or a chunk: how many entries each has, and their extremes and sums.

use crate::delta::{BLOCK, Bucket, Domain, Summation};
use crate::float::Element;
use crate::simd::wide;
use crate::tally::{TURNS, Tally, tally, total};
use std::cell::RefCell;

thread_local! {
    /// By index of a bucket: its entries; all 0 between chunks.
    static TALLIES: RefCell<Vec<Tally>> = RefCell::default();
}

/// How many entries each bucket has: all that promotion looks at.
pub trait Counted {
    fn entries(&self) -> u64;

    /// Of the buckets that are not empty, rising by [`Bucket::index`].
    fn counts(&self) -> impl DoubleEndedIterator<Item = (Bucket, u64)>;
}

/// What is known of one bucket; of extremes only where they are asked for.
#[derive(Debug, Clone)]
pub struct BucketStatistics<E: Element, D: Domain<E>> {
    pub count: u64,
    pub least: D::Delta,
    pub greatest: D::Delta,
    sum: D::Sum,
}

/// Some buckets of a tensor, or of a chunk: those that are not empty.
#[derive(Debug, Clone)]
pub struct Statistics<E: Element, D: Domain<E>> {
    /// Rising by [`Bucket::index`].
    pub buckets: Vec<(Bucket, BucketStatistics<E, D>)>,
    /// Of the chunks that were looked at, in any bucket or none.
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
    /// Of entries that are in no bucket.
    pub fn none(entries: usize) -> Self {
        Counts { buckets: Vec::new(), entries: entries as u64 }
    }

    /// The counts of one chunk, of fewer than 2^32 entries.
    pub fn of_chunk<E: Element, D: Domain<E>>(domain: D, target: &[E], base: Against<'_, E>) -> Self {
        TALLIES.with_borrow_mut(|tallies| {
            // The first is of what is in no bucket.
            tallies.resize(tallies.len().max(1 + D::BUCKETS), [0; TURNS]);
            tally_buckets(domain, target, base, &mut tallies[..]);
            let of_buckets = tallies[1..=D::BUCKETS].iter().enumerate().filter(|(_, tally)| **tally != [0; TURNS]);
            let buckets = of_buckets.map(|(index, &tally)| (Bucket::of_index(index), total(tally))).collect();
            tallies[..=D::BUCKETS].fill([0; TURNS]);
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

fn tally_buckets<E: Element, D: Domain<E>>(domain: D, target: &[E], base: Against<'_, E>, tallies: &mut [Tally]) {
    let mut places = [0u16; BLOCK];
    for (number, target) in target.chunks(BLOCK).enumerate() {
        let base = base.part(number * BLOCK, target.len());
        find_places(domain, target, base, &mut places[..target.len()]);
        tally(&places[..target.len()], tallies);
    }
}

wide! {
    /// One more than the index of each entry's bucket, 0 for those in none.
    fn find_places[E: Element, D: Domain<E>](domain: D, target: &[E], base: Against<'_, E>, places: &mut [u16]) -> () {
        for (i, (place, &t)) in places.iter_mut().zip(target).enumerate() {
            *place = bucket_of(domain, t, base.at(i)).map_or(0, |(bucket, _)| place_of(bucket));
        }
    }
}

wide! {
    /// Counts and sums the entries of some buckets of a chunk.
    fn add_sums[E: Element, D: Domain<E>](
        domain: D,
        target: &[E],
        base: Against<'_, E>,
        found: &mut [(Bucket, BucketStatistics<E, D>)],
    ) -> () {
        let (zeros, mut copy) = ([E::ZERO; BLOCK], [E::ZERO; BLOCK]);
        for (number, target) in target.chunks(BLOCK).enumerate() {
            // What another thread changes meanwhile must be in the bucket that it is counted in: the mean of others may be zero.
            copy[..target.len()].copy_from_slice(target);
            let target = &copy[..target.len()];
            // Entries of no bucket fill up the last block. Places as wide as sums are compared most quickly.
            let (mut narrow, mut places, mut terms) = ([0; BLOCK], [0; BLOCK], [Default::default(); BLOCK]);
            let base = base.part(number * BLOCK, target.len());
            find_places(domain, target, base, &mut narrow[..target.len()]);
            places.iter_mut().zip(narrow).for_each(|(wide, place)| *wide = u64::from(place));
            let base = match base {
                Against::Zero => &zeros[..target.len()],
                Against::Base(base) => base,
            };
            for (term, (&t, &b)) in terms.iter_mut().zip(target.iter().zip(base)) {
                *term = D::Sum::term(domain.delta(t, b).unwrap_or_default());
            }
            for (bucket, statistics) in &mut *found {
                let place = u64::from(place_of(*bucket));
                let count: u64 = places.iter().map(|&of| u64::from(of == place)).sum();
                if count > 0 {
                    statistics.count += count;
                    statistics.sum.add(&terms, &places, place);
                }
            }
        }
    }
}

/// Finds the extremes of some buckets of a chunk.
fn find_extremes<E: Element, D: Domain<E>>(
    domain: D,
    target: &[E],
    base: Against<'_, E>,
    found: &mut [(Bucket, BucketStatistics<E, D>)],
) {
    let mut extremes: Vec<Option<(D::Delta, D::Delta)>> = vec![None; D::BUCKETS];
    for (i, &t) in target.iter().enumerate() {
        if let Some((bucket, delta)) = bucket_of(domain, t, base.at(i)) {
            let (least, greatest) = extremes[bucket.index()].get_or_insert((delta, delta));
            *least = if delta < *least { delta } else { *least };
            *greatest = if delta > *greatest { delta } else { *greatest };
        }
    }
    for (bucket, statistics) in found {
        match extremes[bucket.index()] {
            Some(found) => (statistics.least, statistics.greatest) = found,
            // Another thread has changed what was counted.
            None => statistics.count = 0,
        }
    }
}

/// One more than the bucket's index: 0 is of entries in no bucket.
#[inline(always)]
fn place_of(bucket: Bucket) -> u16 {
    bucket.index() as u16 + 1
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

impl<'a, E: Element> Against<'a, E> {
    /// For some entries of those that this is for.
    pub fn part(self, start: usize, entries: usize) -> Self {
        match self {
            Against::Zero => Against::Zero,
            Against::Base(base) => Against::Base(&base[start..start + entries]),
        }
    }

    #[inline(always)]
    pub fn at(&self, i: usize) -> E {
        match self {
            Against::Zero => E::ZERO,
            Against::Base(base) => base[i],
        }
    }
}

impl<E: Element, D: Domain<E>> Statistics<E, D> {
    /// The statistics of these buckets in one chunk. Extremes are only told if they are asked for.
    pub fn of_buckets(domain: D, target: &[E], base: Against<'_, E>, wanted: &[Bucket], extremes: bool) -> Self {
        let mut found: Vec<(Bucket, BucketStatistics<E, D>)> =
            wanted.iter().map(|&bucket| (bucket, BucketStatistics::default())).collect();
        add_sums(domain, target, base, &mut found);
        if extremes {
            find_extremes(domain, target, base, &mut found);
        }
        found.retain(|(_, statistics)| statistics.count > 0);
        found.iter_mut().for_each(|(_, statistics)| statistics.sum.close_chunk());
        found.sort_unstable_by_key(|(bucket, _)| bucket.index());
        Statistics { buckets: found, entries: target.len() as u64 }
    }

    /// Adds the statistics of the chunk that follows.
    pub fn append(&mut self, next: Self) {
        self.entries += next.entries;
        append(&mut self.buckets, next.buckets, |statistics, next| statistics.append(&next));
    }
}

impl<E: Element, D: Domain<E>> Default for BucketStatistics<E, D> {
    fn default() -> Self {
        Self::of_extremes(0, D::Delta::default(), D::Delta::default())
    }
}

impl<E: Element, D: Domain<E>> BucketStatistics<E, D> {
    /// Without the sum: a mean cannot be told.
    pub fn of_extremes(count: u64, least: D::Delta, greatest: D::Delta) -> Self {
        BucketStatistics { count, least, greatest, sum: D::Sum::default() }
    }

    /// Without extremes: a midrange cannot be told.
    pub fn of_sum(count: u64, sum: f64) -> Self {
        BucketStatistics { count, sum: D::Sum::of_total(sum), ..Self::default() }
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
mod tests;
