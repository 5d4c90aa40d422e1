//! The lossy rules by the letter of the design: sort the deltas into buckets, keep some, put their representatives in.

use crate::float::{Arith, Element};
use crate::promote::{Promotion, Representative};
use crate::spec::{BaseChoice, DomainChoice, Lossy};
use std::collections::BTreeMap;

/// A delta: of values (exact in f64), or of ordered bits.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Delta {
    Value(f64),
    Ordered(i128),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Domain {
    Value,
    Ordered { lowest: i128 },
}

/// Sorted so that the first bucket is the first to be promoted.
type Key = (std::cmp::Reverse<u32>, bool);

impl Domain {
    /// `None`: an exception.
    fn delta<E: Element>(self, target: E, base: E) -> Option<Delta> {
        match self {
            _ if !target.finite() => None,
            Domain::Value => {
                let delta = target.to_arith().minus(base.to_arith()).to_f64();
                delta.is_finite().then_some(Delta::Value(delta))
            }
            Domain::Ordered { lowest: 0 } if target.sign() => None,
            Domain::Ordered { .. } => {
                base.finite().then(|| Delta::Ordered(i128::from(target.ordered()) - i128::from(base.ordered())))
            }
        }
    }

    fn apply<E: Element>(self, base: E, delta: Delta) -> E {
        match (self, delta) {
            (Domain::Ordered { lowest }, Delta::Ordered(delta)) => {
                let sum = (i128::from(base.ordered()) + delta).clamp(lowest, i128::from(E::LARGEST));
                E::of_ordered(sum as i64)
            }
            (_, Delta::Value(delta)) => E::round(base.to_arith().plus(E::A::of_f64(delta))),
            _ => unreachable!("a delta of the other domain"),
        }
    }
}

fn key<E: Element>(delta: Delta) -> Key {
    match delta {
        Delta::Value(delta) => (std::cmp::Reverse(E::A::of_f64(delta).exponent_field()), delta < 0.0),
        Delta::Ordered(delta) => (std::cmp::Reverse(128 - delta.unsigned_abs().leading_zeros()), delta < 0),
    }
}

fn is_zero(delta: Delta) -> bool {
    delta == Delta::Value(0.0) || delta == Delta::Ordered(0)
}

/// Entries of each bucket, by position.
fn buckets<E: Element>(domain: Domain, target: &[E], base: &[E]) -> BTreeMap<Key, Vec<(usize, Delta)>> {
    let mut buckets: BTreeMap<Key, Vec<(usize, Delta)>> = BTreeMap::new();
    for i in 0..target.len() {
        if target[i].bits() == base[i].bits() {
            continue;
        }
        if let Some(delta) = domain.delta(target[i], base[i]).filter(|&delta| !is_zero(delta)) {
            buckets.entry(key::<E>(delta)).or_default().push((i, delta));
        }
    }
    buckets
}

/// Counts of the value domain's buckets: (exponent field, negative, count), largest exponent first.
pub fn bucket_counts<E: Element>(target: &[E], base: &[E]) -> Vec<(u32, bool, u64)> {
    let buckets = buckets(Domain::Value, target, base);
    buckets.into_iter().map(|((exponent, negative), entries)| (exponent.0, negative, entries.len() as u64)).collect()
}

/// The promoted buckets; and the ones above them, whose entries are exceptions: of exponents that each hold no more than
/// 2^-16 of the entries, unless all do.
fn promoted(
    promotion: Promotion,
    buckets: &BTreeMap<Key, Vec<(usize, Delta)>>,
    entries: usize,
) -> (Vec<Key>, Vec<Key>) {
    let count = |exponent| {
        let of_exponent = buckets.iter().filter(|(key, _)| key.0 == exponent);
        of_exponent.map(|(_, entries)| entries.len()).sum::<usize>()
    };
    let keys: Vec<Key> = buckets.keys().copied().collect();
    let start = match promotion {
        Promotion::Buckets { .. } => 0,
        Promotion::Levels(_) => keys.iter().position(|key| count(key.0) > entries / 65536).unwrap_or(0),
    };
    (promoted_of(promotion, &keys[start..]), keys[..start].to_vec())
}

fn promoted_of(promotion: Promotion, keys: &[Key]) -> Vec<Key> {
    match promotion {
        Promotion::Buckets { bits } => keys.iter().copied().take((1 << bits) - 1).collect(),
        Promotion::Levels(levels) => {
            let mut kept = Vec::new();
            let mut seen = Vec::new();
            for &(exponent, negative) in keys {
                if !seen.contains(&exponent) {
                    seen.push(exponent);
                }
                if seen.len() <= usize::from(levels) {
                    kept.push((exponent, negative));
                }
            }
            kept
        }
    }
}

fn half_even(dividend: i128, divisor: i128) -> i128 {
    let floor = dividend.div_euclid(divisor);
    match (2 * dividend.rem_euclid(divisor)).cmp(&divisor) {
        std::cmp::Ordering::Less => floor,
        std::cmp::Ordering::Greater => floor + 1,
        std::cmp::Ordering::Equal => floor + (floor & 1),
    }
}

fn representative<E: Element>(entries: &[(usize, Delta)], which: Representative, chunk: usize) -> Delta {
    if let Delta::Ordered(_) = entries[0].1 {
        let deltas: Vec<i128> =
            entries.iter().map(|(_, d)| if let Delta::Ordered(d) = d { *d } else { unreachable!() }).collect();
        return Delta::Ordered(match which {
            Representative::Mean => half_even(deltas.iter().sum(), deltas.len() as i128),
            Representative::Midrange => {
                half_even(deltas.iter().max().expect("some") + deltas.iter().min().expect("some"), 2)
            }
        });
    }
    let value = |d: &Delta| if let Delta::Value(d) = d { *d } else { unreachable!() };
    let least = entries.iter().map(|(_, d)| value(d)).fold(f64::INFINITY, f64::min);
    let greatest = entries.iter().map(|(_, d)| value(d)).fold(f64::NEG_INFINITY, f64::max);
    let middle = if (least + greatest).is_finite() { (least + greatest) / 2.0 } else { least / 2.0 + greatest / 2.0 };
    if which == Representative::Midrange {
        return Delta::Value(E::A::of_f64(middle).to_f64());
    }
    // Eight lanes a chunk, chunks added in order.
    let mut sum = 0.0;
    let chunks = entries.iter().map(|(i, _)| i / chunk).collect::<std::collections::BTreeSet<_>>();
    for number in chunks {
        let lane = |lane: usize| {
            entries
                .iter()
                .filter(|(i, _)| i / chunk == number && i % chunk % 8 == lane)
                .fold(0.0, |sum, (_, d)| sum + value(d))
        };
        sum += ((lane(0) + lane(4)) + (lane(2) + lane(6))) + ((lane(1) + lane(5)) + (lane(3) + lane(7)));
    }
    let mean = E::A::of_f64(sum / entries.len() as f64);
    Delta::Value(if mean.finite() { mean.to_f64() } else { E::A::of_f64(middle).to_f64() })
}

/// The delta that refinement keeps of `delta`: its bucket, the r bits after the leading one, and the middle of the rest.
fn refined<E: Element>(delta: Delta, r: u32) -> Delta {
    match delta {
        Delta::Value(delta) => {
            let bits = E::A::of_f64(delta).bits();
            let cell = E::A::MANTISSA_BITS - r;
            let cut = bits >> cell << cell;
            Delta::Value(E::A::of_bits(if cell > 0 { cut | 1 << (cell - 1) } else { cut }).to_f64())
        }
        Delta::Ordered(delta) => {
            let magnitude = delta.abs();
            let length = 128 - magnitude.leading_zeros();
            let cell = (length - 1).saturating_sub(r);
            let cut = magnitude >> cell << cell;
            let middle = if cell > 0 { cut | 1 << (cell - 1) } else { cut };
            Delta::Ordered(if delta < 0 { -middle } else { middle })
        }
    }
}

fn coded<E: Element>(
    lossy: &Lossy,
    domain: Domain,
    (kept, above): &(Vec<Key>, Vec<Key>),
    buckets: &BTreeMap<Key, Vec<(usize, Delta)>>,
    target: &[E],
    base: &[E],
    chunk: usize,
) -> Vec<E> {
    let mut result = base.to_vec();
    for key in kept {
        let entries = &buckets[key];
        let stands = representative::<E>(entries, lossy.representative, chunk);
        for &(i, delta) in entries {
            let delta = if lossy.refinement > 0 { refined::<E>(delta, u32::from(lossy.refinement)) } else { stands };
            result[i] = domain.apply(base[i], delta);
        }
    }
    for &(i, _) in above.iter().flat_map(|key| &buckets[key]) {
        result[i] = target[i];
    }
    for i in 0..target.len() {
        let unchanged = target[i].bits() == base[i].bits();
        let exception =
            domain.delta(target[i], base[i]).is_none() || (!result[i].finite() && result[i].bits() != base[i].bits());
        if !unchanged && exception {
            result[i] = target[i];
        }
    }
    result
}

/// Every base and reconstruction that the rule allows: against the previous base, and against zero if that may be chosen.
pub fn reconstruct<E: Element>(lossy: &Lossy, target: &[E], base: &[E], chunk: usize) -> Vec<Vec<E>> {
    let non_negative = lossy.domain != DomainChoice::Value && !target.iter().chain(base).any(|e| e.sign());
    let lowest = if non_negative { 0 } else { -1 - i128::from(E::LARGEST) };
    let (domain, promotion) = match (lossy.domain, non_negative) {
        (DomainChoice::Auto, true) => (Domain::Ordered { lowest }, lossy.non_negative),
        (DomainChoice::Ordered, _) => (Domain::Ordered { lowest }, lossy.promotion),
        _ => (Domain::Value, lossy.promotion),
    };
    let zeros = vec![E::ZERO; base.len()];
    let mut bases = vec![base];
    if lossy.base == BaseChoice::Auto {
        bases.push(&zeros);
    }
    let code = |base: &[E]| {
        let buckets = buckets(domain, target, base);
        coded(lossy, domain, &promoted(promotion, &buckets, target.len()), &buckets, target, base, chunk)
    };
    bases.into_iter().map(code).collect()
}

#[cfg(test)]
pub mod tests;
