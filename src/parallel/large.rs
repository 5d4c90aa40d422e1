//! A tensor of several chunks, coded some at a time; and what coding one chunk takes.

use super::encode::Summary;
use super::families::{Beside, Family};
use super::{Pool, Tensor, TensorBase};
use crate::chunk::encode::all_finite;
use crate::error::Result;
use crate::float::ElementType;
use crate::plan::{AnyPlan, ChunkBase};
use crate::predict::Siblings;
use crate::record::RecordWriter;
use crate::view::{elements, with_element_type};
use std::ops::Range;

/// Original bytes that a thread works on between two hand-overs of coded ones, at most (or one chunk): so few that what it
/// has coded is still in its cache when it is copied out.
const BATCH_BYTES: usize = 1 << 18;

/// The same where threads wait for each other at every hand-over.
const SHARED_BATCH_BYTES: usize = 2 << 20;

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
    /// `family`: how its base is predicted, and `siblings` what that reads.
    pub fn new(
        tensor: &Tensor<'_>,
        family: Option<&mut Family>,
        siblings: Siblings<'_, u8>,
        pool: &Pool,
    ) -> Result<Self> {
        tensor.check()?;
        let plan = match (family, &tensor.base) {
            (Some(family), TensorBase::Previous(base)) => family.plan(tensor, base, siblings, pool)?,
            _ => AnyPlan::new(tensor.element, &tensor.spec, tensor.target, tensor.base.bytes(), pool)?,
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

    /// Encodes the next chunks, each into a slot of its own.
    pub fn encode(
        &mut self,
        tensor: &mut Tensor<'_>,
        siblings: Siblings<'_, u8>,
        slots: &mut Vec<Vec<u8>>,
        pool: &Pool,
    ) -> Result<()> {
        let chunk_bytes = tensor.element.size() << tensor.spec.chunk_log2;
        let threads = pool.threads();
        let batch = if threads == 1 { BATCH_BYTES } else { threads * SHARED_BATCH_BYTES };
        let count = (batch / chunk_bytes).max(1).min(self.chunks - self.next);
        slots.resize_with(count, Vec::new);
        let start = self.next * chunk_bytes;
        let length = (count * chunk_bytes).min(tensor.target.len() - start);
        let pieces = tensor.target[start..start + length].chunks(chunk_bytes).enumerate().map(|(i, target)| {
            let at = start + i * chunk_bytes;
            (self.next + i, target, siblings.part(at..at + target.len()))
        });
        let work = pieces
            .zip(base_chunks(&mut tensor.base, start..start + length, chunk_bytes))
            .zip(slots.iter_mut())
            .collect();
        let plan = &self.plan;
        let encode = |((piece, mut base), slot): ((Piece<'_>, ChunkBase<'_>), &mut Vec<u8>)| {
            let (number, target, siblings) = piece;
            plan.encode_chunk(number, target, &mut base, siblings, slot)
        };
        for result in pool.map(work, encode) {
            let encoded = result?;
            self.finite &= !encoded.not_finite;
            self.record.add(encoded);
        }
        self.next += count;
        Ok(())
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
    let mut current = Current::new(tensor, family, siblings, &Pool::new(1)?)?;
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
