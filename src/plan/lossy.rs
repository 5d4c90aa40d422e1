//! Planning a lossy record: domain, base, promoted buckets, representatives, coding.

use super::sample::{BLOCK_LOG2, SAMPLED_FROM, Sample, Source};
use super::{Workers, chunk_of};
use crate::chunk::encode::{EncodedChunk, LossyRecord, Measured, count_lossy};
use crate::chunk::{Scratch, with_scratch};
use crate::coding::{Candidate, Coding, Histogram};
use crate::delta::{Bucket, Domain, Ordered, Value};
use crate::float::{Arith, Element, Wide};
use crate::header::{Base, Kind, LossyDomain, Meaning, RecordHeader, chunk_count};
use crate::promote::{Estimate, Promotion, Representative};
use crate::quantize::{Against, Encoding, Quantizer, Statistics};
use crate::spec::{BaseChoice, DomainChoice, Lossy};

/// A lossy record's plan, in its domain.
pub struct LossyPlan<E: Element> {
    rule: Rule<E>,
    chunk_log2: u8,
    from_zero: bool,
    exceptions: u64,
    /// Planned from samples; its error is measured on samples too.
    sampled: bool,
    coded: Candidate,
}

enum Rule<E: Element> {
    Value(Encoding<E, Value>),
    Ordered(Encoding<E, Ordered<false>>),
    NonNegative(Encoding<E, Ordered<true>>),
}

/// What is being planned, or a sample of it.
#[derive(Clone, Copy)]
struct Job<'a, E, W> {
    lossy: &'a Lossy,
    chunk_log2: u8,
    target: &'a [E],
    base: &'a [E],
    workers: &'a W,
}

impl<E: Element> LossyPlan<E> {
    pub fn new(lossy: &Lossy, chunk_log2: u8, target: &[E], base: &[E], workers: &impl Workers) -> Self {
        let whole = Job { lossy, chunk_log2, target, base, workers };
        // The paper's rule counts every entry, and its representatives are of all.
        if target.len() <= SAMPLED_FROM || matches!(lossy.promotion, Promotion::Buckets { .. }) {
            return whole.choose_domain(&whole, None);
        }
        let chunks: Vec<usize> = (0..whole.chunks()).collect();
        let source = Source { target, base: Some(base), chunk_log2, chunks: &chunks };
        let (spread, blocks) = (source.spread(), source.blocks());
        let (statistics, counts) = (whole.over(&spread), Job { chunk_log2: BLOCK_LOG2, ..whole.over(&blocks) });
        statistics.choose_domain(&counts, Some(Of { elements: target.len(), chunk_log2 }))
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

/// The tensor that samples were taken of.
#[derive(Clone, Copy)]
struct Of {
    elements: usize,
    chunk_log2: u8,
}

impl<'a, E: Element, W: Workers> Job<'a, E, W> {
    /// The same job over a sample.
    fn over<'b>(&self, sample: &'b Sample<E>) -> Job<'b, E, W>
    where
        'a: 'b,
    {
        Job { target: &sample.target, base: sample.base.as_deref().unwrap_or(&[]), ..*self }
    }

    /// Plans from the entries of this job; symbols are counted over those of `counted`. `of`: what both are samples of.
    fn choose_domain(&self, counted: &Self, of: Option<Of>) -> LossyPlan<E> {
        let lossy = self.lossy;
        let non_negative =
            lossy.domain != DomainChoice::Value && !self.target.iter().chain(self.base).any(|element| element.sign());
        match (lossy.domain, non_negative) {
            (DomainChoice::Auto, true) => self.plan(lossy.non_negative, Rule::NonNegative, counted, of),
            (DomainChoice::Ordered, true) => self.plan(lossy.promotion, Rule::NonNegative, counted, of),
            (DomainChoice::Ordered, false) => self.plan(lossy.promotion, Rule::Ordered, counted, of),
            _ => self.plan(lossy.promotion, Rule::Value, counted, of),
        }
    }

    fn plan<D: Domain<E>>(
        &self,
        promotion: Promotion,
        rule: fn(Encoding<E, D>) -> Rule<E>,
        counted: &Self,
        of: Option<Of>,
    ) -> LossyPlan<E> {
        let (statistics, kept, from_zero) = self.choose_base::<D>(promotion);
        let encoding = self.encoding(&statistics, &kept);
        let (mut counts, mut exceptions) = counted.count(&encoding, counted.against(from_zero));
        let highest = encoding.quantizer.symbols();
        if let Some(of) = of {
            // What the sample lacks may occur: everything gets a codeword, and there may be exceptions.
            counts.scale_up(of.elements, highest, of.chunk_log2);
            exceptions = 1 + exceptions * of.elements as u64 / counted.target.len() as u64;
        }
        let refinement_bits = counts.marked() * u64::from(encoding.quantizer.refinement());
        let mut coded = Coding::choose(&counts, highest, 0, self.lossy.coding);
        coded.bits += refinement_bits;
        let chunk_log2 = of.map_or(self.chunk_log2, |of| of.chunk_log2);
        LossyPlan { rule: rule(encoding), chunk_log2, from_zero, exceptions, sampled: of.is_some(), coded }
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

    fn chunks(&self) -> usize {
        chunk_count(self.target.len(), self.chunk_log2)
    }

    fn statistics<D: Domain<E>>(&self, against: Against<'_, E>) -> Statistics<E, D> {
        let mut all = Statistics::default();
        let of_chunk = |number| {
            let target = chunk_of(self.target, self.chunk_log2, number);
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

    fn encoding<D: Domain<E>>(&self, statistics: &Statistics<E, D>, kept: &[Bucket]) -> Encoding<E, D> {
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
            let found = with_scratch(|scratch| count_lossy(encoding, target, base, scratch, &mut counts));
            (counts, found)
        };
        self.workers.in_order(self.chunks(), of_chunk, |(counts, found)| {
            exceptions += found;
            let unchanged = matches!(against, Against::Base(_)) && counts.marked() == 0 && found == 0;
            if !unchanged {
                all.merge(&counts);
            }
        });
        (all, exceptions)
    }
}
