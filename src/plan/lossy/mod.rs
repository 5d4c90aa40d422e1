//! Planning a lossy record: domain, base, promoted buckets, representatives, coding.

mod base;
mod bounded;
mod job;
mod levels;

use super::predicted::{Expected, Relatives};
use super::sample::{BLOCK_LOG2, SAMPLED_FROM, Sample, Source};
use super::{Workers, changed_chunks};
use crate::chunk::Scratch;
use crate::chunk::encode::{EncodedChunk, LossyRecord, Measured};
use crate::coding::Candidate;
use crate::delta::{Domain, Ordered, Value};
use crate::float::{Arith, Element, Wide};
use crate::header::{Base, Kind, LossyDomain, Meaning, RecordHeader};
use crate::predict::Prediction;
use crate::promote::Promotion;
use crate::quantize::Encoding;
use crate::simd::wide;
use crate::sink::Sink;
use crate::spec::{BaseChoice, DomainChoice, Lossy};
#[cfg(test)]
pub(super) use base::better_base;
pub(super) use job::Job;
use job::{Of, squared_error};

/// A lossy record's plan, in its domain.
pub struct LossyPlan<E: Element> {
    pub(super) rule: Rule<E>,
    pub(super) chunk_log2: u8,
    pub(super) from_zero: bool,
    pub(super) prediction: Option<Prediction>,
    /// Whether its error is no larger than was allowed.
    pub(super) within: bool,
    pub(super) exceptions: u64,
    /// Whether its reconstructions tell too little.
    pub(super) coarse: bool,
    /// Its error is measured on samples; it may have been planned from samples.
    pub(super) sampled: bool,
    pub(super) coded: Candidate,
}

pub(super) enum Rule<E: Element> {
    Value(Encoding<E, Value>),
    Ordered(Encoding<E, Ordered<false>>),
    NonNegative(Encoding<E, Ordered<true>>),
}

/// Root mean square error, in octaves, beyond which what is nowhere negative is coded exactly.
const COARSE_OCTAVES: f64 = 1.5;

/// A spread sample in which fewer entries differ from the base tells too little.
const FEW: usize = 64;

impl<E: Element> LossyPlan<E> {
    pub fn new(lossy: &Lossy, chunk_log2: u8, target: &[E], base: &[E], workers: &impl Workers) -> Self {
        let whole = Job { lossy, chunk_log2, target, base, predicted: false, largest_error: None, of: None, workers };
        let signed = || is_signed(lossy, target, base);
        if target.len() <= SAMPLED_FROM || counts_all(lossy) {
            return whole.choose_domain(signed(), &whole);
        }
        let (all, changed) = ((0..whole.chunks()).collect::<Vec<_>>(), changed_chunks(chunk_log2, target, Some(base)));
        let all = Source { target, base: Some(base), chunk_log2, chunks: &all };
        let changed = Source { chunks: &changed, ..all };
        let few = changed.elements() <= SAMPLED_FROM;
        let samples = if few { None } else { samples(&all, &changed, workers) };
        let Some((spread, blocks)) = samples.filter(|(spread, _)| spread.changed() >= FEW) else {
            // Quick, as unchanged chunks are passed over; and coding all from zero would not pay.
            let lossy = &Lossy { base: BaseChoice::Previous, ..*lossy };
            let whole = Job { lossy, ..whole };
            return whole.choose_domain(signed(), &whole);
        };
        // Entries with a sign that the sample lacks are few: exceptions.
        let signed = is_signed(lossy, &spread.target, spread.base.as_deref().unwrap_or(&[]));
        let of = Some(Of { elements: target.len(), changed: changed.elements(), chunk_log2 });
        let sampled = Job { of, ..whole };
        if lossy.bound.is_some() {
            // What a sample lacks may be beyond the bound: the exceptions are counted, not estimated.
            return sampled.over(&spread).choose_domain(signed, &whole);
        }
        sampled.over(&spread).choose_domain(signed, &Job { chunk_log2: BLOCK_LOG2, ..sampled.over(&blocks) })
    }

    /// The plan for a tensor whose base is predicted. `largest_error`: of fewer levels than are asked for the first whose squared
    /// error, over the entries that the plan is made from, is no larger.
    pub fn predicted(
        lossy: &Lossy,
        of: &Relatives<'_, E>,
        prediction: Prediction,
        largest_error: Option<f64>,
        workers: &impl Workers,
    ) -> Self {
        let lossy = &Lossy { base: BaseChoice::Previous, ..*lossy };
        let &Relatives { target, base, chunk_log2, .. } = of;
        let job = Job { lossy, chunk_log2, target, base, predicted: true, largest_error, of: None, workers };
        let plan = match of.expected(&prediction, counts_all(lossy)) {
            Expected::Whole(base) => {
                let whole = Job { base: &base, ..job };
                whole.choose_domain(is_signed(lossy, target, &base), &whole)
            }
            Expected::Samples { spread, blocks } => {
                let elements = target.len();
                let job = Job { of: Some(Of { elements, changed: elements, chunk_log2 }), ..job };
                // A prediction of what is nowhere negative is none either: see `Plan::predicted`.
                let signed = is_signed(lossy, target, base);
                job.over(&spread).choose_domain(signed, &Job { chunk_log2: BLOCK_LOG2, ..job.over(&blocks) })
            }
        };
        LossyPlan { prediction: Some(prediction), ..plan }
    }

    /// Whether its error is no larger than was allowed.
    pub fn is_within(&self) -> bool {
        self.within
    }

    /// The sum of squares of target - reconstruction over these entries, in the record's domain.
    pub fn squared_error(&self, target: &[E], base: &[E]) -> f64 {
        match &self.rule {
            Rule::Value(encoding) => squared_error(encoding, self.from_zero, target, base),
            Rule::Ordered(encoding) => squared_error(encoding, self.from_zero, target, base),
            Rule::NonNegative(encoding) => squared_error(encoding, self.from_zero, target, base),
        }
    }

    /// Whether reconstructions of what is nowhere negative are off by octaves: such entries, second moments mostly, count by their
    /// size, and a first delta from zero has a representative or two for all sizes.
    pub fn is_coarse(&self) -> bool {
        self.coarse
    }

    /// Whether they are over these entries.
    fn is_off_by_octaves(&self, target: &[E], base: &[E]) -> bool {
        let Rule::NonNegative(encoding) = &self.rule else { return false };
        let octave = (1u64 << E::MANTISSA_BITS) as f64;
        let large = |representative: &E::Wide| representative.to_f64().abs() >= octave;
        if !encoding.quantizer.representatives().iter().any(large) {
            return false;
        }
        let mean = squared_error(encoding, self.from_zero, target, base) / target.len() as f64;
        mean > COARSE_OCTAVES * COARSE_OCTAVES * octave * octave
    }

    /// Whether it is made from samples.
    pub fn is_sampled(&self) -> bool {
        self.sampled
    }

    pub fn prediction(&self) -> Option<&Prediction> {
        self.prediction.as_ref()
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
        out: &mut dyn Sink,
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
            leaves_unchanged: !self.from_zero && self.prediction.is_none(),
            exceptions: self.exceptions > 0,
            measured: self.measured(number),
        }
    }

    /// The entries of chunk `number` that its error is measured over.
    pub fn measured(&self, number: usize) -> Measured {
        if self.sampled { Measured::Sample { chunk: number } } else { Measured::All }
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
        let base = match &self.prediction {
            Some(prediction) => Base::Predicted(prediction.clone()),
            None if self.from_zero => Base::Zero,
            None => Base::Previous,
        };
        RecordHeader { base, kind, chunk_log2: self.chunk_log2, exceptions: self.exceptions > 0, index: Vec::new() }
    }
}

/// A spread sample of one source and blocks of the other.
fn samples<E: Element>(
    all: &Source<'_, E>,
    changed: &Source<'_, E>,
    workers: &impl Workers,
) -> Option<(Sample<E>, Sample<E>)> {
    let (mut spread, mut blocks) = (None, None);
    let gather = |number| if number == 0 { all.spread() } else { changed.blocks() };
    workers.in_order(2, gather, |sample| {
        let next = if spread.is_none() { &mut spread } else { &mut blocks };
        *next = Some(sample);
    });
    spread.zip(blocks)
}

/// The paper's rule counts every entry, and its representatives are of all.
pub fn counts_all(lossy: &Lossy) -> bool {
    matches!(lossy.promotion, Promotion::Buckets { .. })
}

/// Whether the tensor or its base has a sign bit set, or neither matters.
fn is_signed<E: Element>(lossy: &Lossy, target: &[E], base: &[E]) -> bool {
    lossy.domain == DomainChoice::Value || has_sign(target) || has_sign(base)
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
