//! Planning an exact record: exponent classes, difference to the base, or bytes, whichever is smallest.

use super::{BaseRole, Workers, chunk_of, same_bits};
use crate::bytes;
use crate::checksum::content_sum;
use crate::chunk::encode::{EncodedChunk, ExactRecord, Squares, count_classes, count_exact, encode_bytes};
use crate::chunk::{Scratch, with_scratch};
use crate::coding::{Candidate, Coding, CodingChoice, Histogram};
use crate::exact::{Cut, Difference, ESCAPE, ExponentClass, Window};
use crate::float::Element;
use crate::header::{Base, Kind, RecordHeader, chunk_count};
use crate::quantize::Against;
use crate::spec::Spec;

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

/// What is being planned: the chunks that differ from the base.
struct Job<'a, E, W> {
    chunk_log2: u8,
    target: &'a [E],
    base: Option<&'a [E]>,
    changed: Vec<usize>,
    workers: &'a W,
}

impl ExactPlan {
    pub fn new<E: Element>(spec: &Spec, target: &[E], base: Option<(&[E], BaseRole)>, workers: &impl Workers) -> Self {
        let job = Job::new(spec.chunk_log2, target, base.map(|(elements, _)| elements), workers);
        let (window, highest, coded) = job.plan(ExponentClass);
        let mut bytes = coded.bits.div_ceil(8);
        let mut rule = Rule::Classes { window, highest, coding: coded.coding };
        if base.is_some() {
            let (window, highest, coded) = job.plan(Difference);
            if coded.bits.div_ceil(8) < bytes {
                bytes = coded.bits.div_ceil(8);
                rule = Rule::Difference { window, highest, coding: coded.coding };
            }
        }
        let (planes, estimate) = job.estimate_bytes();
        if estimate + estimate / WORTH < bytes {
            bytes = estimate;
            rule = Rule::Bytes { planes };
        }
        let unchanged = job.changed.len() < chunk_count(target.len(), spec.chunk_log2);
        let needs_base = unchanged || matches!(rule, Rule::Difference { .. });
        let base = base.filter(|_| needs_base).map_or(Base::Zero, |(_, role)| role.base());
        ExactPlan { rule, base, chunk_log2: spec.chunk_log2, bytes }
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

    pub fn encode_chunk<E: Element>(
        &self,
        target: &[E],
        base: Option<&[E]>,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> EncodedChunk {
        let against = base.map_or(Against::Zero, Against::Base);
        let bytes = bytemuck::cast_slice(target);
        match &self.rule {
            _ if self.leaves(bytes, base.map(bytemuck::cast_slice)) => EncodedChunk::default(),
            Rule::Classes { window, coding, .. } => written(bytes, out, |out| {
                ExactRecord { cut: ExponentClass, window: *window, coding }.encode(target, Against::Zero, scratch, out);
            }),
            Rule::Difference { window, coding, .. } => written(bytes, out, |out| {
                ExactRecord { cut: Difference, window: *window, coding }.encode(target, against, scratch, out);
            }),
            Rule::Bytes { planes } => written(bytes, out, |out| encode_bytes(bytes, *planes, scratch, out)),
        }
    }

    /// The same for a plan of [`ExactPlan::of_bytes`].
    pub fn encode_byte_chunk(
        &self,
        target: &[u8],
        base: Option<&[u8]>,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> EncodedChunk {
        match self.rule {
            Rule::Bytes { planes } if !self.leaves(target, base) => {
                written(target, out, |out| encode_bytes(target, planes, scratch, out))
            }
            _ => EncodedChunk::default(),
        }
    }

    /// Whether a chunk is only marked as unchanged.
    fn leaves(&self, target: &[u8], base: Option<&[u8]>) -> bool {
        self.base != Base::Zero && base == Some(target)
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

/// What `write` appends for a chunk with this content.
fn written(content: &[u8], out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> EncodedChunk {
    let start = out.len();
    write(out);
    EncodedChunk { length: Some(out.len() - start), sum: content_sum(content), errors: Squares::default() }
}

impl<'a, E: Element, W: Workers> Job<'a, E, W> {
    fn new(chunk_log2: u8, target: &'a [E], base: Option<&'a [E]>, workers: &'a W) -> Self {
        let differs = |number: &usize| {
            let chunk = |elements| chunk_of(elements, chunk_log2, *number);
            base.is_none_or(|base| !same_bits(chunk(target), chunk(base)))
        };
        let changed = (0..chunk_count(target.len(), chunk_log2)).filter(differs).collect();
        Job { chunk_log2, target, base, changed, workers }
    }

    fn chunk(&self, number: usize) -> (&'a [E], Against<'a, E>) {
        let base = self.base.map(|base| chunk_of(base, self.chunk_log2, number));
        (chunk_of(self.target, self.chunk_log2, number), base.map_or(Against::Zero, Against::Base))
    }

    /// Window, highest symbol and coding, with the bits of symbols, fields and escapes.
    fn plan<C: Cut<E>>(&self, cut: C) -> (Window, u8, Candidate) {
        let mut classes = vec![0u64; C::CLASSES + 1];
        let of_chunk = |i: usize| {
            let (target, base) = self.chunk(self.changed[i]);
            let mut counts = vec![0u64; C::CLASSES + 1];
            count_classes(cut, target, base, &mut counts);
            counts
        };
        self.workers.in_order(self.changed.len(), of_chunk, |counts| {
            classes.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
        });
        let zeros = classes.pop().unwrap_or(0);
        let window = Window::choose(&classes);
        let counts = self.count(cut, window);
        let highest = counts.symbols.iter().rposition(|count| *count > 0).unwrap_or(0) as u8;
        let zero_width = if C::ZEROS_HAVE_FIELDS { cut.field_width(0) } else { 0 };
        let mut coded = Coding::choose(&counts, highest, zeros * u64::from(zero_width), CodingChoice::Cheapest);
        let fields = classes.iter().enumerate().map(|(class, n)| n * u64::from(cut.field_width(class as u16)));
        let escape = if E::BITS == 64 { 16 } else { 8 };
        coded.bits += fields.sum::<u64>() + escape * counts.symbols[usize::from(ESCAPE)];
        (window, highest, coded)
    }

    fn count<C: Cut<E>>(&self, cut: C, window: Window) -> Histogram {
        let mut all = Histogram::default();
        let of_chunk = |i: usize| {
            let (target, base) = self.chunk(self.changed[i]);
            let mut counts = Histogram::default();
            with_scratch(|scratch| count_exact(cut, window, target, base, scratch, &mut counts));
            counts
        };
        self.workers.in_order(self.changed.len(), of_chunk, |counts| all.merge(&counts));
        all
    }

    /// Planes, and the bytes under zstd.
    fn estimate_bytes(&self) -> (u8, u64) {
        let chunks: Vec<&[u8]> =
            self.changed.iter().map(|&number| bytemuck::cast_slice(self.chunk(number).0)).collect();
        estimate_zstd(&chunks, size_of::<E>())
    }
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
