//! Which base a lossy record is coded against: the one before or zero.

use super::Job;
use crate::delta::{Bucket, Domain};
use crate::float::Element;
use crate::plan::Workers;
use crate::promote::{Estimate, Promotion};
use crate::spec::BaseChoice;
use crate::statistics::{Against, Counted, Counts};

/// The promoted buckets, against zero (true) where coding against that may be and [`Estimate::beats`] it, else against the previous base.
pub fn better_base<C: Counted>(promotion: Promotion, previous: &C, zero: Option<&C>) -> (bool, Vec<Bucket>) {
    let kept = promotion.choose(previous);
    let Some(zero) = zero else { return (false, kept) };
    let kept_of_zero = promotion.choose(zero);
    let top = kept.first().max(kept_of_zero.first()).map_or(0, |bucket| bucket.exponent);
    let from_zero = Estimate::of(zero, &kept_of_zero, top).beats(Estimate::of(previous, &kept, top));
    (from_zero, if from_zero { kept_of_zero } else { kept })
}

impl<E: Element, W: Workers> Job<'_, E, W> {
    /// Counts and promoted buckets against the previous base, or against zero where that is better.
    pub fn choose_base<D: Domain<E>>(&self, promotion: Promotion) -> (Counts, Vec<Bucket>, bool) {
        let previous = self.counts::<D>(self.against(false));
        let kept = promotion.choose(&previous);
        let error = |top| Estimate::of(&previous, &kept, top).squared_error;
        if self.lossy.base == BaseChoice::Previous || self.zero_is_worse::<D>(&kept, error) {
            return (previous, kept, false);
        }
        let zero = self.counts::<D>(Against::Zero);
        let (from_zero, kept) = better_base(promotion, &previous, Some(&zero));
        (if from_zero { zero } else { previous }, kept, from_zero)
    }

    /// Whether an eighth of the entries is off by more, if coded against zero, than all of them against the previous base:
    /// `error` tells that as an [`Estimate`]; `kept` are promoted.
    pub fn zero_is_worse<D: Domain<E>>(&self, kept: &[Bucket], error: impl Fn(u16) -> f64) -> bool {
        let eighth = Job { target: &self.target[..self.target.len() / 8], ..*self };
        let zero = eighth.counts::<D>(Against::Zero);
        let least = Estimate::least_error_of_part(&zero, self.target.len(), kept.first());
        least.is_some_and(|(least, top)| least > error(top))
    }
}
