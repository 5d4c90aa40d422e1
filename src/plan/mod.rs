//! Plans: how one tensor will be coded, decided from its content before the first chunk is written.

mod any;
mod classes;
mod exact;
mod kept;
mod lossy;
mod predicted;
mod sample;
mod tops;

pub use any::{AnyPlan, ChunkBase};
pub use exact::ExactPlan;
pub use lossy::LossyPlan;
pub use predicted::{Relatives, Without};
pub use sample::sampled_places;

use crate::chunk::encode::{EncodedChunk, Squares};
use crate::chunk::{Scratch, with_scratch};
use crate::float::Element;
use crate::header::{Base, RecordHeader, chunk_count};
use crate::predict::Siblings;
use crate::sink::Sink;
use crate::spec::Spec;

/// Runs pieces of work, perhaps at once, and takes the results in order.
pub trait Workers: Sync {
    /// Calls `work` for every number below `count` and `fold` with each result, in order of the numbers.
    fn in_order<R: Send>(&self, count: usize, work: impl Fn(usize) -> R + Sync, fold: impl FnMut(R));
}

/// Does everything in the calling thread.
#[derive(Debug, Clone, Copy)]
pub struct Serial;

impl Workers for Serial {
    fn in_order<R: Send>(&self, count: usize, work: impl Fn(usize) -> R + Sync, mut fold: impl FnMut(R)) {
        (0..count).for_each(|i| fold(work(i)));
    }
}

/// The base that a target is coded against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseRole {
    /// The parent snapshot's reconstruction.
    Previous,
    /// This snapshot's reconstruction: a residual.
    Own,
}

impl BaseRole {
    pub fn base(self) -> Base {
        match self {
            BaseRole::Previous => Base::Previous,
            BaseRole::Own => Base::Own,
        }
    }
}

/// How one tensor will be coded.
#[allow(clippy::large_enum_variant, reason = "there are a few at a time")]
pub enum Plan<E: Element> {
    /// It equals its base.
    Same(BaseRole),
    Lossy(LossyPlan<E>),
    Exact(ExactPlan),
}

/// The elements of a tensor in chunks of 2^log2.
pub fn chunk_of<E>(elements: &[E], log2: u8, number: usize) -> &[E] {
    let size = 1usize << log2;
    let start = (number * size).min(elements.len());
    &elements[start..(start + size).min(elements.len())]
}

/// Whether two tensors have the same bits.
pub fn same_bits<E: Element>(a: &[E], b: &[E]) -> bool {
    bytemuck::cast_slice::<E, u8>(a) == bytemuck::cast_slice::<E, u8>(b)
}

/// The chunks that differ from the base.
pub fn changed_chunks<E: Element>(chunk_log2: u8, target: &[E], base: Option<&[E]>) -> Vec<usize> {
    let differs = |number: &usize| {
        let chunk = |elements| chunk_of(elements, chunk_log2, *number);
        base.is_none_or(|base| !same_bits(chunk(target), chunk(base)))
    };
    (0..chunk_count(target.len(), chunk_log2)).filter(differs).collect()
}

impl<E: Element> Plan<E> {
    /// Decides. With a base of `Own` the coding is exact, and so it is without a base.
    pub fn new(spec: &Spec, target: &[E], base: Option<(&[E], BaseRole)>, workers: &impl Workers) -> Self {
        if let Some((elements, role)) = base {
            if same_bits(target, elements) {
                return Plan::Same(role);
            }
            if let (Some(lossy), BaseRole::Previous) = (&spec.lossy, role)
                && target.len() >= lossy.least_elements
            {
                return Self::lossy_or_exact(spec, lossy, target, elements, workers);
            }
        }
        Plan::Exact(ExactPlan::new(spec, target, base, workers))
    }

    fn lossy_or_exact(
        spec: &Spec,
        lossy: &crate::spec::Lossy,
        target: &[E],
        base: &[E],
        workers: &impl Workers,
    ) -> Self {
        let plan = LossyPlan::new(lossy, spec.chunk_log2, target, base, workers);
        // Exact coding of floats seldom reaches a quarter: no need to try where lossy is below that.
        let large = plan.bytes() * 4 > size_of_val(target) as u64;
        if lossy.exact_fallback && (large || plan.is_coarse()) {
            let exact = ExactPlan::new(spec, target, Some((base, BaseRole::Previous)), workers);
            if plan.is_coarse() || exact.bytes() <= plan.bytes() {
                return Plan::Exact(exact);
            }
        }
        Plan::Lossy(plan)
    }

    /// Appends chunk `number`, and turns its part of `base` into the reconstruction.
    pub fn encode_chunk(
        &self,
        number: usize,
        target: &[E],
        base: Option<&mut [E]>,
        out: &mut dyn Sink,
    ) -> EncodedChunk {
        with_scratch(|scratch| self.encode_with(number, target, base, scratch, out))
    }

    fn encode_with(
        &self,
        number: usize,
        target: &[E],
        base: Option<&mut [E]>,
        scratch: &mut Scratch,
        out: &mut dyn Sink,
    ) -> EncodedChunk {
        match (self, base) {
            (Plan::Lossy(plan), Some(base)) => plan.encode_chunk(number, target, base, scratch, out),
            (Plan::Exact(plan), Some(base)) => {
                // Of a copy: what is coded, summed and kept is the same even if another thread changes the caller's memory.
                scratch.with_copy(target, |target, scratch| {
                    let encoded = plan.encode_chunk(target, Some(base), scratch, out);
                    base.copy_from_slice(target);
                    encoded
                })
            }
            (Plan::Exact(plan), None) => plan.encode_chunk(target, None, scratch, out),
            _ => EncodedChunk::default(),
        }
    }

    /// The same where the base may be predicted; `siblings`: their part of the chunk.
    pub fn encode_chunk_beside(
        &self,
        number: usize,
        target: &[E],
        base: &mut [E],
        siblings: Siblings<'_, E>,
        out: &mut dyn Sink,
    ) -> EncodedChunk {
        let Some(prediction) = self.prediction() else { return self.encode_chunk(number, target, Some(base), out) };
        // The error of a record is told by the delta to the previous reconstruction, whatever its base.
        let delta = match self {
            Plan::Lossy(plan) => plan.measured(number).sum_of_squares(target, base),
            _ => 0.0,
        };
        prediction.predict(base, siblings);
        let encoded = self.encode_chunk(number, target, Some(base), out);
        EncodedChunk { errors: Squares { delta, ..encoded.errors }, ..encoded }
    }

    /// Appends a chunk of a residual.
    pub fn encode_residual_chunk(&self, target: &[E], reconstruction: &[E], out: &mut dyn Sink) -> EncodedChunk {
        match self {
            Plan::Exact(plan) => with_scratch(|scratch| plan.encode_chunk(target, Some(reconstruction), scratch, out)),
            Plan::Same(_) | Plan::Lossy(_) => EncodedChunk::default(),
        }
    }

    pub fn is_lossy(&self) -> bool {
        matches!(self, Plan::Lossy(_))
    }

    /// The header, but for its index and its error.
    pub fn header(&self) -> RecordHeader {
        match self {
            Plan::Same(role) => RecordHeader::same(role.base()),
            Plan::Lossy(plan) => plan.header(),
            Plan::Exact(plan) => plan.header(),
        }
    }
}
