//! One tensor's record: a plan, its chunks one after another, and the header that tells how they are coded.

use crate::chunk::decode::ChunkDecoder;
use crate::chunk::encode::{EncodedChunk, Squares};
use crate::chunk::with_scratch;
use crate::error::{Error, Part, Result};
use crate::fenv;
use crate::float::Element;
use crate::header::{Base, ChunkEntry, Kind, RecordHeader, chunk_count};
use crate::plan::{BaseRole, Plan, Serial, Workers, chunk_of};
use crate::spec::Spec;
use half::bf16;

/// Codes tensors one at a time.
pub struct Encoder<W = Serial> {
    spec: Spec,
    workers: W,
}

impl Encoder {
    /// An encoder that follows `spec` in the calling thread.
    pub fn new(spec: Spec) -> Result<Self> {
        Encoder::with_workers(spec, Serial)
    }
}

impl<W: Workers> Encoder<W> {
    /// An encoder whose chunks are shared among `workers`. What it writes does not depend on them.
    pub fn with_workers(spec: Spec, workers: W) -> Result<Self> {
        spec.check()?;
        Ok(Encoder { spec, workers })
    }

    /// Appends the record of `target` to `payload` and returns its header. `base` holds the previous reconstruction and becomes
    /// the new one: what a reader will have.
    pub fn encode<E: Element>(&self, target: &[E], base: &mut [E], payload: &mut Vec<u8>) -> Result<RecordHeader> {
        if target.len() != base.len() {
            return Err(Error::Request("target and base have different lengths"));
        }
        Ok(fenv::standard(|| {
            let plan = Plan::new(&self.spec, target, Some((base, BaseRole::Previous)), &self.workers);
            self.write(&plan, target, Some(base), payload)
        }))
    }

    /// The same without a base: exactly.
    pub fn encode_full<E: Element>(&self, target: &[E], payload: &mut Vec<u8>) -> Result<RecordHeader> {
        Ok(fenv::standard(|| {
            let plan = Plan::new(&self.spec, target, None, &self.workers);
            self.write(&plan, target, None, payload)
        }))
    }

    /// The exact difference between `target` and its reconstruction, which stays as it is.
    pub fn encode_residual<E: Element>(
        &self,
        target: &[E],
        reconstruction: &[E],
        payload: &mut Vec<u8>,
    ) -> Result<RecordHeader> {
        if target.len() != reconstruction.len() {
            return Err(Error::Request("target and reconstruction have different lengths"));
        }
        Ok(fenv::standard(|| {
            let plan = Plan::new(&self.spec, target, Some((reconstruction, BaseRole::Own)), &self.workers);
            let mut record = RecordWriter::new(&plan);
            for number in 0..record.chunks(target.len()) {
                let chunk = chunk_of(target, self.spec.chunk_log2, number);
                let base = chunk_of(reconstruction, self.spec.chunk_log2, number);
                record.add(plan.encode_residual_chunk(chunk, base, payload));
            }
            record.finish()
        }))
    }

    fn write<E: Element>(
        &self,
        plan: &Plan<E>,
        target: &[E],
        base: Option<&mut [E]>,
        payload: &mut Vec<u8>,
    ) -> RecordHeader {
        let mut record = RecordWriter::new(plan);
        let size = 1 << self.spec.chunk_log2;
        match base {
            _ if record.is_same() => {}
            Some(base) => {
                for (number, (target, base)) in target.chunks(size).zip(base.chunks_mut(size)).enumerate() {
                    record.add(plan.encode_chunk(number, target, Some(base), payload));
                }
            }
            None => {
                for (number, target) in target.chunks(size).enumerate() {
                    record.add(plan.encode_chunk(number, target, None, payload));
                }
            }
        }
        record.finish()
    }
}

/// Gathers the index of a record while its chunks are written, in order.
pub struct RecordWriter {
    header: RecordHeader,
    squares: Squares,
}

impl RecordWriter {
    pub fn new<E: Element>(plan: &Plan<E>) -> Self {
        RecordWriter { header: plan.header(), squares: Squares::default() }
    }

    pub fn of_header(header: RecordHeader) -> Self {
        RecordWriter { header, squares: Squares::default() }
    }

    pub fn is_same(&self) -> bool {
        self.header.kind == Kind::Same
    }

    /// Chunks that have to be added for a tensor of `elements`.
    pub fn chunks(&self, elements: usize) -> usize {
        if self.is_same() { 0 } else { chunk_count(elements, self.header.chunk_log2) }
    }

    pub fn add(&mut self, chunk: EncodedChunk) {
        self.squares.add(chunk.errors);
        let length = chunk.length.map(|length| length as u64);
        self.header.index.push(ChunkEntry { length, sum: if length.is_some() { chunk.sum } else { 0 } });
    }

    pub fn finish(mut self) -> RecordHeader {
        if let Kind::Lossy { error, .. } = &mut self.header.kind {
            *error = bf16::from_f32(self.squares.error_of_record()).to_f32();
        }
        self.header
    }
}

/// Decodes one record, but not one whose base is predicted or that is a link: those need other records.
pub struct Decoder<'a> {
    header: &'a RecordHeader,
}

impl<'a> Decoder<'a> {
    pub fn new(header: &'a RecordHeader) -> Result<Self> {
        if matches!(header.kind, Kind::Link(_)) || matches!(header.base, Base::Predicted(_)) {
            return Err(Error::Request("this record needs other records of its snapshot"));
        }
        Ok(Decoder { header })
    }

    /// Turns `elements` (the base; anything where the record has none) into the reconstruction, checked against the content
    /// sums. After an error `elements` holds no meaningful content.
    pub fn decode<E: Element>(&self, payload: &[u8], elements: &mut [E]) -> Result<()> {
        let header = self.header;
        let too_long = Error::Format { part: Part::Header, offset: 0, what: "the payload is longer than the record" };
        if header.kind == Kind::Same {
            return if payload.is_empty() { Ok(()) } else { Err(too_long) };
        }
        if header.index.len() != chunk_count(elements.len(), header.chunk_log2) {
            return Err(Error::Request("the tensor has another length than the record"));
        }
        let decoder = ChunkDecoder::new(header);
        let mut rest = payload;
        fenv::standard(|| {
            let chunks = elements.chunks_mut(header.chunk_elements()).zip(&header.index);
            for (number, (chunk, entry)) in chunks.enumerate() {
                let Some(length) = entry.length else { continue };
                let stored = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
                let (stored, after) = stored.ok_or(cut_short(number, rest.len()))?;
                rest = after;
                decode_chunk(&decoder, number, stored, entry.sum, chunk)?;
            }
            if rest.is_empty() { Ok(()) } else { Err(too_long) }
        })
    }
}

fn cut_short(number: usize, offset: usize) -> Error {
    Error::Format { part: Part::Chunk(number), offset, what: "the payload ends too early" }
}

fn decode_chunk<E: Element>(
    decoder: &ChunkDecoder<E>,
    number: usize,
    stored: &[u8],
    sum: u64,
    chunk: &mut [E],
) -> Result<()> {
    let part = Part::Chunk(number);
    let found = with_scratch(|scratch| decoder.decode(stored, chunk, true, scratch));
    if found.map_err(|flaw| flaw.within(part))? == sum { Ok(()) } else { Err(Error::Content { part }) }
}
