//! Planning a lossy record: domain, base, promoted buckets, representatives, coding.

use super::sample::{BLOCK_LOG2, SAMPLED_FROM, Sample, Source};
use super::{Workers, changed_chunks, chunk_of, same_bits};
use crate::chunk::encode::{EncodedChunk, LossyRecord, Measured, count_lossy};
use crate::chunk::{Scratch, with_scratch};
use crate::coding::{Candidate, Coding, Histogram};
use crate::delta::{Bucket, Domain, Ordered, Value};
use crate::float::{Arith, Element, Wide};
use crate::header::{Base, Kind, LossyDomain, Meaning, RecordHeader, chunk_count};
use crate::promote::{Estimate, Promotion, Representative};
use crate::quantize::{Against, Encoding, Quantizer, Statistics};
use crate::simd::wide;
use crate::spec::{BaseChoice, DomainChoice, Lossy};

/// A lossy record's plan, in its domain.
pub struct LossyPlan<E: Element> {
    pub(super) rule: Rule<E>,
    pub(super) chunk_log2: u8,
    pub(super) from_zero: bool,
    pub(super) exceptions: u64,
    /// Its error is measured on samples; it may have been planned from samples.
    pub(super) sampled: bool,
    pub(super) coded: Candidate,
}

pub(super) enum Rule<E: Element> {
    Value(Encoding<E, Value>),
    Ordered(Encoding<E, Ordered<false>>),
    NonNegative(Encoding<E, Ordered<true>>),
}

/// What is being planned, or a sample of it.
#[derive(Clone, Copy)]
pub(super) struct Job<'a, E, W> {
    pub lossy: &'a Lossy,
    pub chunk_log2: u8,
    pub target: &'a [E],
    pub base: &'a [E],
    /// Where this is a sample: of what.
    of: Option<Of>,
    pub workers: &'a W,
}

/// The tensor that samples were taken of.
#[derive(Clone, Copy)]
struct Of {
    elements: usize,
    /// Those in chunks that differ from the base.
    changed: usize,
    chunk_log2: u8,
}

/// A spread sample in which fewer entries differ from the base tells too little.
const FEW: usize = 64;

impl<E: Element> LossyPlan<E> {
    pub fn new(lossy: &Lossy, chunk_log2: u8, target: &[E], base: &[E], workers: &impl Workers) -> Self {
        let whole = Job { lossy, chunk_log2, target, base, of: None, workers };
        let signed = lossy.domain == DomainChoice::Value || has_sign(target) || has_sign(base);
        // The paper's rule counts every entry, and its representatives are of all.
        if target.len() <= SAMPLED_FROM || matches!(lossy.promotion, Promotion::Buckets { .. }) {
            return whole.choose_domain(signed, &whole);
        }
        let (all, changed) = ((0..whole.chunks()).collect::<Vec<_>>(), changed_chunks(chunk_log2, target, Some(base)));
        let all = Source { target, base: Some(base), chunk_log2, chunks: &all };
        let changed = Source { chunks: &changed, ..all };
        let spread = all.spread();
        if changed.elements() <= SAMPLED_FROM || spread.changed() < FEW {
            // Quick, as unchanged chunks are passed over; and coding all from zero would not pay.
            let lossy = &Lossy { base: BaseChoice::Previous, ..*lossy };
            let whole = Job { lossy, ..whole };
            return whole.choose_domain(signed, &whole);
        }
        let blocks = changed.blocks();
        let whole = Job { of: Some(Of { elements: target.len(), changed: changed.elements(), chunk_log2 }), ..whole };
        whole.over(&spread).choose_domain(signed, &Job { chunk_log2: BLOCK_LOG2, ..whole.over(&blocks) })
    }

    /// About how many bytes the record will have.
    pub fn bytes(&self) -> u64 {
        let meaning = u64::from(self.meaning().symbols()) * size_of::<E>() as u64;
        self.coded.bits.div_ceil(8) + meaning + self.exceptions * (2 + size_of::<E>() as u64)
    }

    /// Appends chunk `number`.
    pub fn encode_chunk(
        &self,
        number: usize,
        target: &[E],
        base: &mut [E],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> EncodedChunk {
        match &self.rule {
            Rule::Value(encoding) => self.record(encoding, number).encode(target, base, scratch, out),
            Rule::Ordered(encoding) => self.record(encoding, number).encode(target, base, scratch, out),
            Rule::NonNegative(encoding) => self.record(encoding, number).encode(target, base, scratch, out),
        }
    }

    fn record<'a, D: Domain<E>>(&'a self, encoding: &'a Encoding<E, D>, number: usize) -> LossyRecord<'a, E, D> {
        LossyRecord {
            encoding,
            coding: &self.coded.coding,
            from_zero: self.from_zero,
            exceptions: self.exceptions > 0,
            measured: if self.sampled { Measured::Sample { chunk: number } } else { Measured::All },
        }
    }

    fn refinement(&self) -> u32 {
        match &self.rule {
            Rule::Value(encoding) => encoding.quantizer.refinement(),
            Rule::Ordered(encoding) => encoding.quantizer.refinement(),
            Rule::NonNegative(encoding) => encoding.quantizer.refinement(),
        }
    }

    fn meaning(&self) -> Meaning {
        if self.refinement() > 0 {
            return Meaning::Buckets(match &self.rule {
                Rule::Value(encoding) => encoding.quantizer.buckets().to_vec(),
                Rule::Ordered(encoding) => encoding.quantizer.buckets().to_vec(),
                Rule::NonNegative(encoding) => encoding.quantizer.buckets().to_vec(),
            });
        }
        let integers = |deltas: &[E::Wide]| Meaning::Integers(deltas.iter().map(|d| d.to_i128()).collect());
        match &self.rule {
            Rule::Value(encoding) => {
                Meaning::Values(encoding.quantizer.representatives().iter().map(|d| d.to_f64()).collect())
            }
            Rule::Ordered(encoding) => integers(encoding.quantizer.representatives()),
            Rule::NonNegative(encoding) => integers(encoding.quantizer.representatives()),
        }
    }

    pub fn header(&self) -> RecordHeader {
        let domain = match &self.rule {
            Rule::Value(_) => LossyDomain::Value,
            Rule::Ordered(_) => LossyDomain::Ordered,
            Rule::NonNegative(_) => LossyDomain::OrderedNonNegative,
        };
        let kind = Kind::Lossy {
            domain,
            refinement: self.refinement() as u8,
            error: 0.0,
            meaning: self.meaning(),
            coding: self.coded.coding.clone(),
        };
        RecordHeader {
            base: if self.from_zero { Base::Zero } else { Base::Previous },
            kind,
            chunk_log2: self.chunk_log2,
            exceptions: self.exceptions > 0,
            index: Vec::new(),
        }
    }
}

wide! {
    /// Whether a sign bit is set: in one pass, which ends soon after the first.
    fn has_sign[E: Element](elements: &[E]) -> bool {
        for some in elements.chunks(4096) {
            let mut signs = 0;
            for element in some {
                signs |= element.signed_bits();
            }
            if signs < 0 {
                return true;
            }
        }
        false
    }
}

impl<'a, E: Element, W: Workers> Job<'a, E, W> {
    /// The same job over a sample.
    fn over<'b>(&self, sample: &'b Sample<E>) -> Job<'b, E, W>
    where
        'a: 'b,
    {
        Job { target: &sample.target, base: sample.base.as_deref().unwrap_or(&[]), ..*self }
    }

    /// Plans from the entries of this job; symbols are counted over those of `counted`. `signed`: whether the tensor or its base
    /// has a sign bit set, or neither matters.
    fn choose_domain(&self, signed: bool, counted: &Self) -> LossyPlan<E> {
        let lossy = self.lossy;
        match (lossy.domain, signed) {
            (DomainChoice::Auto, false) => self.plan(lossy.non_negative, Rule::NonNegative, counted),
            (DomainChoice::Ordered, false) => self.plan(lossy.promotion, Rule::NonNegative, counted),
            (DomainChoice::Ordered, true) => self.plan(lossy.promotion, Rule::Ordered, counted),
            _ => self.plan(lossy.promotion, Rule::Value, counted),
        }
    }

    fn plan<D: Domain<E>>(
        &self,
        promotion: Promotion,
        rule: fn(Encoding<E, D>) -> Rule<E>,
        counted: &Self,
    ) -> LossyPlan<E> {
        if let Some(plan) = self.plan_by_tops(promotion, rule) {
            return plan;
        }
        let (statistics, kept, from_zero) = self.choose_base::<D>(promotion);
        let encoding = self.encoding(&statistics, &kept);
        let (mut counts, mut exceptions) = counted.count(&encoding, counted.against(from_zero));
        let highest = encoding.quantizer.symbols();
        if let Some(of) = self.of {
            // What the sample lacks may occur: everything gets a codeword, and there may be exceptions.
            let written = if from_zero { of.elements } else { of.changed };
            counts.scale_up(written, highest, of.chunk_log2);
            exceptions = 1 + exceptions * written as u64 / counted.target.len() as u64;
        }
        let refinement_bits = counts.marked() * u64::from(encoding.quantizer.refinement());
        let mut coded = Coding::choose(&counts, highest, 0, self.lossy.coding);
        coded.bits += refinement_bits;
        let chunk_log2 = self.of.map_or(self.chunk_log2, |of| of.chunk_log2);
        LossyPlan { rule: rule(encoding), chunk_log2, from_zero, exceptions, sampled: self.of.is_some(), coded }
    }

    fn against(&self, zero: bool) -> Against<'_, E> {
        if zero { Against::Zero } else { Against::Base(self.base) }
    }

    fn chunk_against(&self, against: Against<'_, E>, number: usize) -> Against<'_, E> {
        match against {
            Against::Zero => Against::Zero,
            Against::Base(_) => Against::Base(chunk_of(self.base, self.chunk_log2, number)),
        }
    }

    /// Whether a chunk equals what it is coded against.
    fn unchanged(&self, against: Against<'_, E>, number: usize) -> bool {
        let chunk = |elements| chunk_of(elements, self.chunk_log2, number);
        matches!(against, Against::Base(_)) && same_bits(chunk(self.target), chunk(self.base))
    }

    pub(super) fn chunks(&self) -> usize {
        chunk_count(self.target.len(), self.chunk_log2)
    }

    fn statistics<D: Domain<E>>(&self, against: Against<'_, E>) -> Statistics<E, D> {
        let mut all = Statistics::default();
        let of_chunk = |number| {
            let target = chunk_of(self.target, self.chunk_log2, number);
            if self.unchanged(against, number) {
                return Statistics { entries: target.len() as u64, ..Statistics::default() };
            }
            Statistics::of_chunk(D::new(), target, self.chunk_against(against, number))
        };
        self.workers.in_order(self.chunks(), of_chunk, |next| all.append(&next));
        all
    }

    /// Statistics and promoted buckets against the previous base, or against zero where that is better.
    fn choose_base<D: Domain<E>>(&self, promotion: Promotion) -> (Statistics<E, D>, Vec<Bucket>, bool) {
        let previous = self.statistics::<D>(self.against(false));
        let kept = promotion.choose(&previous);
        if self.lossy.base == BaseChoice::Previous {
            return (previous, kept, false);
        }
        let zero = self.statistics::<D>(Against::Zero);
        let kept_of_zero = promotion.choose(&zero);
        let top = kept.first().max(kept_of_zero.first()).map_or(0, |bucket| bucket.exponent);
        if Estimate::of(&zero, &kept_of_zero, top).beats(Estimate::of(&previous, &kept, top)) {
            (zero, kept_of_zero, true)
        } else {
            (previous, kept, false)
        }
    }

    pub(super) fn encoding<D: Domain<E>>(&self, statistics: &Statistics<E, D>, kept: &[Bucket]) -> Encoding<E, D> {
        let refinement = u32::from(self.lossy.refinement);
        if refinement > 0 {
            return Encoding::new(Quantizer::of_buckets(D::new(), refinement, kept.to_vec()), kept);
        }
        let of_bucket = |bucket: &Bucket| {
            let found = statistics.buckets.iter().find(|(b, _)| b == bucket);
            found.map(|(_, statistics)| match self.lossy.representative {
                Representative::Midrange => statistics.midrange(),
                Representative::Mean => statistics.mean(),
            })
        };
        let representatives = kept.iter().filter_map(of_bucket).collect();
        Encoding::new(Quantizer::of_representatives(D::new(), representatives), kept)
    }

    /// Counts the symbols of the chunks that will be written, and all exceptions.
    fn count<D: Domain<E>>(&self, encoding: &Encoding<E, D>, against: Against<'_, E>) -> (Histogram, u64) {
        let mut all = Histogram::default();
        let mut exceptions = 0;
        let of_chunk = |number| {
            let target = chunk_of(self.target, self.chunk_log2, number);
            let base = self.chunk_against(against, number);
            let mut counts = Histogram::default();
            if self.of.is_none() && self.unchanged(against, number) {
                return (counts, 0);
            }
            let found = with_scratch(|scratch| count_lossy(encoding, target, base, scratch, &mut counts));
            (counts, found)
        };
        self.workers.in_order(self.chunks(), of_chunk, |(counts, found)| {
            exceptions += found;
            // The chunk around a sampled block has changed somewhere.
            let left_out =
                self.of.is_none() && matches!(against, Against::Base(_)) && counts.marked() == 0 && found == 0;
            if !left_out {
                all.merge(&counts);
            }
        });
        (all, exceptions)
    }
}
