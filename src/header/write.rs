//! A record header as bytes.

use super::{Base, DEFAULT_CHUNK_LOG2, Kind, LossyDomain, Meaning, RecordHeader};
use crate::coding::Coding;
use crate::fenv;
use crate::float::ElementType;
use crate::wire::{put_varint, put_zigzag};
use half::bf16;

impl RecordHeader {
    /// Appends the header of a record with elements of this type.
    pub fn write(&self, element: ElementType, out: &mut Vec<u8>) {
        // Narrowing a subnormal to f32 is arithmetic too.
        fenv::standard(|| self.write_parts(element, out));
    }

    fn write_parts(&self, element: ElementType, out: &mut Vec<u8>) {
        let own_chunk_size = self.chunk_log2 != DEFAULT_CHUNK_LOG2;
        let base = match self.base {
            Base::Zero => 0,
            Base::Previous => 1,
            Base::Predicted(_) => 2,
            Base::Own => 3,
        };
        out.push(self.kind.number() | base << 4 | u8::from(own_chunk_size) << 6 | u8::from(self.exceptions) << 7);
        if own_chunk_size {
            out.push(self.chunk_log2);
        }
        self.write_kind(element, out);
        for entry in &self.index {
            if !matches!(self.kind, Kind::Link(_)) {
                put_varint(out, entry.length.map_or(0, |length| length + 1));
            }
            if entry.length.is_some() {
                out.extend_from_slice(&entry.sum.to_le_bytes());
            }
        }
    }

    fn write_kind(&self, element: ElementType, out: &mut Vec<u8>) {
        match &self.kind {
            Kind::Same => {}
            Kind::Link(source) => put_varint(out, u64::from(*source)),
            Kind::Lossy { refinement, error, meaning, coding, .. } => {
                out.push(coding.number() | refinement << 3);
                out.extend_from_slice(&bf16::from_f32(*error).to_le_bytes());
                self.write_prediction(element, out);
                out.push(meaning.symbols());
                meaning.write(element, out);
                coding.write_tables(out);
            }
            Kind::Classes { highest, top, coding } | Kind::Difference { highest, top, coding } => {
                out.push(coding.number());
                self.write_prediction(element, out);
                write_classes(*highest, *top, coding, out);
            }
            Kind::Bytes { planes } => out.push(*planes),
        }
    }

    fn write_prediction(&self, element: ElementType, out: &mut Vec<u8>) {
        if let Base::Predicted(prediction) = &self.base {
            prediction.write(element, out);
        }
    }
}

impl Kind {
    fn number(&self) -> u8 {
        match self {
            Kind::Same => 0,
            Kind::Link(_) => 1,
            Kind::Lossy { domain: LossyDomain::Value, .. } => 2,
            Kind::Lossy { domain: LossyDomain::Ordered, .. } => 3,
            Kind::Lossy { domain: LossyDomain::OrderedNonNegative, .. } => 4,
            Kind::Classes { .. } => 5,
            Kind::Difference { .. } => 6,
            Kind::Bytes { .. } => 7,
        }
    }
}

impl Meaning {
    pub(super) fn write(&self, element: ElementType, out: &mut Vec<u8>) {
        match self {
            Meaning::Values(values) => values.iter().for_each(|&value| put_arith(element, value, out)),
            Meaning::Integers(integers) => integers.iter().for_each(|&integer| put_zigzag(out, integer)),
            Meaning::Buckets(buckets) => {
                buckets.iter().for_each(|b| put_varint(out, u64::from(b.exponent) << 1 | u64::from(b.negative)));
            }
        }
    }
}

fn write_classes(highest: u8, top: u16, coding: &Coding, out: &mut Vec<u8>) {
    out.push(highest);
    if highest > 0 {
        put_varint(out, u64::from(top));
    }
    coding.write_tables(out);
}

/// Appends a value of the arithmetic type of `element`; it is one already.
pub fn put_arith(element: ElementType, value: f64, out: &mut Vec<u8>) {
    if element == ElementType::F64 {
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        out.extend_from_slice(&(value as f32).to_le_bytes());
    }
}
