//! What a lossy plan is made from, and how it is made.

use super::{LossyPlan, Rule};
use crate::chunk::encode::{count_lossy, squared_error_of};
use crate::chunk::with_scratch;
use crate::coding::{Coding, FieldBits, Histogram};
use crate::delta::{Bucket, Domain};
use crate::float::{Element, ElementType};
use crate::header::chunk_count;
use crate::plan::sample::Sample;
use crate::plan::{Workers, chunk_of, same_bits};
use crate::promote::{Promotion, Representative};
use crate::quantize::{Encoding, Quantizer};
use crate::spec::{DomainChoice, Lossy};
use crate::statistics::{Against, Counts, Statistics};

/// What is being planned, or a sample of it.
#[derive(Clone, Copy)]
pub struct Job<'a, E, W> {
    pub lossy: &'a Lossy,
    pub chunk_log2: u8,
    pub target: &'a [E],
    pub base: &'a [E],
    /// Whether the base is predicted: then no chunk is only marked as unchanged.
    pub predicted: bool,
    /// Of fewer levels than are asked for the first whose squared error is no larger.
    pub largest_error: Option<f64>,
    /// Where this is a sample: of what.
    pub of: Option<Of>,
    pub workers: &'a W,
}

/// The tensor that samples were taken of.
#[derive(Clone, Copy)]
pub struct Of {
    pub elements: usize,
    /// Those in chunks that differ from the base.
    pub changed: usize,
    pub chunk_log2: u8,
}

/// The sum of squares of target - reconstruction, in the encoding's domain.
pub fn squared_error<E: Element, D: Domain<E>>(
    encoding: &Encoding<E, D>,
    from_zero: bool,
    target: &[E],
    base: &[E],
) -> f64 {
    squared_error_in::<E, D, D>(encoding, from_zero, target, base)
}

/// The same in domain `M`.
pub fn squared_error_in<E: Element, D: Domain<E>, M: Domain<E>>(
    encoding: &Encoding<E, D>,
    from_zero: bool,
    target: &[E],
    base: &[E],
) -> f64 {
    let of_piece = |(target, base)| {
        let base = if from_zero { Against::Zero } else { Against::Base(base) };
        with_scratch(|scratch| squared_error_of::<E, D, M>(encoding, target, base, scratch))
    };
    target.chunks(PIECE).zip(base.chunks(PIECE)).map(of_piece).sum()
}

/// Entries that are tried out at once.
const PIECE: usize = 1 << 14;

impl<'a, E: Element, W: Workers> Job<'a, E, W> {
    /// The same job over a sample.
    pub fn over<'b>(&self, sample: &'b Sample<E>) -> Job<'b, E, W>
    where
        'a: 'b,
    {
        Job { target: &sample.target, base: sample.base.as_deref().unwrap_or(&[]), ..*self }
    }

    /// Plans from the entries of this job; symbols are counted over those of `counted`. `signed`: whether the tensor or its base
    /// has a sign bit set, or neither matters.
    pub fn choose_domain(&self, signed: bool, counted: &Self) -> LossyPlan<E> {
        let lossy = self.lossy;
        if let Some(bound) = lossy.bound {
            return self.plan_within(bound, signed, counted);
        }
        match (lossy.domain, signed) {
            (DomainChoice::Auto, false) => {
                let plan = self.plan(lossy.non_negative, Rule::NonNegative, counted);
                let coarse = plan.is_off_by_octaves(self.target, self.base);
                LossyPlan { coarse, ..plan }
            }
            (DomainChoice::Ordered, false) => self.plan(lossy.promotion, Rule::NonNegative, counted),
            (DomainChoice::Ordered, true) => self.plan(lossy.promotion, Rule::Ordered, counted),
            _ => self.plan(lossy.promotion, Rule::Value, counted),
        }
    }

    pub(super) fn plan<D: Domain<E>>(
        &self,
        promotion: Promotion,
        rule: fn(Encoding<E, D>) -> Rule<E>,
        counted: &Self,
    ) -> LossyPlan<E> {
        if let Some(plan) = self.plan_by_tops(promotion, rule) {
            return plan;
        }
        if let Some((kept, statistics)) = self.levels_by_tops::<D>(promotion) {
            let encoding = self.encoding(&statistics, &kept, self.refinement());
            return self.count_and_code(rule, encoding, false, false, counted);
        }
        let (counts, kept, from_zero) = self.choose_base::<D>(promotion);
        let statistics = self.statistics(self.against(from_zero), &kept, self.refinement());
        let encoding = self.encoding(&statistics, &kept, self.refinement());
        let (encoding, within) =
            self.with_fewer_levels(promotion, &counts, &statistics).map_or((encoding, false), |fewer| (fewer, true));
        self.count_and_code(rule, encoding, from_zero, within, counted)
    }

    /// The plan with this encoding: what its symbols take is counted over `counted`. `within`: whether its error is allowed.
    pub(super) fn count_and_code<D: Domain<E>>(
        &self,
        rule: fn(Encoding<E, D>) -> Rule<E>,
        encoding: Encoding<E, D>,
        from_zero: bool,
        within: bool,
        counted: &Self,
    ) -> LossyPlan<E> {
        let (mut counts, mut exceptions) = counted.count(&encoding, counted.against(from_zero));
        let highest = encoding.quantizer.symbols();
        if let Some(of) = counted.of {
            // What the sample lacks may occur: everything gets a codeword, and there may be exceptions.
            let written = if from_zero { of.elements } else { of.changed };
            counts.scale_up(written, highest, of.chunk_log2);
            exceptions = 1 + exceptions * written as u64 / counted.target.len() as u64;
        }
        let of_symbol = |(symbol, count): (u8, &u64)| count * u64::from(encoding.quantizer.field_width(symbol));
        let of_others = (1..=highest).zip(&counts.symbols[1..]).map(of_symbol).sum::<u64>();
        let mut coded = Coding::choose(&counts, highest, FieldBits { of_zeros: 0, of_others }, self.lossy.coding);
        coded.bits += of_others;
        let chunk_log2 = self.of.map_or(self.chunk_log2, |of| of.chunk_log2);
        let (rule, sampled) = (rule(encoding), self.of.is_some());
        LossyPlan { rule, chunk_log2, from_zero, prediction: None, within, exceptions, coarse: false, sampled, coded }
    }

    pub fn against(&self, zero: bool) -> Against<'_, E> {
        if zero { Against::Zero } else { Against::Base(self.base) }
    }

    pub(super) fn chunk_against(&self, against: Against<'_, E>, number: usize) -> Against<'_, E> {
        match against {
            Against::Zero => Against::Zero,
            Against::Base(_) => Against::Base(chunk_of(self.base, self.chunk_log2, number)),
        }
    }

    /// Whether a chunk equals what it is coded against.
    pub fn unchanged(&self, against: Against<'_, E>, number: usize) -> bool {
        let chunk = |elements| chunk_of(elements, self.chunk_log2, number);
        matches!(against, Against::Base(_)) && !self.predicted && same_bits(chunk(self.target), chunk(self.base))
    }

    pub fn chunks(&self) -> usize {
        chunk_count(self.target.len(), self.chunk_log2)
    }

    pub fn counts<D: Domain<E>>(&self, against: Against<'_, E>) -> Counts {
        let mut all = Counts::default();
        let of_chunk = |number| self.counts_of_chunk::<D>(against, number);
        self.workers.in_order(self.chunks(), of_chunk, |next| all.append(next));
        all
    }

    fn counts_of_chunk<D: Domain<E>>(&self, against: Against<'_, E>, number: usize) -> Counts {
        let target = chunk_of(self.target, self.chunk_log2, number);
        if self.unchanged(against, number) {
            return Counts::none(target.len());
        }
        Counts::of_chunk(D::new(), target, self.chunk_against(against, number))
    }

    /// What representatives of these buckets are made from: nothing, where entries are refined.
    pub fn statistics<D: Domain<E>>(
        &self,
        against: Against<'_, E>,
        kept: &[Bucket],
        refinement: u32,
    ) -> Statistics<E, D> {
        let mut all = Statistics::default();
        if refinement > 0 {
            return all;
        }
        // A sum of f64 may overflow: then the mean is the midrange.
        let extremes = self.lossy.representative == Representative::Midrange || E::TYPE == ElementType::F64;
        let of_chunk = |number| {
            let target = chunk_of(self.target, self.chunk_log2, number);
            let changed = !self.unchanged(against, number);
            let against = self.chunk_against(against, number);
            changed.then(|| Statistics::of_buckets(D::new(), target, against, kept, extremes))
        };
        self.workers.in_order(self.chunks(), of_chunk, |next| next.into_iter().for_each(|next| all.append(next)));
        all
    }

    /// The refinement bits that are asked for.
    pub fn refinement(&self) -> u32 {
        u32::from(self.lossy.refinement)
    }

    /// The encoding with these buckets; without refinement `statistics` is of them.
    pub fn encoding<D: Domain<E>>(
        &self,
        statistics: &Statistics<E, D>,
        kept: &[Bucket],
        refinement: u32,
    ) -> Encoding<E, D> {
        if refinement > 0 {
            let quantizer = Quantizer::of_buckets(D::new(), refinement, kept.to_vec());
            return Encoding::new(quantizer, kept).within(self.lossy.bound);
        }
        let of_bucket = |bucket: &Bucket| {
            let found = statistics.buckets.iter().find(|(b, _)| b == bucket);
            let representative = found.map(|(_, statistics)| match self.lossy.representative {
                Representative::Midrange => statistics.midrange(),
                Representative::Mean => statistics.mean(),
            });
            Some((*bucket, representative?))
        };
        // Where another thread changes the tensor a bucket may have lost its entries since they were counted.
        let (kept, representatives): (Vec<Bucket>, Vec<D::Delta>) = kept.iter().filter_map(of_bucket).unzip();
        Encoding::new(Quantizer::of_representatives(D::new(), representatives), &kept).within(self.lossy.bound)
    }

    fn empty_histogram(&self) -> Histogram {
        let elements = self.of.map_or(self.target.len(), |of| of.elements);
        if self.lossy.may_pair(elements) { Histogram::with_pairs() } else { Histogram::default() }
    }

    /// Counts the symbols of the chunks that will be written, and all exceptions.
    fn count<D: Domain<E>>(&self, encoding: &Encoding<E, D>, against: Against<'_, E>) -> (Histogram, u64) {
        let mut all: Option<Histogram> = None;
        let mut exceptions = 0;
        let of_chunk = |number| {
            let target = chunk_of(self.target, self.chunk_log2, number);
            let base = self.chunk_against(against, number);
            let mut counts = self.empty_histogram();
            if self.of.is_none() && self.unchanged(against, number) {
                return (counts, 0);
            }
            let found = with_scratch(|scratch| count_lossy(encoding, target, base, scratch, &mut counts));
            (counts, found)
        };
        self.workers.in_order(self.chunks(), of_chunk, |(counts, found)| {
            exceptions += found;
            // The chunk around a sampled block has changed somewhere.
            let left_out = !self.predicted
                && self.of.is_none()
                && matches!(against, Against::Base(_))
                && counts.marked() == 0
                && found == 0;
            match &mut all {
                _ if left_out => {}
                Some(all) => all.merge(counts),
                None => all = Some(counts),
            }
        });
        (all.unwrap_or_default(), exceptions)
    }
}
