//! Record headers: how one tensor of one snapshot is coded (format.md, section 5).

use crate::coding::Coding;
use crate::delta::Bucket;
use crate::float::ElementType;
use crate::predict::Prediction;

/// log2 of the chunk size that need not be told.
pub const DEFAULT_CHUNK_LOG2: u8 = 16;

/// Chunk sizes that the format allows, as log2.
pub const CHUNK_LOG2: std::ops::RangeInclusive<u8> = 6..=24;

/// What the base of a record is.
#[derive(Debug, Clone, PartialEq)]
pub enum Base {
    /// Nothing: every element +0.0.
    Zero,
    /// The parent snapshot's reconstruction.
    Previous,
    /// Computed from the previous one and from siblings.
    Predicted(Prediction),
    /// In a residual: this snapshot's reconstruction.
    Own,
}

/// The domain of a lossy record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossyDomain {
    Value,
    Ordered,
    OrderedNonNegative,
}

/// What symbols 1, 2 .. of a lossy record stand for.
#[derive(Debug, Clone, PartialEq)]
pub enum Meaning {
    /// Differences of values (exact in f64).
    Values(Vec<f64>),
    /// Differences of ordered bits.
    Integers(Vec<i128>),
    /// Buckets whose entries carry refinement bits.
    Buckets(Vec<Bucket>),
}

impl Meaning {
    /// How many symbols besides 0.
    pub fn symbols(&self) -> u8 {
        (match self {
            Meaning::Values(values) => values.len(),
            Meaning::Integers(integers) => integers.len(),
            Meaning::Buckets(buckets) => buckets.len(),
        }) as u8
    }
}

/// The record's kind, with what belongs to it.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// Equal to the base.
    Same,
    /// Equal to the record with this number, or to its rounding.
    Link(u32),
    /// Lossy.
    Lossy { domain: LossyDomain, refinement: u8, error: f32, meaning: Meaning, coding: Coding },
    /// Exact, by exponent class.
    Classes { highest: u8, top: u16, coding: Coding },
    /// Exact, by difference of ordered bits.
    Difference { highest: u8, top: u16, coding: Coding },
    /// Exact: chunks stored or zstd; `planes`: 0, or the item size where bytes are transposed.
    Bytes { planes: u8 },
}

/// A chunk's entry in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkEntry {
    /// Bytes in the payload; `None`: unchanged from the base.
    pub length: Option<u64>,
    /// Content sum; 0 and meaningless where unchanged.
    pub sum: u64,
}

/// What was done to one tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordHeader {
    pub base: Base,
    pub kind: Kind,
    pub chunk_log2: u8,
    /// Whether chunks begin with a list of exceptions.
    pub exceptions: bool,
    /// Empty for [`Kind::Same`].
    pub index: Vec<ChunkEntry>,
}

impl RecordHeader {
    /// The header of a tensor that equals its base.
    pub fn same(base: Base) -> Self {
        RecordHeader { base, kind: Kind::Same, chunk_log2: DEFAULT_CHUNK_LOG2, exceptions: false, index: Vec::new() }
    }

    /// Elements of a chunk (but the last).
    pub fn chunk_elements(&self) -> usize {
        1 << self.chunk_log2
    }

    /// Bytes of the record in the payload.
    pub fn payload_bytes(&self) -> u64 {
        self.index.iter().filter_map(|entry| entry.length).sum()
    }

    /// Chunks that are left as they are in the base.
    pub fn unchanged_chunks(&self) -> usize {
        self.index.iter().filter(|entry| entry.length.is_none()).count()
    }

    /// The chunks that hold these elements; none where the record has no chunks.
    pub fn chunks_of(&self, elements: &std::ops::Range<usize>) -> std::ops::Range<usize> {
        if self.index.is_empty() {
            return 0..0;
        }
        elements.start >> self.chunk_log2..elements.end.div_ceil(self.chunk_elements())
    }

    /// The kind's name in messages and statistics.
    pub fn kind_name(&self) -> &'static str {
        match &self.kind {
            Kind::Same => "same",
            Kind::Link(_) => "link",
            Kind::Lossy { domain: LossyDomain::Value, .. } => "value",
            Kind::Lossy { domain: LossyDomain::Ordered, .. } => "ordered",
            Kind::Lossy { domain: LossyDomain::OrderedNonNegative, .. } => "ordered non-negative",
            Kind::Classes { .. } => "classes",
            Kind::Difference { .. } => "difference",
            Kind::Bytes { .. } => "bytes",
        }
    }

    /// The base's name in messages and statistics.
    pub fn base_name(&self) -> &'static str {
        match self.base {
            Base::Zero => "zero",
            Base::Previous => "previous",
            Base::Predicted(_) => "predicted",
            Base::Own => "own",
        }
    }

    /// Whether the reconstruction can differ from the target.
    pub fn is_lossy(&self) -> bool {
        matches!(self.kind, Kind::Lossy { .. })
    }

    /// What the writer measured: |r_t - u_t| / |u_t - r_(t-1)|; 0 for exact records.
    pub fn error(&self) -> f32 {
        if let Kind::Lossy { error, .. } = self.kind { error } else { 0.0 }
    }

    /// The record that this one is a link to.
    pub fn source(&self) -> Option<u32> {
        if let Kind::Link(source) = self.kind { Some(source) } else { None }
    }

    /// The records that its base is predicted from.
    pub fn siblings(&self) -> &[u32] {
        if let Base::Predicted(prediction) = &self.base { &prediction.siblings } else { &[] }
    }

    /// What symbols 1, 2 .. stand for, where they have representatives.
    pub fn representatives(&self) -> Option<Vec<f64>> {
        match &self.kind {
            Kind::Lossy { meaning: Meaning::Values(values), .. } => Some(values.clone()),
            Kind::Lossy { meaning: Meaning::Integers(integers), .. } => {
                Some(integers.iter().map(|&integer| integer as f64).collect())
            }
            _ => None,
        }
    }

    /// Bytes of the header that are representatives and code tables.
    pub fn table_bytes(&self, element: ElementType) -> usize {
        let mut tables = Vec::new();
        match &self.kind {
            Kind::Lossy { meaning, coding, .. } => {
                meaning.write(element, &mut tables);
                coding.write_tables(&mut tables);
            }
            Kind::Classes { coding, .. } | Kind::Difference { coding, .. } => coding.write_tables(&mut tables),
            _ => {}
        }
        tables.len()
    }

    /// Whether the reconstruction needs the previous one.
    pub fn needs_base(&self) -> bool {
        match (&self.kind, &self.base) {
            (Kind::Link(_), _) | (_, Base::Zero) => false,
            (_, Base::Previous | Base::Predicted(_) | Base::Own) => true,
        }
    }

    /// The coding of the symbols, where there are symbols.
    pub fn coding(&self) -> Option<&Coding> {
        match &self.kind {
            Kind::Lossy { coding, .. } | Kind::Classes { coding, .. } | Kind::Difference { coding, .. } => Some(coding),
            _ => None,
        }
    }
}

/// Chunks of a tensor of `elements`.
pub fn chunk_count(elements: usize, chunk_log2: u8) -> usize {
    elements.div_ceil(1 << chunk_log2)
}

mod parse;
mod place;
mod write;

pub use parse::parse_arith;
pub use place::Place;
pub use write::put_arith;
#[cfg(test)]
mod tests;
