//! Plans from the largest buckets alone, in one pass over target and base: the paper's of f32 values, and the levels that are
//! promoted of 16- and 32-bit floats.

use super::chunk_of;
use super::lossy::{Job, LossyPlan, Rule};
use super::sample::SAMPLED_FROM;
use crate::coding::{Coding, CodingChoice, FieldBits, Histogram};
use crate::delta::{Bucket, Domain, Value};
use crate::float::{Element, ElementType};
use crate::plan::Workers;
use crate::promote::{Estimate, Promotion, Representative};
use crate::quantize::Encoding;
use crate::spec::BaseChoice;
use crate::statistics::{BucketStatistics, Counted, Statistics};
use crate::tops::{self, Extremes, Found, Sums, Tops};
use std::any::TypeId;

impl<E: Element, W: Workers> Job<'_, E, W> {
    /// `None` where the plan needs more than this can tell.
    pub(super) fn plan_by_tops<D: Domain<E>>(
        &self,
        promotion: Promotion,
        rule: fn(Encoding<E, D>) -> Rule<E>,
    ) -> Option<LossyPlan<E>> {
        let Promotion::Buckets { bits } = promotion else { return None };
        let lossy = self.lossy;
        let plain = lossy.coding == CodingChoice::Plain && lossy.representative == Representative::Midrange;
        if !plain
            || self.predicted
            || lossy.base != BaseChoice::Previous
            || lossy.refinement > 0
            || lossy.bound.is_some()
        {
            return None;
        }
        let chunks = self.tops_of_chunks::<D>((1 << bits) - 1)?;
        let mut statistics = Statistics::default();
        chunks.iter().for_each(|chunk| statistics.append(chunk.clone()));
        let kept = promotion.choose(&statistics);
        let encoding = self.encoding(&statistics, &kept, self.refinement());
        let counts = count_symbols(&chunks, &kept);
        let coded = Coding::choose(&counts, encoding.quantizer.symbols(), FieldBits::default(), lossy.coding);
        Some(LossyPlan {
            rule: rule(encoding),
            chunk_log2: self.chunk_log2,
            from_zero: false,
            prediction: None,
            within: false,
            exceptions: 0,
            coarse: false,
            sampled: self.target.len() > SAMPLED_FROM,
            coded,
        })
    }

    fn tops_of_chunks<D: Domain<E>>(&self, most: usize) -> Option<Vec<Statistics<E, D>>> {
        if E::TYPE != ElementType::F32 || TypeId::of::<D>() != TypeId::of::<Value>() {
            return None;
        }
        // As a delta from zero is itself.
        let delta = |value: f32| D::new().delta(E::of_bits(value.to_bits().into()), E::ZERO);
        let of_top = |bucket: Bucket, found: &Extremes| {
            let (least, greatest) = found.ends(bucket.exponent.into(), bucket.negative);
            Some(BucketStatistics::of_extremes(found.entries(), delta(least)?, delta(greatest)?))
        };
        let mut chunks = Vec::with_capacity(self.chunks());
        let of_chunk = |number| statistics_of(&self.tops_of_chunk(number, most)?, self.chunk(number).0.len(), of_top);
        self.workers.in_order(self.chunks(), of_chunk, |chunk| chunks.extend(chunk));
        (chunks.len() == self.chunks()).then_some(chunks)
    }

    /// The levels that are promoted against the previous base, and their statistics. `None` where more than the largest buckets
    /// has to be known for that, or coding against zero might be better.
    pub(super) fn levels_by_tops<D: Domain<E>>(&self, promotion: Promotion) -> Option<(Vec<Bucket>, Statistics<E, D>)> {
        let Promotion::Levels(levels) = promotion else { return None };
        let summed = matches!(E::TYPE, ElementType::F32 | ElementType::BF16 | ElementType::F16)
            && TypeId::of::<D>() == TypeId::of::<Value>();
        let lossy = self.lossy;
        let means = lossy.representative == Representative::Mean && lossy.refinement == 0;
        if !summed || !means || self.largest_error.is_some() {
            return None;
        }
        let Summed { statistics, floor, rest } = self.sums_of_tops(2 * usize::from(levels))?;
        let kept = promotion.choose_from_tops(&statistics, floor)?;
        let error = |top| Estimate::of(&statistics, &kept, top).with_rest(rest, floor, top).squared_error;
        let previous = lossy.base == BaseChoice::Previous || self.zero_is_worse::<D>(&kept, error);
        previous.then_some((kept, statistics))
    }

    /// Sums of at least `most` buckets of each chunk.
    fn sums_of_tops<D: Domain<E>>(&self, most: usize) -> Option<Summed<E, D>> {
        let of_top = |bucket: Bucket, found: &Sums| {
            let sum = found.sum(bucket.exponent.into(), bucket.negative);
            Some(BucketStatistics::of_sum(found.entries(), sum))
        };
        let of_chunk = |number| {
            let entries = self.chunk(number).0.len();
            if self.unchanged(self.against(false), number) {
                return Some((Statistics { buckets: Vec::new(), entries: entries as u64 }, 0, 0));
            }
            let tops = self.tops_of_chunk(number, most)?;
            Some((statistics_of(&tops, entries, of_top)?, tops.floor, tops.changed))
        };
        let (mut statistics, mut floor, mut changed, mut known) = (Statistics::default(), 0, 0u64, true);
        self.workers.in_order(self.chunks(), of_chunk, |chunk| match chunk {
            None => known = false,
            Some((next, floor_of_next, changed_of_next)) => {
                statistics.append(next);
                floor = floor_of_next.max(floor);
                changed += changed_of_next;
            }
        });
        // Below, some chunks may have more than was found.
        statistics.buckets.retain(|(bucket, _)| bucket.exponent >= floor);
        // Where another thread changes the tensor, more may be found than had changed.
        let rest = changed.saturating_sub(statistics.counts().map(|(_, count)| count).sum());
        known.then_some(Summed { statistics, floor, rest })
    }

    fn tops_of_chunk<F: Found>(&self, number: usize, most: usize) -> Option<Tops<F>> {
        let (target, base) = self.chunk(number);
        tops::find(target, base, most)
    }

    fn chunk(&self, number: usize) -> (&[E], &[E]) {
        let of = |elements| chunk_of(elements, self.chunk_log2, number);
        (of(self.target), of(self.base))
    }
}

/// What is known of the largest buckets.
struct Summed<E: Element, D: Domain<E>> {
    /// Of all buckets of the exponent `floor` or a larger one.
    statistics: Statistics<E, D>,
    floor: u16,
    /// Entries of the others.
    rest: u64,
}

/// Of a chunk of so many entries.
fn statistics_of<E: Element, D: Domain<E>, F>(
    tops: &Tops<F>,
    entries: usize,
    of_top: impl Fn(Bucket, &F) -> Option<BucketStatistics<E, D>>,
) -> Option<Statistics<E, D>> {
    let of_top = |(bucket, found): &(Bucket, F)| Some((*bucket, of_top(*bucket, found)?));
    let mut buckets: Vec<_> = tops.found.iter().map(of_top).collect::<Option<_>>()?;
    buckets.sort_unstable_by_key(|(bucket, _)| bucket.index());
    Some(Statistics { buckets, entries: entries as u64 })
}

/// Counts of the symbols of the chunks that are written: those with a promoted entry.
fn count_symbols<E: Element, D: Domain<E>>(chunks: &[Statistics<E, D>], kept: &[Bucket]) -> Histogram {
    let mut counts = Histogram::default();
    for chunk in chunks {
        let mut marked = 0;
        for (bucket, statistics) in &chunk.buckets {
            if let Some(at) = kept.iter().position(|promoted| promoted == bucket) {
                counts.symbols[at + 1] += statistics.count;
                marked += statistics.count;
            }
        }
        if marked > 0 {
            // Where another thread changes the tensor, some entries may be counted twice.
            let unmarked = chunk.entries.saturating_sub(marked);
            counts.symbols[0] += unmarked;
            counts.elements += unmarked + marked;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Serial;
    use crate::plan::lossy::better_base;
    use crate::spec::{Lossy, Spec};
    use crate::statistics::Against;
    use half::{bf16, f16};
    use proptest::prelude::*;

    /// Tells whether the levels were found by the largest buckets alone.
    fn levels_are_those_of_all_counts<E: Element>(lossy: &Lossy, target: &[E], base: &[E]) -> bool {
        let workers = &Serial;
        let job = Job { lossy, chunk_log2: 7, target, base, predicted: false, largest_error: None, of: None, workers };
        let promotion = lossy.promotion;
        let Some((kept, statistics)) = job.levels_by_tops::<Value>(promotion) else { return false };
        let previous = job.counts::<Value>(job.against(false));
        let zero = (lossy.base != BaseChoice::Previous).then(|| job.counts::<Value>(Against::Zero));
        let (from_zero, expected) = better_base(promotion, &previous, zero.as_ref());
        assert_eq!((&kept, from_zero), (&expected, false));
        let of_all = job.statistics::<Value>(job.against(false), &expected, 0);
        let representatives =
            |of: &Statistics<E, Value>| job.encoding(of, &kept, 0).quantizer.representatives().to_vec();
        assert_eq!(representatives(&statistics), representatives(&of_all));
        true
    }

    fn value() -> impl Strategy<Value = f32> {
        prop_oneof![
            4 => -2.0f32..2.0,
            2 => (-30i32..5, -2.0f32..2.0).prop_map(|(e, x)| x * 2f32.powi(e)),
            1 => Just(0.0),
        ]
    }

    proptest! {
        #[test]
        fn levels_are_found_by_the_largest_buckets(
            pairs in prop::collection::vec((value(), value()), 1..600), scale in -12i32..6, levels in 1u8..=7, previous in any::<bool>(),
        ) {
            let mut lossy = Spec::lossy(levels).lossy.expect("lossy");
            if previous {
                lossy.base = BaseChoice::Previous;
            }
            let base: Vec<f32> = pairs.iter().map(|pair| pair.1).collect();
            let target: Vec<f32> = pairs.iter().map(|pair| pair.1 + pair.0 * 2f32.powi(scale)).collect();
            levels_are_those_of_all_counts(&lossy, &target, &base);
            let halves = |of: &[f32]| of.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>();
            levels_are_those_of_all_counts(&lossy, &halves(&target), &halves(&base));
            let halves = |of: &[f32]| of.iter().map(|x| f16::from_f32(*x)).collect::<Vec<_>>();
            levels_are_those_of_all_counts(&lossy, &halves(&target), &halves(&base));
        }
    }

    #[test]
    fn more_counts_than_entries_are_no_fewer_than_none() {
        let bucket = Bucket { exponent: 127, negative: false };
        let of_bucket = BucketStatistics::of_sum(10, 10.0);
        let chunk = Statistics::<f32, Value> { buckets: vec![(bucket, of_bucket)], entries: 8 };
        let counts = count_symbols(&[chunk], &[bucket]);
        assert_eq!((counts.symbols[0], counts.symbols[1], counts.elements), (0, 10, 10));
    }

    #[test]
    fn zero_is_left_out_only_where_it_is_worse() {
        let lossy = Spec::lossy(3).lossy.expect("lossy");
        let base: Vec<f32> = (0..4096).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
        // As large as before, and a thousandth of it: there zero is nearer.
        let near: Vec<f32> = base.iter().map(|b| b * 1.001).collect();
        let far: Vec<f32> = base.iter().map(|b| b / 1000.0).collect();
        assert!(levels_are_those_of_all_counts(&lossy, &near, &base));
        assert!(!levels_are_those_of_all_counts(&lossy, &far, &base));
        let halves = |of: &[f32]| of.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>();
        let near: Vec<f32> = base.iter().map(|b| b * 1.1).collect();
        assert!(levels_are_those_of_all_counts(&lossy, &halves(&near), &halves(&base)));
        assert!(!levels_are_those_of_all_counts(&lossy, &halves(&far), &halves(&base)));
        let halves = |of: &[f32]| of.iter().map(|x| f16::from_f32(*x)).collect::<Vec<_>>();
        assert!(levels_are_those_of_all_counts(&lossy, &halves(&near), &halves(&base)));
        assert!(!levels_are_those_of_all_counts(&lossy, &halves(&far), &halves(&base)));
    }

    #[test]
    fn a_few_large_entries_are_no_levels() {
        let lossy = Spec::lossy(3).lossy.expect("lossy");
        let base: Vec<f32> = (0..1 << 17).map(|i| 1.0 + (i % 1000) as f32 / 1000.0).collect();
        let mut target: Vec<f32> = base.iter().enumerate().map(|(i, b)| b + (i % 77) as f32 * 1e-5).collect();
        assert!(levels_are_those_of_all_counts(&lossy, &target, &base));
        target[70_000] += 0.002;
        assert!(levels_are_those_of_all_counts(&lossy, &target, &base));
        // Beyond what one pass finds.
        target[7] += 100.0;
        assert!(levels_are_those_of_all_counts(&lossy, &target, &base));
        // In one chunk as many exponents as are looked for, and all are rare.
        (0..6).for_each(|k| target[10 * k] += 2f32.powi(2 * k as i32 + 1));
        assert!(!levels_are_those_of_all_counts(&lossy, &target, &base));
    }
}
