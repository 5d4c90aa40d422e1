//! Planning an exact record: exponent classes, difference to the base, or bytes, whichever is smallest.

use super::classes::{ClassPlanner, Classes};
use super::predicted::{Expected, Relatives};
use super::sample::{SAMPLED_FROM, Source, is_repetitive};
use super::{BaseRole, Workers, changed_chunks};
use crate::bytes;
use crate::checksum::content_sum;
use crate::chunk::encode::{EncodedChunk, ExactRecord, Squares, encode_bytes};
use crate::chunk::{Scratch, with_scratch};
use crate::coding::Coding;
use crate::exact::{Difference, ExponentClass, Window};
use crate::float::Element;
use crate::header::{Base, Kind, RecordHeader, chunk_count};
use crate::predict::Prediction;
use crate::sink::Sink;
use crate::spec::Spec;
use crate::statistics::Against;

/// An exact record's plan.
pub struct ExactPlan {
    rule: Rule,
    base: Base,
    chunk_log2: u8,
    bytes: u64,
}

enum Rule {
    Classes { window: Window, highest: u8, coding: Coding },
    Difference { window: Window, highest: u8, coding: Coding },
    Bytes { planes: u8 },
}

/// Chunks that are tried when the size under zstd is estimated.
const TRIALS: usize = 3;

/// zstd must beat the other ways by a twentieth: it is an estimate, and slower.
const WORTH: u64 = 20;

impl ExactPlan {
    pub fn new<E: Element>(spec: &Spec, target: &[E], base: Option<(&[E], BaseRole)>, workers: &impl Workers) -> Self {
        let elements = base.map(|(elements, _)| elements);
        let changed = changed_chunks(spec.chunk_log2, target, elements);
        let source = Source { target, base: elements, chunk_log2: spec.chunk_log2, chunks: &changed };
        let (rule, bytes) = choose(&source, workers);
        let unchanged = changed.len() < chunk_count(target.len(), spec.chunk_log2);
        let needs_base = unchanged || matches!(rule, Rule::Difference { .. });
        let base = base.filter(|_| needs_base).map_or(Base::Zero, |(_, role)| role.base());
        ExactPlan { rule, base, chunk_log2: spec.chunk_log2, bytes }
    }

    /// The plan for a tensor whose base is predicted: its difference to that.
    pub fn predicted<E: Element>(of: &Relatives<'_, E>, prediction: Prediction, workers: &impl Workers) -> Self {
        let elements = of.target.len();
        let chunks: Vec<usize> = (0..chunk_count(elements, of.chunk_log2)).collect();
        let Classes { window, highest, coded } = match of.expected(&prediction, false) {
            Expected::Whole(base) => {
                let all = Source { target: of.target, base: Some(&base), chunk_log2: of.chunk_log2, chunks: &chunks };
                ClassPlanner { of: None, spread: all, blocks: all, workers }.plan(Difference)
            }
            Expected::Samples { spread, blocks } => {
                let (spread, blocks) = (spread.source(), blocks.source());
                ClassPlanner { of: Some((elements, of.chunk_log2)), spread, blocks, workers }.plan(Difference)
            }
        };
        let rule = Rule::Difference { window, highest, coding: coded.coding };
        ExactPlan { rule, base: Base::Predicted(prediction), chunk_log2: of.chunk_log2, bytes: coded.bits.div_ceil(8) }
    }

    pub fn prediction(&self) -> Option<&Prediction> {
        if let Base::Predicted(prediction) = &self.base { Some(prediction) } else { None }
    }

    /// The plan for elements that are opaque bytes of `size` each.
    pub fn of_bytes(spec: &Spec, size: usize, target: &[u8], base: Option<(&[u8], BaseRole)>) -> Self {
        let chunk = size << spec.chunk_log2;
        let chunks = target.chunks(chunk).enumerate();
        let differs = |number: usize, t: &[u8]| {
            base.is_none_or(|(base, _)| base.get(number * chunk..number * chunk + t.len()) != Some(t))
        };
        let changed: Vec<&[u8]> = chunks.filter(|(number, t)| differs(*number, t)).map(|(_, t)| t).collect();
        let (planes, bytes) = estimate_zstd(&changed, size);
        let unchanged = changed.len() < target.len().div_ceil(chunk);
        let base = base.filter(|_| unchanged).map_or(Base::Zero, |(_, role)| role.base());
        ExactPlan { rule: Rule::Bytes { planes }, base, chunk_log2: spec.chunk_log2, bytes }
    }

    /// About how many bytes the record will have.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a chunk. Its sum is taken after the last look at `target`.
    pub fn encode_chunk<E: Element>(
        &self,
        target: &[E],
        base: Option<&[E]>,
        scratch: &mut Scratch,
        out: &mut dyn Sink,
    ) -> EncodedChunk {
        let against = base.map_or(Against::Zero, Against::Base);
        let bytes = bytemuck::cast_slice(target);
        match &self.rule {
            _ if self.leaves(bytes, base.map(bytemuck::cast_slice)) => EncodedChunk::default(),
            Rule::Classes { window, coding, .. } => written(out, |out| {
                ExactRecord { cut: ExponentClass, window: *window, coding }.encode(target, Against::Zero, scratch, out)
            }),
            Rule::Difference { window, coding, .. } => written(out, |out| {
                ExactRecord { cut: Difference, window: *window, coding }.encode(target, against, scratch, out)
            }),
            Rule::Bytes { planes } => written(out, |out| {
                encode_bytes(bytes, *planes, scratch, out);
                content_sum(bytes)
            }),
        }
    }

    /// The same for a plan of [`ExactPlan::of_bytes`].
    pub fn encode_byte_chunk(
        &self,
        target: &[u8],
        base: Option<&[u8]>,
        scratch: &mut Scratch,
        out: &mut dyn Sink,
    ) -> EncodedChunk {
        match self.rule {
            Rule::Bytes { planes } if !self.leaves(target, base) => written(out, |out| {
                encode_bytes(target, planes, scratch, out);
                content_sum(target)
            }),
            _ => EncodedChunk::default(),
        }
    }

    /// Whether a chunk is only marked as unchanged.
    fn leaves(&self, target: &[u8], base: Option<&[u8]>) -> bool {
        matches!(self.base, Base::Previous | Base::Own) && base == Some(target)
    }

    pub fn header(&self) -> RecordHeader {
        let kind = match &self.rule {
            Rule::Classes { window, highest, coding } => {
                Kind::Classes { highest: *highest, top: window.top, coding: coding.clone() }
            }
            Rule::Difference { window, highest, coding } => {
                Kind::Difference { highest: *highest, top: window.top, coding: coding.clone() }
            }
            Rule::Bytes { planes } => Kind::Bytes { planes: *planes },
        };
        RecordHeader {
            base: self.base.clone(),
            kind,
            chunk_log2: self.chunk_log2,
            exceptions: false,
            index: Vec::new(),
        }
    }
}

/// What `write` appends for a chunk; it returns the content sum.
fn written(out: &mut dyn Sink, write: impl FnOnce(&mut dyn Sink) -> u64) -> EncodedChunk {
    let start = out.length();
    let sum = write(out);
    EncodedChunk { length: Some(out.length() - start), sum, errors: Squares::default(), not_finite: false }
}

/// The cheapest rule for the changed chunks, and about how many bytes it takes.
fn choose<E: Element>(changed: &Source<'_, E>, workers: &impl Workers) -> (Rule, u64) {
    let samples = (changed.elements() > SAMPLED_FROM).then(|| (changed.spread(), changed.blocks()));
    let sources = samples.as_ref().map(|(spread, blocks)| (spread.source(), blocks.source()));
    let planner = match sources {
        Some((spread, blocks)) => {
            ClassPlanner { of: Some((changed.elements(), changed.chunk_log2)), spread, blocks, workers }
        }
        None => ClassPlanner { of: None, spread: *changed, blocks: *changed, workers },
    };
    let classes = planner.plan(ExponentClass);
    let mut bytes = classes.coded.bits.div_ceil(8);
    let Classes { window, highest, coded } = classes;
    let mut rule = Rule::Classes { window, highest, coding: coded.coding };
    if changed.base.is_some() {
        let Classes { window, highest, coded } = planner.plan(Difference);
        if coded.bits.div_ceil(8) < bytes {
            bytes = coded.bits.div_ceil(8);
            rule = Rule::Difference { window, highest, coding: coded.coding };
        }
    }
    let (planes, estimate) = estimate_bytes(changed, is_repetitive(planner.spread.target));
    if estimate + estimate / WORTH < bytes {
        bytes = estimate;
        rule = Rule::Bytes { planes };
    }
    (rule, bytes)
}

/// Planes, and the bytes of the chunks as they are, or under zstd where that is worth a try.
fn estimate_bytes<E: Element>(changed: &Source<'_, E>, try_zstd: bool) -> (u8, u64) {
    let chunks: Vec<&[u8]> =
        (0..changed.chunks.len()).map(|place| bytemuck::cast_slice(changed.chunk(place).0)).collect();
    if try_zstd { estimate_zstd(&chunks, size_of::<E>()) } else { (0, chunks.iter().map(|c| c.len() as u64).sum()) }
}

/// Planes (0, or the item size), and about how many bytes `chunks` will have.
fn estimate_zstd(chunks: &[&[u8]], size: usize) -> (u8, u64) {
    let step = chunks.len().div_ceil(TRIALS).max(1);
    let total: usize = chunks.iter().map(|chunk| chunk.len()).sum();
    let trials = chunks.iter().step_by(step);
    let tried: usize = trials.clone().map(|chunk| chunk.len()).sum();
    let coded_with = |planes: u8| -> u64 {
        with_scratch(|scratch| {
            let mut out = Vec::new();
            trials.clone().for_each(|chunk| bytes::encode(chunk, planes, &mut scratch.bytes, &mut out));
            out.len() as u64 * total as u64 / tried.max(1) as u64
        })
    };
    let plain = (0, coded_with(0));
    let Ok(planes @ 2..) = u8::try_from(size) else { return plain };
    let transposed = (planes, coded_with(planes));
    if transposed.1 < plain.1 { transposed } else { plain }
}
