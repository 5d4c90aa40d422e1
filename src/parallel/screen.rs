//! Screening pairs of tensors for being siblings, by a few words of bits of each.
//!
//! Two properties of the same entries, each above or below its middle, agree in half of them unless they belong together. That
//! is counted for 256 sampled entries in a few instructions, so all pairs of a class of tensors can be looked at.

use crate::predict::Sampled;
use std::cmp::Ordering;

/// Words of 64 entries.
const WORDS: usize = 4;

/// Agreement by chance is this many standard deviations off in one of about two thousand pairs.
const CHANCE: f64 = 3.5;

/// One bit for each looked-at entry, and whether it is known.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bits {
    ones: [u64; WORDS],
    known: [u64; WORDS],
}

impl Bits {
    /// Of up to 256 of the `values`, spread evenly: whether each is above `middle`; those equal to it are not known.
    pub fn above(values: &[f64], middle: f64) -> Self {
        let mut bits = Bits::default();
        for (k, value) in looked_at(values).enumerate() {
            let bit = 1u64 << (k % 64);
            if value > middle {
                bits.ones[k / 64] |= bit;
            }
            if value.partial_cmp(&middle).is_some_and(Ordering::is_ne) {
                bits.known[k / 64] |= bit;
            }
        }
        bits
    }

    /// Whether each is above the middle one.
    pub fn above_median(values: &[f64]) -> Self {
        let mut finite: Vec<f64> = looked_at(values).filter(|value| value.is_finite()).collect();
        if finite.is_empty() {
            return Bits::default();
        }
        let middle = finite.len() / 2;
        let (_, median, _) = finite.select_nth_unstable_by(middle, f64::total_cmp);
        Bits::above(values, *median)
    }

    /// By how many standard deviations two agree more often than by chance; negative: less often.
    pub fn agreement(&self, other: &Self) -> f64 {
        let (mut agree, mut total) = (0, 0);
        for word in 0..WORDS {
            let known = self.known[word] & other.known[word];
            total += known.count_ones();
            agree += (known & !(self.ones[word] ^ other.ones[word])).count_ones();
        }
        if total < 16 { 0.0 } else { (2.0 * f64::from(agree) - f64::from(total)) / f64::from(total).sqrt() }
    }
}

fn looked_at(values: &[f64]) -> impl Iterator<Item = f64> + '_ {
    let step = values.len().div_ceil(64 * WORDS).max(1);
    values.iter().step_by(step).copied()
}

/// The best of `candidates` by score, at most `most` of those beyond chance.
pub fn best(candidates: impl Iterator<Item = (usize, f64)>, most: usize) -> Vec<usize> {
    let mut good: Vec<(usize, f64)> = candidates.filter(|(_, score)| *score > CHANCE).collect();
    good.sort_by(|a, b| b.1.total_cmp(&a.1));
    good.into_iter().take(most).map(|(candidate, _)| candidate).collect()
}

/// Some entries of a tensor, the same of all tensors of one length.
pub struct Entries {
    pub target: Vec<f64>,
    /// Empty where there is none.
    pub base: Vec<f64>,
}

/// What pairs of tensors are screened by: little, as it is held of all at once.
pub struct Profile {
    pub has_base: bool,
    pub non_negative: bool,
    pub changed: bool,
    /// Signs of the delta.
    pub step: Bits,
    /// Signs of the target.
    pub sign: Bits,
    /// Large or small targets.
    pub size: Bits,
    /// Large or small changes of a decaying mean: what a second moment is made of.
    pub news: Bits,
}

/// Entries that must differ from the base for a tensor to be predicted.
const LEAST_CHANGED: usize = 16;

/// How much of a moving mean is taken to be kept from one step to the next, where only the order of sizes counts.
const USUAL_DECAY: f64 = 0.9;

impl Profile {
    pub fn new(Entries { target, base }: &Entries) -> Self {
        let pairs = || looked_at(target).zip(looked_at(base));
        let deltas: Vec<f64> = pairs().map(|(t, b)| t - b).collect();
        let news: Vec<f64> = pairs().map(|(t, b)| (t - USUAL_DECAY * b).abs()).collect();
        Profile {
            has_base: !base.is_empty(),
            non_negative: !target.iter().chain(base).any(|value| value.is_sign_negative()),
            changed: target.iter().zip(base).filter(|(t, b)| t != b).take(LEAST_CHANGED).count() == LEAST_CHANGED,
            step: Bits::above(&deltas, 0.0),
            sign: Bits::above(target, 0.0),
            size: Bits::above_median(target),
            news: Bits::above_median(&news),
        }
    }
}

impl Entries {
    /// Large or small steps for the size of a direction `s`.
    pub fn scaled_steps(&self, s: &Entries) -> Bits {
        let ratio = |((t, b), s): ((&f64, &f64), &f64)| ((t - b) / s).abs();
        let ratios: Vec<f64> = self.target.iter().zip(&self.base).zip(&s.target).map(ratio).collect();
        Bits::above_median(&ratios)
    }

    /// What a fit of this tensor looks at.
    pub fn sampled(&self, s: &Entries, t: Option<&Entries>) -> Sampled {
        Sampled {
            target: self.target.clone(),
            base: self.base.clone(),
            s: s.target.clone(),
            t: t.map_or(Vec::new(), |t| t.target.clone()),
            before: s.base.clone(),
        }
    }
}
