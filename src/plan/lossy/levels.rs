//! How many levels a predicted record needs: the fewest whose error is allowed.

use super::job::Job;
use crate::delta::{Bucket, Domain};
use crate::float::Element;
use crate::plan::Workers;
use crate::promote::Promotion;
use crate::quantize::{Coded, Encoding};
use crate::statistics::{Counts, Statistics};

impl<E: Element, W: Workers> Job<'_, E, W> {
    /// The encoding with the fewest levels, perhaps none, whose error is no larger than allowed.
    pub(super) fn with_fewer_levels<D: Domain<E>>(
        &self,
        promotion: Promotion,
        counts: &Counts,
        statistics: &Statistics<E, D>,
    ) -> Option<Encoding<E, D>> {
        let (Some(largest), Promotion::Levels(most)) = (self.largest_error, promotion) else { return None };
        let encodings = |levels: u8| self.with_levels(levels, counts, statistics);
        let errors = self.errors_by_levels(most, &encodings(most), &promotion.choose(counts));
        let levels = errors.iter().position(|error| *error <= largest)?;
        Some(encodings(levels as u8))
    }

    fn with_levels<D: Domain<E>>(&self, levels: u8, counts: &Counts, statistics: &Statistics<E, D>) -> Encoding<E, D> {
        if levels == 0 {
            return Encoding::of_nothing(D::new());
        }
        let kept = Promotion::Levels(levels).choose(counts);
        self.encoding(statistics, &kept, self.refinement())
    }

    /// The squared error with 0, 1 .. `most` levels, from one pass with them all; `kept`: the buckets that these promote.
    fn errors_by_levels<D: Domain<E>>(&self, most: u8, encoding: &Encoding<E, D>, kept: &[Bucket]) -> Vec<f64> {
        let domain = D::new();
        let square = |delta: Option<D::Delta>| delta.map_or(0.0, |delta| D::size(delta) * D::size(delta));
        // By symbol: left by the promoted entries, and left if they are not promoted.
        let (mut promoted, mut plain) = ([0.0; 1 << 8], [0.0; 1 << 8]);
        // Of exceptions above all levels: with any level they have no error.
        let mut above = 0.0;
        for (&t, &b) in self.target.iter().zip(self.base) {
            let delta = domain.delta(t, b).filter(|_| t.finite());
            let before = square(delta);
            match encoding.code(t, b) {
                Coded::Kept => plain[0] += before,
                Coded::Symbol { symbol, element, .. } => {
                    plain[usize::from(symbol)] += before;
                    promoted[usize::from(symbol)] += square(domain.delta(t, element));
                }
                Coded::Exception => {
                    // A reconstruction that is not finite: only as long as its bucket is promoted.
                    let bucket = delta.and_then(|delta| domain.bucket(delta));
                    match kept.iter().position(|kept| Some(*kept) == bucket) {
                        Some(at) => plain[at + 1] += before,
                        None => above += before,
                    }
                }
            }
        }
        let mut exponents: Vec<u16> = kept.iter().map(|bucket| bucket.exponent).collect();
        exponents.dedup();
        let of_levels = |levels: usize| {
            let last = exponents[..levels.min(exponents.len())].last();
            let of_symbol = |(symbol, bucket): (usize, &Bucket)| {
                let is_kept = last.is_some_and(|last| bucket.exponent >= *last);
                if is_kept { promoted[symbol] } else { plain[symbol] }
            };
            let others = plain[0] + if levels == 0 { above } else { 0.0 };
            others + (1..).zip(kept).map(of_symbol).sum::<f64>()
        };
        (0..=usize::from(most)).map(of_levels).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::squared_error;
    use super::*;
    use crate::delta::{Ordered, Value};
    use crate::plan::Serial;
    use crate::spec::Spec;
    use crate::statistics::Against;
    use half::f16;
    use proptest::prelude::*;

    fn one_pass_is_as_many<E: Element, D: Domain<E>>(target: &[E], base: &[E], most: u8) {
        let lossy = Spec::lossy(most).lossy.expect("lossy");
        let workers = &Serial;
        let job = Job {
            lossy: &lossy,
            chunk_log2: 16,
            target,
            base,
            predicted: true,
            largest_error: None,
            of: None,
            workers,
        };
        let counts = Counts::of_chunk(D::new(), target, Against::Base(base));
        let kept = Promotion::Levels(most).choose(&counts);
        let statistics = Statistics::<E, D>::of_buckets(D::new(), target, Against::Base(base), &kept, false);
        let errors = job.errors_by_levels(most, &job.with_levels(most, &counts, &statistics), &kept);
        for (levels, error) in (0..=most).zip(errors) {
            let alone = squared_error(&job.with_levels(levels, &counts, &statistics), false, target, base);
            assert!((error - alone).abs() <= 1e-12 * alone.abs().max(error), "{levels} levels: {error} {alone}");
        }
    }

    #[test]
    fn a_bucket_that_has_lost_its_entries_has_no_symbol() {
        let lossy = Spec::lossy(3).lossy.expect("lossy");
        let target = [8.0f32, -8.5, 4.0, -4.5, 2.0, -2.5, 9.0, 0.0];
        let base = [0.0; 8];
        let job = Job {
            lossy: &lossy,
            chunk_log2: 16,
            target: &target,
            base: &base,
            predicted: false,
            largest_error: None,
            of: None,
            workers: &Serial,
        };
        let kept = Promotion::Levels(3).choose(&Counts::of_chunk(Value, &target, Against::Base(&base)));
        let statistics = Statistics::of_buckets(Value, &target, Against::Base(&base), &kept, false);
        let whole = job.encoding(&statistics, &kept, 0);
        for lost in &kept {
            let mut fewer = statistics.clone();
            fewer.buckets.retain(|(bucket, _)| bucket != lost);
            let encoding = job.encoding(&fewer, &kept, 0);
            assert_eq!(usize::from(encoding.quantizer.symbols()), kept.len() - 1);
            for t in target {
                let element = |coded| if let Coded::Symbol { element, .. } = coded { Some(element) } else { None };
                let is_lost = Domain::<f32>::bucket(Value, t) == Some(*lost);
                let expected = element(whole.code(t, 0.0)).filter(|_| !is_lost);
                assert_eq!(element(encoding.code(t, 0.0)), expected, "{t} without {lost:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn errors_of_all_levels_are_those_of_each(
            pairs in prop::collection::vec((any::<u16>(), -8i32..8, any::<u16>(), 0u8..4), 1..300), most in 1u8..=7,
        ) {
            let base: Vec<f16> = pairs.iter().map(|p| f16::from_bits(p.0)).collect();
            let near = |p: &(u16, i32, u16, u8)| if p.3 == 0 { p.2 } else { p.0.wrapping_add(p.1 as u16) };
            let target: Vec<f16> = pairs.iter().map(|p| f16::from_bits(near(p))).collect();
            one_pass_is_as_many::<f16, Value>(&target, &base, most);
            one_pass_is_as_many::<f16, Ordered<false>>(&target, &base, most);
            let wide = |of: &[f16]| of.iter().map(|x| x.to_f32() * 3.1).collect::<Vec<f32>>();
            one_pass_is_as_many::<f32, Value>(&wide(&target), &wide(&base), most);
        }
    }
}
