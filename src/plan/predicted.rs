//! Plans against a predicted base (format.md, section 9).

use super::kept::Kept;
use super::sample::{SAMPLED_FROM, Sample, Source};
use super::{ExactPlan, LossyPlan, Plan, Workers};
use crate::float::{Arith, Element};
use crate::header::chunk_count;
use crate::predict::{Fit, Formula, Prediction, Sampled, Siblings};
use crate::spec::{Lossy, Spec};

/// Entries that a fit looks at, in runs of a line of cache of f32.
const FIT_RUNS: usize = 1024;
const FIT_RUN: usize = 16;

/// A tensor with its previous reconstruction and what a formula reads of its siblings.
#[derive(Clone, Copy)]
pub struct Relatives<'a, E> {
    pub target: &'a [E],
    pub base: &'a [E],
    pub siblings: Siblings<'a, E>,
    pub chunk_log2: u8,
}

/// What a predicted record is planned from: the predicted base of all entries, or samples of targets and predicted bases.
pub enum Expected<E> {
    Whole(Vec<E>),
    Samples { spread: Sample<E>, blocks: Sample<E> },
}

type Gather<'f, E> = &'f dyn Fn(&Source<'_, E>) -> Sample<E>;

impl<E: Element> Relatives<'_, E> {
    /// The dials of lossy coding, where the tensor is coded lossily.
    fn lossy<'s>(&self, spec: &'s Spec) -> Option<&'s Lossy> {
        spec.lossy.as_ref().filter(|lossy| self.target.len() >= lossy.least_elements)
    }

    /// Coefficients for a formula; `records`: the siblings' numbers. `None` where nothing fits.
    fn fit(&self, sample: &Sampled, formula: Formula, records: &[u32]) -> Option<(Prediction, f64)> {
        let Fit { coefficients, left } = formula.fit(sample)?;
        let rounded: Vec<f64> = coefficients.iter().map(|&c| E::A::of_f64(c).to_f64()).collect();
        let prediction = Prediction { formula, siblings: records.to_vec(), coefficients: rounded };
        prediction.is_sound().then_some((prediction, left))
    }

    fn fit_sample(&self) -> Sampled {
        let sampled = self.target.len() > FIT_RUNS * FIT_RUN;
        let wide = |elements: &[E]| elements.iter().map(|e| e.to_arith().to_f64()).collect();
        let gather = |elements: &[E]| match elements {
            [] => Vec::new(),
            _ if sampled => wide(&self.gathered(&|source| source.gather(FIT_RUNS, FIT_RUN), elements)),
            _ => wide(elements),
        };
        let Siblings { s, t, before } = self.siblings;
        Sampled {
            target: gather(self.target),
            base: gather(self.base),
            s: gather(s),
            t: gather(t),
            before: gather(before),
        }
    }

    /// The predicted base, as far as a plan needs it.
    pub fn expected(&self, prediction: &Prediction, whole: bool) -> Expected<E> {
        if whole || self.target.len() <= SAMPLED_FROM {
            let mut base = self.base.to_vec();
            prediction.predict(&mut base, self.siblings);
            return Expected::Whole(base);
        }
        let sample = |gather: Gather<'_, E>| {
            let of = |elements: &[E]| self.gathered(gather, elements);
            let Siblings { s, t, before } = self.siblings;
            let (mut base, s, t, before) = (of(self.base), of(s), of(t), of(before));
            prediction.predict(&mut base, Siblings { s: &s, t: &t, before: &before });
            Sample::new(of(self.target), Some(base))
        };
        Expected::Samples { spread: sample(&|source| source.spread()), blocks: sample(&|source| source.blocks()) }
    }

    /// Some entries of `elements`, the same of each of the tensors; of none, none.
    fn gathered(&self, gather: Gather<'_, E>, elements: &[E]) -> Kept<E> {
        if elements.is_empty() {
            return Kept::with_room(0);
        }
        let chunks: Vec<usize> = (0..chunk_count(elements.len(), self.chunk_log2)).collect();
        let source = Source { target: elements, base: None, chunk_log2: self.chunk_log2, chunks: &chunks };
        gather(&source).target
    }
}

impl Prediction {
    /// Whether the formula can be evaluated with these coefficients, and second moments stay what they are: not negative.
    fn is_sound(&self) -> bool {
        let c = &self.coefficients;
        let fits = match self.formula {
            Formula::Direction => true,
            Formula::AdaptiveDirection => c[2] > 0.0,
            Formula::SecondMoment => c[0] >= 0.0 && c[1] >= 0.0,
        };
        fits && c.iter().all(|c| c.is_finite())
    }

    /// The prediction that nothing changes.
    pub fn none(formula: Formula, records: &[u32]) -> Self {
        let (_, count) = formula.arity();
        let coefficients = [1.0, 0.0, 1.0][..count].to_vec();
        Prediction { formula, siblings: records.to_vec(), coefficients }
    }
}

/// What a prediction has to beat.
#[derive(Debug, Clone, Copy)]
pub struct Without {
    /// Estimated bytes of the record without it.
    pub bytes: u64,
    /// And its squared error over the entries that plans are made from.
    pub squared_error: f64,
}

impl Without {
    /// No prediction is refused.
    pub const ANYTHING: Self = Without { bytes: u64::MAX, squared_error: f64::INFINITY };
}

/// Bytes that a prediction adds to a header, about.
const HEADER_BYTES: u64 = 16;

/// A prediction must take a twentieth less than what is coded without: whoever reads such a tensor reads its siblings too.
const WORTH: u64 = 20;

/// A prediction must leave no more than this share of a lossy tensor's delta's energy.
const ENERGY_LEFT: f64 = 0.9;

impl<E: Element> Plan<E> {
    /// A plan for a tensor whose base is predicted by `formula`, if it takes less than the one without, and has no larger error:
    /// of those with fewer levels, which a good prediction needs, the first that has not.
    pub fn predicted(
        spec: &Spec,
        of: &Relatives<'_, E>,
        (formula, records): (Formula, &[u32]),
        without: Without,
        workers: &impl Workers,
    ) -> Option<Self> {
        let sample = of.fit_sample();
        let (prediction, left) = of.fit(&sample, formula, records)?;
        let plan = match of.lossy(spec) {
            // What is nowhere negative must not become so.
            Some(_) if left > ENERGY_LEFT || (sample.is_non_negative() && formula != Formula::SecondMoment) => {
                return None;
            }
            Some(lossy) => {
                let plan = LossyPlan::predicted(lossy, of, prediction, Some(without.squared_error), workers);
                Plan::Lossy(if plan.is_within() { plan } else { return None })
            }
            None => Plan::Exact(ExactPlan::predicted(of, prediction, workers)),
        };
        (plan.bytes().saturating_add(HEADER_BYTES) < without.bytes - without.bytes / WORTH).then_some(plan)
    }

    /// The plan for a tensor that is coded after its siblings although they say nothing of it.
    pub fn unpredicted(
        spec: &Spec,
        of: &Relatives<'_, E>,
        formula: Formula,
        records: &[u32],
        workers: &impl Workers,
    ) -> Self {
        let prediction = Prediction::none(formula, records);
        match of.lossy(spec) {
            Some(lossy) => Plan::Lossy(LossyPlan::predicted(lossy, of, prediction, None, workers)),
            None => Plan::Exact(ExactPlan::predicted(of, prediction, workers)),
        }
    }

    /// What a prediction has to beat this plan.
    pub fn to_beat(&self, target: &[E], base: &[E], chunk_log2: u8) -> Without {
        let squared_error = match self {
            Plan::Lossy(plan) => {
                let of = Relatives { target, base, siblings: Siblings::NONE, chunk_log2 };
                if plan.is_sampled() {
                    let spread: Gather<'_, E> = &|source| source.spread();
                    plan.squared_error(&of.gathered(spread, target), &of.gathered(spread, base))
                } else {
                    plan.squared_error(target, base)
                }
            }
            Plan::Same(_) | Plan::Exact(_) => 0.0,
        };
        Without { bytes: self.bytes(), squared_error }
    }

    pub(super) fn prediction(&self) -> Option<&Prediction> {
        match self {
            Plan::Same(_) => None,
            Plan::Lossy(plan) => plan.prediction(),
            Plan::Exact(plan) => plan.prediction(),
        }
    }

    /// About how many bytes the record will have.
    fn bytes(&self) -> u64 {
        match self {
            Plan::Same(_) => 0,
            Plan::Lossy(plan) => plan.bytes(),
            Plan::Exact(plan) => plan.bytes(),
        }
    }
}
