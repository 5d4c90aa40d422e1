//! Planning under a bound on every entry's error: how many levels, which is the largest, and how many refinement bits take the
//! fewest bits, where every entry that they leave beyond the bound is an exception.

use super::base::better_base;
use super::job::{Job, squared_error, squared_error_in};
use super::{LossyPlan, Rule};
use crate::bound::Bound;
use crate::delta::{Bucket, Domain, Ordered, Value};
use crate::float::{Element, log2};
use crate::plan::{Workers, chunk_of};
use crate::promote::Promotion;
use crate::quantize::Encoding;
use crate::spec::{BaseChoice, DomainChoice};
use crate::statistics::{Against, Counts};
use std::collections::BTreeMap;

const MOST_LEVELS: usize = 7;
const MOST_REFINEMENT: usize = 23;

/// The largest levels may be left to exceptions as long as those are no more than this part of the entries.
const MOST_ABOVE: f64 = 1.0 / 32.0;

/// What the changed entries of one bucket need to stay within the bound.
#[derive(Debug, Clone)]
struct Needs {
    bucket: Bucket,
    count: u64,
    /// Entries that cannot be left as their base.
    moved: u64,
    /// By the refinement bits that they surely need, the last for all beyond: entries, and the sum of how many half cells of that
    /// width their tolerance is, one to two each.
    by_bits: [(u64, f64); MOST_REFINEMENT + 2],
}

impl Needs {
    fn new(bucket: Bucket) -> Self {
        Needs { bucket, count: 0, moved: 0, by_bits: [(0, 0.0); MOST_REFINEMENT + 2] }
    }

    /// `tolerance` and `reach`, the half width of the bucket, in the same units.
    fn add(&mut self, moved: bool, tolerance: f64, reach: f64) {
        let (mut bits, mut half_cell) = (0, reach);
        while half_cell > tolerance && bits <= MOST_REFINEMENT {
            half_cell /= 2.0;
            bits += 1;
        }
        let of_bits = &mut self.by_bits[bits];
        *of_bits = (of_bits.0 + 1, of_bits.1 + (tolerance / half_cell).min(2.0));
        self.count += 1;
        self.moved += u64::from(moved);
    }

    fn append(&mut self, next: &Self) {
        self.count += next.count;
        self.moved += next.moved;
        for (all, more) in self.by_bits.iter_mut().zip(next.by_bits) {
            *all = (all.0 + more.0, all.1 + more.1);
        }
    }

    /// About how many entries are beyond the bound with each number of refinement bits: in cells of twice the width that is
    /// needed those that are not as near to the middle.
    fn beyond(&self) -> [f64; MOST_REFINEMENT + 1] {
        std::array::from_fn(|bits| {
            let mut part = 1.0;
            let finer = self.by_bits[bits + 1..=MOST_REFINEMENT].iter().map(|&(count, halves)| {
                part /= 2.0;
                count as f64 - halves * part
            });
            finer.sum::<f64>() + self.by_bits[MOST_REFINEMENT + 1].0 as f64
        })
    }
}

/// What is chosen, and about how many bits it takes.
#[derive(Debug, Clone)]
struct Choice {
    kept: Vec<Bucket>,
    refinement: u32,
    bits: f64,
}

/// Needs by bucket, for the choice among them; `highest`: the exponent of the first level without a bound.
struct Table {
    /// Largest exponent first, positive before negative; the numbers of entries beyond, by refinement bits.
    exponents: Vec<Vec<(Needs, [f64; MOST_REFINEMENT + 1])>>,
    /// Levels start at this place, or further down.
    first: usize,
    entries: f64,
    exception_bits: f64,
}

impl Table {
    fn new<E: Element>(mut all: Vec<Needs>, highest: u16, entries: usize) -> Self {
        all.sort_by_key(|needs| (u16::MAX - needs.bucket.exponent, needs.bucket.negative));
        let same = |a: &Needs, b: &Needs| a.bucket.exponent == b.bucket.exponent;
        let with_beyond = |group: &[Needs]| group.iter().map(|needs| (needs.clone(), needs.beyond())).collect();
        let exponents: Vec<Vec<_>> = all.chunk_by(same).map(with_beyond).collect();
        let first = exponents.iter().take_while(|group| group[0].0.bucket.exponent > highest).count();
        Table { exponents, first, entries: entries as f64, exception_bits: f64::from(16 + E::BITS) }
    }

    fn sum(&self, range: std::ops::Range<usize>, of: fn(&Needs) -> u64) -> f64 {
        self.exponents[range].iter().flatten().map(|(needs, _)| of(needs) as f64).sum()
    }

    /// The cheapest choice with at least so many levels and refinement bits.
    fn cheapest<E: Element, D: Domain<E>>(&self, levels: usize, refinement: usize) -> Choice {
        let count = self.exponents.len();
        let mut best = Choice { kept: Vec::new(), refinement: refinement as u32, bits: f64::INFINITY };
        for first in self.first..count.max(self.first + 1) {
            let above = self.sum(0..first, |needs| needs.count);
            if first > self.first && above > self.entries * MOST_ABOVE {
                break;
            }
            for levels in levels..=MOST_LEVELS {
                let end = (first + levels).min(count);
                let below = self.sum(end..count, |needs| needs.moved);
                for bits in refinement..=MOST_REFINEMENT {
                    let (cost, beyond) = self.cost::<E, D>(first..end, bits, above + below);
                    if cost < best.bits {
                        let kept = self.exponents[first..end].iter().flatten().map(|(needs, _)| needs.bucket).collect();
                        best = Choice { kept, refinement: bits as u32, bits: cost };
                    }
                    if beyond == 0.0 {
                        break;
                    }
                }
                if end == count {
                    break;
                }
            }
        }
        best
    }

    /// About how many bits the levels of a range take with so many refinement bits and `others` exceptions, and how many entries
    /// of these levels are exceptions too.
    fn cost<E: Element, D: Domain<E>>(&self, range: std::ops::Range<usize>, bits: usize, others: f64) -> (f64, f64) {
        let (mut cost, mut marked, mut beyond) = (0.0, 0.0, 0.0);
        for (needs, of_bits) in self.exponents[range].iter().flatten() {
            beyond += of_bits[bits];
            let count = needs.count as f64 - of_bits[bits];
            if count >= 1.0 {
                marked += count;
                let width = if bits == 0 { 0 } else { D::new().field_width(needs.bucket, bits as u32) };
                cost += count * (log2(self.entries / count) + f64::from(width));
            }
        }
        let zeros = self.entries - marked;
        if zeros >= 1.0 {
            cost += zeros * log2(self.entries / zeros);
        }
        (cost + (others + beyond) * self.exception_bits, beyond)
    }
}

/// How a tensor would be coded without its bound: with one, it is not coded more coarsely.
struct Free {
    squared_error: f64,
    from_zero: bool,
}

/// What a bounded plan is made of, and about how many bits it takes.
struct Found<E: Element, D: Domain<E>> {
    encoding: Encoding<E, D>,
    from_zero: bool,
    bits: f64,
}

impl<E: Element, W: Workers> Job<'_, E, W> {
    /// The plan under a bound; symbols and exceptions are counted over `counted`.
    pub(super) fn plan_within(&self, bound: Bound, signed: bool, counted: &Self) -> LossyPlan<E> {
        let lossy = self.lossy;
        match (lossy.domain, signed) {
            (DomainChoice::Auto, false) => self.plan_in(bound, lossy.non_negative, Rule::NonNegative, counted).0,
            (DomainChoice::Ordered, false) => self.plan_in(bound, lossy.promotion, Rule::NonNegative, counted).0,
            (DomainChoice::Ordered, true) => self.plan_in(bound, lossy.promotion, Rule::Ordered, counted).0,
            _ => {
                let (values, free) = self.plan_in(bound, lossy.promotion, Rule::Value, counted);
                let (true, DomainChoice::Auto, Some(free)) = (bound.relative.is_some(), lossy.domain, free) else {
                    return values;
                };
                // Steps of ordered bits are of one relative size, whatever the entry's.
                let bases = self.counts_by_base::<Ordered<false>>();
                let ordered = bases.iter().filter_map(|(counts, from_zero)| {
                    let found = self.cheapest(bound, lossy.promotion, counts, *from_zero)?;
                    (self.error_of::<_, Value>(&found) <= free.squared_error).then_some(found)
                });
                let Some(ordered) = ordered.min_by(|a, b| a.bits.total_cmp(&b.bits)) else { return values };
                let ordered = self.count_and_code(Rule::Ordered, ordered.encoding, ordered.from_zero, true, counted);
                if ordered.bytes() < values.bytes() { ordered } else { values }
            }
        }
    }

    /// The plan in one domain, and what it would be without the bound.
    fn plan_in<D: Domain<E>>(
        &self,
        bound: Bound,
        promotion: Promotion,
        rule: fn(Encoding<E, D>) -> Rule<E>,
        counted: &Self,
    ) -> (LossyPlan<E>, Option<Free>) {
        let bases = self.counts_by_base::<D>();
        let free = self.free::<D>(promotion, &bases);
        let found = bases.iter().filter_map(|(counts, from_zero)| {
            let found = self.cheapest(bound, promotion, counts, *from_zero)?;
            let fine = *from_zero == free.from_zero || self.error_of::<_, D>(&found) <= free.squared_error;
            fine.then_some(found)
        });
        match found.min_by(|a, b| a.bits.total_cmp(&b.bits)) {
            Some(best) => (self.count_and_code(rule, best.encoding, best.from_zero, true, counted), Some(free)),
            None => (self.plan(promotion, rule, counted), None),
        }
    }

    /// Against the previous base, and against zero where that may be taken.
    fn counts_by_base<D: Domain<E>>(&self) -> Vec<(Counts, bool)> {
        let mut bases = vec![(self.counts::<D>(self.against(false)), false)];
        if self.lossy.base == BaseChoice::Auto {
            bases.push((self.counts::<D>(Against::Zero), true));
        }
        bases
    }

    fn free<D: Domain<E>>(&self, promotion: Promotion, bases: &[(Counts, bool)]) -> Free {
        let (from_zero, kept) = better_base(promotion, &bases[0].0, bases.get(1).map(|(zero, _)| zero));
        let encoding = self.encoding_of::<D>(from_zero, &kept, self.refinement()).within(None);
        Free { squared_error: squared_error(&encoding, from_zero, self.target, self.base), from_zero }
    }

    fn encoding_of<D: Domain<E>>(&self, from_zero: bool, kept: &[Bucket], refinement: u32) -> Encoding<E, D> {
        self.encoding(&self.statistics(self.against(from_zero), kept, refinement), kept, refinement)
    }

    fn error_of<D: Domain<E>, M: Domain<E>>(&self, found: &Found<E, D>) -> f64 {
        squared_error_in::<E, D, M>(&found.encoding, found.from_zero, self.target, self.base)
    }

    /// `None` where the promotion is not by levels.
    fn cheapest<D: Domain<E>>(
        &self,
        bound: Bound,
        promotion: Promotion,
        counts: &Counts,
        from_zero: bool,
    ) -> Option<Found<E, D>> {
        let Promotion::Levels(least) = promotion else { return None };
        let highest = promotion.choose(counts).first().map_or(0, |bucket| bucket.exponent);
        let needs = self.needs::<D>(bound, self.against(from_zero));
        let table = Table::new::<E>(needs, highest, self.target.len());
        let Choice { kept, refinement, bits } =
            table.cheapest::<E, D>(usize::from(least), usize::from(self.lossy.refinement));
        Some(Found { encoding: self.encoding_of(from_zero, &kept, refinement), from_zero, bits })
    }

    /// Of the buckets that are not empty, in the order of their index.
    fn needs<D: Domain<E>>(&self, bound: Bound, against: Against<'_, E>) -> Vec<Needs> {
        let mut all: BTreeMap<usize, Needs> = BTreeMap::new();
        let of_chunk = |number| {
            let target = chunk_of(self.target, self.chunk_log2, number);
            if self.unchanged(against, number) {
                return Vec::new();
            }
            needs_of_chunk::<E, D>(bound, target, self.chunk_against(against, number))
        };
        self.workers.in_order(self.chunks(), of_chunk, |chunk| {
            for needs in chunk {
                all.entry(needs.bucket.index()).or_insert_with(|| Needs::new(needs.bucket)).append(&needs);
            }
        });
        all.into_values().collect()
    }
}

fn needs_of_chunk<E: Element, D: Domain<E>>(bound: Bound, target: &[E], base: Against<'_, E>) -> Vec<Needs> {
    let domain = D::new();
    let mut slots: Vec<Option<Box<Needs>>> = vec![None; D::BUCKETS];
    for (i, &t) in target.iter().enumerate() {
        let b = base.at(i);
        let delta = domain.delta(t, b).filter(|_| t.finite());
        if let Some(bucket) = delta.and_then(|delta| domain.bucket(delta)) {
            let tolerance = domain.of_places(t, bound.places(t));
            let needs = slots[bucket.index()].get_or_insert_with(|| Box::new(Needs::new(bucket)));
            needs.add(!bound.holds(t, b), tolerance, domain.reach(bucket));
        }
    }
    slots.into_iter().flatten().map(|needs| *needs).collect()
}
