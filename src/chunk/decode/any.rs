//! Decoders whose element type is known only at run time.

use super::ChunkDecoder;
use crate::bytes;
use crate::checksum::content_sum;
use crate::chunk::with_scratch;
use crate::error::{Flaw, Parsed};
use crate::float::{Element, ElementType};
use crate::header::{Kind, RecordHeader};
use crate::view::elements_mut;

/// A decoder of any element type.
pub enum AnyDecoder {
    F16(ChunkDecoder<half::f16>),
    BF16(ChunkDecoder<half::bf16>),
    F32(ChunkDecoder<f32>),
    F64(ChunkDecoder<f64>),
    Bytes(u8),
}

impl AnyDecoder {
    pub fn new(header: &RecordHeader, element: ElementType) -> Self {
        match element {
            ElementType::F16 => AnyDecoder::F16(ChunkDecoder::new(header)),
            ElementType::BF16 => AnyDecoder::BF16(ChunkDecoder::new(header)),
            ElementType::F32 => AnyDecoder::F32(ChunkDecoder::new(header)),
            ElementType::F64 => AnyDecoder::F64(ChunkDecoder::new(header)),
            ElementType::Bytes(_) => match header.kind {
                Kind::Bytes { planes } => AnyDecoder::Bytes(planes),
                _ => AnyDecoder::Bytes(0),
            },
        }
    }

    /// Turns `target` (the base) into the reconstruction; returns its content sum if asked.
    pub fn decode(&self, stored: &[u8], target: &mut [u8], sum: bool) -> Parsed<u64> {
        fn float<E: Element>(decoder: &ChunkDecoder<E>, stored: &[u8], target: &mut [u8], sum: bool) -> Parsed<u64> {
            let target = elements_mut(target).map_err(|_| Flaw::new(0, "the target is not aligned"))?;
            with_scratch(|scratch| decoder.decode(stored, target, sum, scratch))
        }
        match self {
            AnyDecoder::F16(decoder) => float(decoder, stored, target, sum),
            AnyDecoder::BF16(decoder) => float(decoder, stored, target, sum),
            AnyDecoder::F32(decoder) => float(decoder, stored, target, sum),
            AnyDecoder::F64(decoder) => float(decoder, stored, target, sum),
            AnyDecoder::Bytes(planes) => {
                with_scratch(|scratch| bytes::decode(stored, *planes, &mut scratch.bytes, target))?;
                Ok(if sum { content_sum(target) } else { 0 })
            }
        }
    }
}
