//! Encoding the tensors of a snapshot in order, as many bytes at a time as the caller has room for.

use super::Pool;
use super::links::link_record;
use crate::error::{Error, Result};
use crate::fenv;
use crate::float::{Element, ElementType};
use crate::header::chunk_count;
use crate::plan::{AnyPlan, BaseRole, ChunkBase};
use crate::record::RecordWriter;
use crate::spec::Spec;
use crate::view::{elements, with_element_type};

/// A tensor to encode: its elements, little-endian, in C order.
pub struct Tensor<'a> {
    pub element: ElementType,
    pub spec: Spec,
    pub target: &'a [u8],
    pub base: TensorBase<'a>,
}

/// What a tensor is coded against.
pub enum TensorBase<'a> {
    /// Nothing: exactly.
    None,
    /// The previous reconstruction, which becomes the new one.
    Previous(&'a mut [u8]),
    /// This snapshot's reconstruction, which stays: a residual.
    Own(&'a [u8]),
}

impl TensorBase<'_> {
    fn bytes(&self) -> Option<(&[u8], BaseRole)> {
        match self {
            TensorBase::None => None,
            TensorBase::Previous(base) => Some((base, BaseRole::Previous)),
            TensorBase::Own(base) => Some((base, BaseRole::Own)),
        }
    }
}

impl Tensor<'_> {
    pub fn elements(&self) -> usize {
        self.target.len() / self.element.size().max(1)
    }

    /// Whether its reconstruction may differ from its target.
    pub fn may_be_lossy(&self) -> bool {
        self.spec.lossy.is_some() && self.element.is_float() && matches!(self.base, TensorBase::Previous(_))
    }

    fn check(&self) -> Result<()> {
        self.spec.check()?;
        let size = self.element.size();
        if size == 0 || !self.target.len().is_multiple_of(size) {
            return Err(Error::Request("a tensor's bytes are not a whole number of elements"));
        }
        if self.base.bytes().is_some_and(|(base, _)| base.len() != self.target.len()) {
            return Err(Error::Request("target and base have different lengths"));
        }
        with_element_type!(self.element, E => elements::<E>(self.target).map(|_| ()), _size => Ok(()))
    }
}

/// A tensor of several chunks that is being written.
struct Current {
    plan: AnyPlan,
    record: RecordWriter,
    next: usize,
    chunks: usize,
    finite: bool,
}

/// Where a snapshot's encoding stands.
pub struct SnapshotEncoder {
    links: Vec<Option<u32>>,
    /// The record number of the first tensor.
    first: u32,
    headers: Vec<Vec<u8>>,
    summary: Summary,
    current: Option<Current>,
    /// Coded bytes that the caller had no room for, from this position on.
    spill: Vec<u8>,
    spilled: usize,
    /// Buffers for coded chunks.
    slots: Vec<Vec<u8>>,
}

/// What is true of a snapshot as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Whether any record is lossy.
    pub lossy: bool,
    /// Whether every entry of every float tensor is finite.
    pub finite: bool,
}

impl Summary {
    fn add(&mut self, other: Summary) {
        self.lossy |= other.lossy;
        self.finite &= other.finite;
    }
}

/// Original bytes that are worked on at once, at most (or one chunk).
const BATCH_BYTES: usize = 16 << 20;

impl SnapshotEncoder {
    /// `links[i]`: the tensor that tensor i is a link to, as [`find_links`](super::find_links) tells. `first`: the
    /// record number of the first tensor, where a snapshot is encoded in several goes.
    pub fn new(links: Vec<Option<u32>>, first: u32) -> Self {
        SnapshotEncoder {
            links,
            first,
            summary: Summary { lossy: false, finite: true },
            headers: Vec::new(),
            current: None,
            spill: Vec::new(),
            spilled: 0,
            slots: Vec::new(),
        }
    }

    /// Writes coded bytes to `out` and tells how many; none once everything is coded. `tensors` are the same at every call, and
    /// after an error nothing more can be had.
    pub fn fill(&mut self, tensors: &mut [Tensor<'_>], out: &mut [u8], pool: &Pool) -> Result<usize> {
        fenv::standard(|| self.fill_some(tensors, out, pool))
    }

    fn fill_some(&mut self, tensors: &mut [Tensor<'_>], out: &mut [u8], pool: &Pool) -> Result<usize> {
        let mut written = self.take_spill(out);
        while written == 0 && (self.headers.len() < tensors.len() || self.current.is_some()) {
            let batch = self.next_batch(tensors, pool)?;
            for slot in &batch {
                written += self.emit(slot, &mut out[written..]);
            }
            self.slots = batch;
        }
        Ok(written)
    }

    /// The record headers in order, once [`SnapshotEncoder::fill`] has written nothing more; completes the links.
    pub fn finish(mut self, tensors: &mut [Tensor<'_>]) -> Result<(Vec<u8>, Summary)> {
        if self.headers.len() != tensors.len() || self.spilled < self.spill.len() || self.current.is_some() {
            return Err(Error::Request("the snapshot is not yet encoded"));
        }
        fenv::standard(|| self.write_links(tensors))?;
        Ok((self.headers.concat(), self.summary))
    }

    fn write_links(&mut self, tensors: &mut [Tensor<'_>]) -> Result<()> {
        for target in 0..tensors.len() {
            if let Some(source) = self.links[target] {
                let header = link_record(tensors, target, source, self.first)?;
                header.write(tensors[target].element, &mut self.headers[target]);
            }
        }
        Ok(())
    }

    fn take_spill(&mut self, out: &mut [u8]) -> usize {
        let rest = &self.spill[self.spilled..];
        let taken = rest.len().min(out.len());
        out[..taken].copy_from_slice(&rest[..taken]);
        self.spilled += taken;
        if self.spilled == self.spill.len() {
            self.spill.clear();
            self.spilled = 0;
        }
        taken
    }

    fn emit(&mut self, bytes: &[u8], out: &mut [u8]) -> usize {
        let taken = bytes.len().min(out.len());
        out[..taken].copy_from_slice(&bytes[..taken]);
        self.spill.extend_from_slice(&bytes[taken..]);
        taken
    }

    /// Encodes some more chunks, into one slot each or one a tensor.
    fn next_batch(&mut self, tensors: &mut [Tensor<'_>], pool: &Pool) -> Result<Vec<Vec<u8>>> {
        let mut slots = std::mem::take(&mut self.slots);
        slots.iter_mut().for_each(Vec::clear);
        if self.current.is_none() {
            let start = self.headers.len();
            let small = self.small_tensors(tensors);
            if small > 0 {
                let batch = &mut tensors[start..start + small];
                for (header, summary) in encode_small(batch, &self.links[start..], &mut slots, pool)? {
                    self.headers.push(header);
                    self.summary.add(summary);
                }
                return Ok(slots);
            }
            self.current = Some(Current::new(&tensors[start], pool)?);
        }
        let Some(current) = &mut self.current else { return Ok(slots) };
        let tensor = &mut tensors[self.headers.len()];
        current.encode(tensor, &mut slots, pool)?;
        if current.next == current.chunks {
            let element = tensor.element;
            if let Some(done) = self.current.take() {
                let (header, summary) = done.finish(element);
                self.headers.push(header);
                self.summary.add(summary);
            }
        }
        Ok(slots)
    }

    /// How many of the next tensors have one chunk at most (or are links), within a batch.
    fn small_tensors(&self, tensors: &[Tensor<'_>]) -> usize {
        let start = self.headers.len();
        let mut bytes = 0;
        let fits = |i: &usize| {
            let tensor = &tensors[*i];
            let small = chunk_count(tensor.elements(), tensor.spec.chunk_log2) <= 1;
            let is_link = self.links[*i].is_some();
            bytes += if is_link { 0 } else { tensor.target.len() };
            is_link || (small && (bytes <= BATCH_BYTES || *i == start))
        };
        (start..tensors.len()).take_while(fits).count()
    }
}

/// Encodes tensors of one chunk at most, each into a slot of its own; links are passed over.
fn encode_small(
    tensors: &mut [Tensor<'_>],
    links: &[Option<u32>],
    slots: &mut Vec<Vec<u8>>,
    pool: &Pool,
) -> Result<Vec<(Vec<u8>, Summary)>> {
    slots.resize_with(tensors.len(), Vec::new);
    let work = tensors.iter_mut().zip(slots.iter_mut()).zip(links).collect();
    let encode = |((tensor, slot), link): ((&mut Tensor<'_>, &mut Vec<u8>), &Option<u32>)| match link {
        // A link's source tells whether it is finite.
        Some(_) => Ok((Vec::new(), Summary { lossy: false, finite: true })),
        None => encode_one(tensor, slot),
    };
    pool.map(work, encode).into_iter().collect()
}

fn encode_one(tensor: &mut Tensor<'_>, slot: &mut Vec<u8>) -> Result<(Vec<u8>, Summary)> {
    let serial = Pool::new(1)?;
    let mut current = Current::new(tensor, &serial)?;
    if current.chunks > 0 {
        let encoded =
            current.plan.encode_chunk(0, tensor.target, &mut base_range(&mut tensor.base, 0..usize::MAX), slot)?;
        current.record.add(encoded);
    }
    Ok(current.finish(tensor.element))
}

fn base_range<'a>(base: &'a mut TensorBase<'_>, range: std::ops::Range<usize>) -> ChunkBase<'a> {
    match base {
        TensorBase::None => ChunkBase::None,
        TensorBase::Previous(base) => {
            let end = range.end.min(base.len());
            ChunkBase::Previous(&mut base[range.start..end])
        }
        TensorBase::Own(base) => ChunkBase::Own(&base[range.start..range.end.min(base.len())]),
    }
}

/// A chunk's number and bytes.
type Piece<'a> = (usize, &'a [u8]);

impl Current {
    fn new(tensor: &Tensor<'_>, pool: &Pool) -> Result<Self> {
        tensor.check()?;
        let plan = AnyPlan::new(tensor.element, &tensor.spec, tensor.target, tensor.base.bytes(), pool)?;
        let record = RecordWriter::of_header(plan.header());
        let chunks = record.chunks(tensor.elements());
        let finite = all_finite(tensor, pool)?;
        Ok(Current { plan, record, next: 0, chunks, finite })
    }

    /// The header's bytes, and what is true of the record.
    fn finish(self, element: ElementType) -> (Vec<u8>, Summary) {
        let header = self.record.finish();
        let mut bytes = Vec::new();
        header.write(element, &mut bytes);
        (bytes, Summary { lossy: header.is_lossy(), finite: self.finite })
    }

    /// Encodes the next chunks, each into a slot of its own.
    fn encode(&mut self, tensor: &mut Tensor<'_>, slots: &mut Vec<Vec<u8>>, pool: &Pool) -> Result<()> {
        let chunk_bytes = tensor.element.size() << tensor.spec.chunk_log2;
        let count = (BATCH_BYTES / chunk_bytes).max(1).min(self.chunks - self.next);
        slots.resize_with(count, Vec::new);
        let start = self.next * chunk_bytes;
        let length = (count * chunk_bytes).min(tensor.target.len() - start);
        let work = (self.next..)
            .zip(tensor.target[start..start + length].chunks(chunk_bytes))
            .zip(base_chunks(&mut tensor.base, start..start + length, chunk_bytes))
            .zip(slots.iter_mut())
            .collect();
        let plan = &self.plan;
        let encode = |((piece, mut base), slot): ((Piece<'_>, ChunkBase<'_>), &mut Vec<u8>)| {
            let (number, target) = piece;
            plan.encode_chunk(number, target, &mut base, slot)
        };
        for encoded in pool.map(work, encode) {
            self.record.add(encoded?);
        }
        self.next += count;
        Ok(())
    }
}

fn base_chunks<'a>(
    base: &'a mut TensorBase<'_>,
    range: std::ops::Range<usize>,
    chunk_bytes: usize,
) -> Vec<ChunkBase<'a>> {
    let count = range.len().div_ceil(chunk_bytes);
    match base_range(base, range) {
        ChunkBase::None => (0..count).map(|_| ChunkBase::None).collect(),
        ChunkBase::Previous(base) => base.chunks_mut(chunk_bytes).map(ChunkBase::Previous).collect(),
        ChunkBase::Own(base) => base.chunks(chunk_bytes).map(ChunkBase::Own).collect(),
    }
}

/// Whether every entry of a tensor is finite; true of what are no floats.
fn all_finite(tensor: &Tensor<'_>, pool: &Pool) -> Result<bool> {
    with_element_type!(tensor.element, E => {
        let pieces = elements::<E>(tensor.target)?.chunks(1 << 16).collect();
        // Without leaving a piece early, so that the loop is vectorised.
        let finite = |piece: &[E]| piece.iter().fold(true, |finite, element| finite & element.finite());
        Ok(pool.map(pieces, finite).into_iter().all(|finite| finite))
    }, _size => Ok(true))
}
