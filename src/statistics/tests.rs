//! Counts and statistics against those taken entry by entry.

use super::*;
use crate::delta::{Ordered, Value};
use proptest::prelude::*;
use std::collections::BTreeMap;

impl<E: Element, D: Domain<E>> Statistics<E, D> {
    /// The statistics of all buckets in one chunk.
    pub fn of_chunk(domain: D, target: &[E], base: Against<'_, E>) -> Self {
        let all: Vec<Bucket> = Counts::of_chunk(domain, target, base).counts().map(|(bucket, _)| bucket).collect();
        Self::of_buckets(domain, target, base, &all, true)
    }
}

/// Entry by entry.
fn plain<E: Element, D: Domain<E>>(target: &[E], base: Against<'_, E>) -> BTreeMap<usize, Vec<(usize, D::Delta)>> {
    let mut all: BTreeMap<usize, Vec<(usize, D::Delta)>> = BTreeMap::new();
    for (i, &t) in target.iter().enumerate() {
        if let Some((bucket, delta)) = bucket_of(D::new(), t, base.at(i)) {
            all.entry(bucket.index()).or_default().push((i, delta));
        }
    }
    all
}

/// The mean of values, summed in eight lanes.
fn mean<E: Element, D: Domain<E>>(entries: &[(usize, D::Delta)]) -> f64 {
    let mut l = [0.0; 8];
    entries.iter().for_each(|(i, delta)| l[i % 8] += D::size(*delta));
    (((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))) / entries.len() as f64
}

fn are_those_of_all_entries<E: Element, D: Domain<E>>(target: &[E], base: Against<'_, E>) {
    let expected = plain::<E, D>(target, base);
    let counts = Counts::of_chunk(D::new(), target, base);
    assert_eq!(counts.entries(), target.len() as u64);
    let found: Vec<(usize, u64)> = counts.counts().map(|(bucket, count)| (bucket.index(), count)).collect();
    assert_eq!(found, expected.iter().map(|(&index, of)| (index, of.len() as u64)).collect::<Vec<_>>());
    // Every second one, the highest first, and one that has no entries.
    let absent = (0..D::BUCKETS).find(|index| !expected.contains_key(index));
    let wanted = expected.keys().copied().rev().step_by(2).chain(absent);
    let wanted: Vec<Bucket> = wanted.map(Bucket::of_index).collect();
    let statistics = Statistics::<E, D>::of_buckets(D::new(), target, base, &wanted, true);
    assert_eq!(statistics.buckets.len(), expected.len().div_ceil(2));
    assert!(statistics.buckets.is_sorted_by_key(|(bucket, _)| bucket.index()));
    for (bucket, of) in &statistics.buckets {
        let entries = &expected[&bucket.index()];
        let deltas = || entries.iter().map(|(_, delta)| *delta);
        assert_eq!(of.count, entries.len() as u64);
        assert!(deltas().all(|delta| of.least <= delta && delta <= of.greatest));
        assert!(deltas().any(|delta| delta == of.least) && deltas().any(|delta| delta == of.greatest));
        let (told, plain) = (D::size(of.mean()), mean::<E, D>(entries));
        let overflows = !plain.is_finite();
        assert!(overflows || (told - plain).abs() <= plain.abs() * 1e-7 + 1.0 / 2.0, "{told} {plain}");
    }
}

/// The sums of values are the same to the last bit.
fn sums_are_in_lanes(target: &[f64], base: &[f64]) {
    let expected = plain::<f64, Value>(target, Against::Base(base));
    let wanted: Vec<Bucket> = expected.keys().map(|&index| Bucket::of_index(index)).collect();
    for (bucket, of) in Statistics::<f64, Value>::of_buckets(Value, target, Against::Base(base), &wanted, true).buckets
    {
        let plain = mean::<f64, Value>(&expected[&bucket.index()]);
        assert!(!plain.is_finite() || of.mean().to_bits() == plain.to_bits());
    }
}

proptest! {
    #[test]
    fn counts_and_statistics_are_those_of_all_entries(
        bits in prop::collection::vec((any::<u64>(), any::<u64>(), 0u8..4, -3i64..3), 0..700),
    ) {
        let of_target = |b: &(u64, u64, u8, i64)| f64::from_bits(if b.2 == 3 { b.1.wrapping_add_signed(b.3) } else { b.0 });
        let target: Vec<f64> = bits.iter().map(of_target).collect();
        let base: Vec<f64> = bits.iter().map(|b| f64::from_bits(if b.2 == 0 { b.0 } else { b.1 })).collect();
        let narrow = |wide: &[f64]| wide.iter().map(|x| f32::from_bits((x.to_bits() >> 32) as u32)).collect::<Vec<f32>>();
        let (t, b) = (narrow(&target), narrow(&base));
        are_those_of_all_entries::<f32, Value>(&t, Against::Base(&b));
        are_those_of_all_entries::<f32, Value>(&t, Against::Zero);
        are_those_of_all_entries::<f32, Ordered<true>>(&t, Against::Zero);
        are_those_of_all_entries::<f32, Ordered<false>>(&t, Against::Base(&b));
        are_those_of_all_entries::<f64, Value>(&target, Against::Base(&base));
        are_those_of_all_entries::<f64, Ordered<false>>(&target, Against::Zero);
        sums_are_in_lanes(&target, &base);
    }
}

#[test]
fn counts_of_chunks_add_up() {
    let target: Vec<f32> = (0..1000u16).map(|i| f32::from(i) * 0.37 - 50.0).collect();
    let mut all = Counts::default();
    target.chunks(300).for_each(|chunk| all.append(Counts::of_chunk(Value, chunk, Against::Zero)));
    assert_eq!(all, Counts::of_chunk(Value, &target, Against::Zero));
}
