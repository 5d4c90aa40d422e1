//! A tensor of several chunks, coded some at a time; and what coding one chunk takes.

use super::encode::Summary;
use super::families::{Beside, Family};
use super::outgoing::Outgoing;
use super::pool::lock;
use super::small::Coded;
use super::watch::{self, Piece};
use super::{Pool, Tensor, TensorBase};
use crate::checksum::TensorSum;
use crate::chunk::encode::{EncodedChunk, all_finite};
use crate::error::{Error, Result};
use crate::float::ElementType;
use crate::header::chunk_count;
use crate::plan::{AnyPlan, ChunkBase, Workers};
use crate::predict::Siblings;
use crate::promote::Promotion;
use crate::record::RecordWriter;
use crate::sink::{Buffer, Sink};
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
    written: Written,
    next: usize,
    chunks: usize,
    watched: bool,
}

/// What is told of the chunks that are written.
struct Written {
    record: RecordWriter,
    finite: bool,
    seen: TensorSum,
}

impl Written {
    fn add(&mut self, (encoded, sum): (EncodedChunk, u64)) {
        self.finite &= !encoded.not_finite;
        self.record.add(encoded);
        self.seen.add(sum);
    }
}

impl Current {
    /// `planned`: its plan, if it is made. `family`: how its base is predicted, and `siblings` what that reads. `watched`: whether
    /// to take sums of the target.
    pub fn new(
        tensor: &Tensor<'_>,
        planned: Option<AnyPlan>,
        family: Option<&mut Family>,
        siblings: Siblings<'_, u8>,
        watched: bool,
        pool: &Pool,
    ) -> Result<Self> {
        let same = if watched && family.is_none() { watch::same(tensor, pool)? } else { None };
        let planned = same.map(|(role, _)| AnyPlan::SameBytes(role)).or(planned);
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
        if watched && same.is_none() && chunks == 0 && !tensor.target.is_empty() {
            // It was as its base when it was planned.
            return Err(Error::Changed);
        }
        let seen = same.map_or_else(TensorSum::default, |(_, sum)| sum);
        Ok(Current { plan, written: Written { record, finite, seen }, next: 0, chunks, watched })
    }

    pub fn is_done(&self) -> bool {
        self.next == self.chunks
    }

    /// What became of the tensor, which has this number.
    pub fn finish(self, number: usize, element: ElementType) -> Coded {
        let Written { record, finite, seen } = self.written;
        let record = record.finish();
        let mut header = Vec::new();
        record.write(element, &mut header);
        let summary = Summary { lossy: record.is_lossy(), finite };
        Coded { number, header, summary, seen, before: None }
    }

    /// Encodes the next chunks. `slots`: buffers to reuse.
    pub fn encode(
        &mut self,
        tensor: &mut Tensor<'_>,
        siblings: Siblings<'_, u8>,
        slots: &mut Vec<Buffer>,
        pool: &Pool,
        outgoing: &mut Outgoing<'_>,
    ) -> Result<()> {
        let chunk_bytes = tensor.chunk_bytes();
        let batch = if self.plan.is_lossy() { LOSSY_BATCH_BYTES } else { EXACT_BATCH_BYTES };
        let count = (batch / chunk_bytes).max(1).min(self.chunks - self.next);
        let first = self.next;
        let start = first * chunk_bytes;
        let length = (count * chunk_bytes).min(tensor.target.len() - start);
        let pieces = tensor.target[start..start + length].chunks(chunk_bytes).enumerate().map(|(i, target)| {
            let at = start + i * chunk_bytes;
            (first + i, target, siblings.part(at..at + target.len()))
        });
        let work = pieces.zip(base_chunks(&mut tensor.base, start..start + length, chunk_bytes));
        self.next += count;
        if pool.threads() == 1 {
            self.encode_alone(work, outgoing)
        } else {
            self.encode_beside(work.collect(), slots, pool, outgoing)
        }
    }

    /// Straight to where they go.
    fn encode_alone<'a>(
        &mut self,
        work: impl Iterator<Item = (Piece<'a>, ChunkBase<'a>)>,
        outgoing: &mut Outgoing<'_>,
    ) -> Result<()> {
        let Current { plan, written, watched, .. } = self;
        for (piece, mut base) in work {
            written.add(outgoing.emit_with(|out| watch::encode_chunk(plan, piece, &mut base, out, *watched))?);
        }
        Ok(())
    }

    /// By the threads of a pool, each chunk to a buffer of its own; from there they go on in order, while they are in cache.
    fn encode_beside(
        &mut self,
        work: Vec<(Piece<'_>, ChunkBase<'_>)>,
        slots: &mut Vec<Buffer>,
        pool: &Pool,
        outgoing: &mut Outgoing<'_>,
    ) -> Result<()> {
        let Current { plan, written, watched, .. } = self;
        let buffers = Buffers(Mutex::new(std::mem::take(slots)));
        let encode = |(piece, mut base): (Piece<'_>, ChunkBase<'_>)| {
            let mut slot = buffers.get();
            (watch::encode_chunk(plan, piece, &mut base, &mut slot, *watched), slot)
        };
        let mut failed = None;
        pool.map_each(work, encode, |(encoded, slot)| {
            match encoded {
                Ok(encoded) if failed.is_none() => {
                    written.add(encoded);
                    outgoing.emit(slot.bytes());
                }
                Ok(_) => {}
                Err(error) => failed = failed.take().or(Some(error)),
            }
            buffers.put(slot);
        });
        *slots = buffers.into_all();
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
struct Buffers(Mutex<Vec<Buffer>>);

impl Buffers {
    /// An empty one.
    fn get(&self) -> Buffer {
        let mut buffer = lock(&self.0).pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    fn put(&self, buffer: Buffer) {
        lock(&self.0).push(buffer);
    }

    fn into_all(self) -> Vec<Buffer> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Encodes a tensor of one chunk at most.
pub fn encode_one(
    (number, tensor): (usize, &mut Tensor<'_>),
    family: Option<&mut Family>,
    beside: &Beside<'_, '_>,
    out: &mut dyn Sink,
    watched: bool,
) -> Result<Coded> {
    let siblings = beside.of(family.as_deref());
    let mut current = Current::new(tensor, None, family, siblings, watched, &Pool::new(1)?)?;
    if current.chunks > 0 {
        let base = &mut base_range(&mut tensor.base, 0..usize::MAX);
        current.written.add(watch::encode_chunk(&current.plan, (0, tensor.target, siblings), base, out, watched)?);
    }
    Ok(current.finish(number, tensor.element))
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
