//! A tensor of several chunks, coded some at a time; and what coding one chunk takes.

use super::encode::Summary;
use super::families::{Beside, Family};
use super::pool::lock;
use super::{Pool, Tensor, TensorBase};
use crate::chunk::encode::all_finite;
use crate::error::Result;
use crate::float::ElementType;
use crate::header::chunk_count;
use crate::plan::{AnyPlan, ChunkBase, Workers};
use crate::predict::Siblings;
use crate::promote::Promotion;
use crate::record::RecordWriter;
use crate::spec::Lossy;
use crate::view::{elements, with_element_type};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Original bytes that are worked on in one go, at most (or one chunk): threads wait for each other at its end. What is coded
/// exactly hardly shrinks, and may be more than the caller has room for.
const LOSSY_BATCH_BYTES: usize = 16 << 20;
const EXACT_BATCH_BYTES: usize = 4 << 20;

/// A tensor that is being written.
pub struct Current {
    plan: AnyPlan,
    record: RecordWriter,
    next: usize,
    chunks: usize,
    finite: bool,
}

/// A chunk's number, its bytes and its part of the siblings.
type Piece<'a> = (usize, &'a [u8], Siblings<'a, u8>);

impl Current {
    /// `planned`: its plan, if it is made. `family`: how its base is predicted, and `siblings` what that reads.
    pub fn new(
        tensor: &Tensor<'_>,
        planned: Option<AnyPlan>,
        family: Option<&mut Family>,
        siblings: Siblings<'_, u8>,
        pool: &Pool,
    ) -> Result<Self> {
        let plan = match (planned, family, &tensor.base) {
            (Some(plan), ..) => plan,
            (None, Some(family), TensorBase::Previous(base)) => {
                tensor.check()?;
                family.plan(tensor, base, siblings, pool)?
            }
            _ => plan_of(tensor, pool)?,
        };
        let record = RecordWriter::of_header(plan.header());
        let chunks = record.chunks(tensor.elements());
        // Of a tensor that is as it was nothing is looked at later.
        let finite = chunks > 0 || is_residual(&tensor.base) || is_finite(tensor.element, tensor.target)?;
        Ok(Current { plan, record, next: 0, chunks, finite })
    }

    pub fn is_done(&self) -> bool {
        self.next == self.chunks
    }

    /// The header's bytes, and what is true of the record.
    pub fn finish(self, element: ElementType) -> (Vec<u8>, Summary) {
        let header = self.record.finish();
        let mut bytes = Vec::new();
        header.write(element, &mut bytes);
        (bytes, Summary { lossy: header.is_lossy(), finite: self.finite })
    }

    /// Encodes the next chunks, and gives the bytes of each to `emit`, in order, while they are in cache. `slots`: buffers to reuse.
    pub fn encode(
        &mut self,
        tensor: &mut Tensor<'_>,
        siblings: Siblings<'_, u8>,
        slots: &mut Vec<Vec<u8>>,
        pool: &Pool,
        mut emit: impl FnMut(&[u8]),
    ) -> Result<()> {
        let chunk_bytes = tensor.element.size() << tensor.spec.chunk_log2;
        let batch = if self.plan.is_lossy() { LOSSY_BATCH_BYTES } else { EXACT_BATCH_BYTES };
        let count = (batch / chunk_bytes).max(1).min(self.chunks - self.next);
        let start = self.next * chunk_bytes;
        let length = (count * chunk_bytes).min(tensor.target.len() - start);
        let pieces = tensor.target[start..start + length].chunks(chunk_bytes).enumerate().map(|(i, target)| {
            let at = start + i * chunk_bytes;
            (self.next + i, target, siblings.part(at..at + target.len()))
        });
        let work = pieces.zip(base_chunks(&mut tensor.base, start..start + length, chunk_bytes)).collect();
        let (plan, buffers) = (&self.plan, Buffers(Mutex::new(std::mem::take(slots))));
        let encode = |(piece, mut base): (Piece<'_>, ChunkBase<'_>)| {
            let (number, target, siblings) = piece;
            let mut slot = buffers.get();
            (plan.encode_chunk(number, target, &mut base, siblings, &mut slot), slot)
        };
        let mut failed = None;
        pool.map_each(work, encode, |(encoded, slot)| {
            match encoded {
                Ok(encoded) if failed.is_none() => {
                    self.finite &= !encoded.not_finite;
                    self.record.add(encoded);
                    emit(&slot);
                }
                Ok(_) => {}
                Err(error) => failed = failed.take().or(Some(error)),
            }
            buffers.put(slot);
        });
        *slots = buffers.into_all();
        self.next += count;
        failed.map_or(Ok(()), Err)
    }
}

/// The plan of a tensor whose base is not predicted.
pub fn plan_of(tensor: &Tensor<'_>, workers: &impl Workers) -> Result<AnyPlan> {
    tensor.check()?;
    AnyPlan::new(tensor.element, &tensor.spec, tensor.target, tensor.base.bytes(), workers)
}

/// Whether a tensor has several chunks and its plan is one thread's work: of a large one it is made from samples, unless a rule or a
/// bound looks at all entries.
pub fn plans_alone(tensor: &Tensor<'_>) -> bool {
    let looks_at_all = |lossy: &Lossy| lossy.bound.is_some() || matches!(lossy.promotion, Promotion::Buckets { .. });
    let chunks = chunk_count(tensor.elements(), tensor.spec.chunk_log2);
    chunks > 1 && !tensor.spec.lossy.as_ref().is_some_and(looks_at_all)
}

/// Buffers that threads share.
struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// An empty one.
    fn get(&self) -> Vec<u8> {
        let mut buffer = lock(&self.0).pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    fn put(&self, buffer: Vec<u8>) {
        lock(&self.0).push(buffer);
    }

    fn into_all(self) -> Vec<Vec<u8>> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Encodes a tensor of one chunk at most.
pub fn encode_one(
    tensor: &mut Tensor<'_>,
    family: Option<&mut Family>,
    beside: &Beside<'_, '_>,
    slot: &mut Vec<u8>,
) -> Result<(Vec<u8>, Summary)> {
    let siblings = beside.of(family.as_deref());
    let mut current = Current::new(tensor, None, family, siblings, &Pool::new(1)?)?;
    if current.chunks > 0 {
        let base = &mut base_range(&mut tensor.base, 0..usize::MAX);
        let encoded = current.plan.encode_chunk(0, tensor.target, base, siblings, slot)?;
        current.finite = !encoded.not_finite;
        current.record.add(encoded);
    }
    Ok(current.finish(tensor.element))
}

fn base_range<'a>(base: &'a mut TensorBase<'_>, range: Range<usize>) -> ChunkBase<'a> {
    match base {
        TensorBase::None => ChunkBase::None,
        TensorBase::Previous(base) => {
            let end = range.end.min(base.len());
            ChunkBase::Previous(&mut base[range.start..end])
        }
        TensorBase::Own(base) => ChunkBase::Own(&base[range.start..range.end.min(base.len())]),
    }
}

fn base_chunks<'a>(base: &'a mut TensorBase<'_>, range: Range<usize>, chunk_bytes: usize) -> Vec<ChunkBase<'a>> {
    let count = range.len().div_ceil(chunk_bytes);
    match base_range(base, range) {
        ChunkBase::None => (0..count).map(|_| ChunkBase::None).collect(),
        ChunkBase::Previous(base) => base.chunks_mut(chunk_bytes).map(ChunkBase::Previous).collect(),
        ChunkBase::Own(base) => base.chunks(chunk_bytes).map(ChunkBase::Own).collect(),
    }
}

/// Whether it is part of a residual: whether all is finite has been told by the snapshot.
fn is_residual(base: &TensorBase<'_>) -> bool {
    matches!(base, TensorBase::Own(_))
}

/// Whether every entry is finite; true of what are no floats.
fn is_finite(element: ElementType, target: &[u8]) -> Result<bool> {
    with_element_type!(element, E => Ok(all_finite(elements::<E>(target)?)), _size => Ok(true))
}
