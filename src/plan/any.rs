//! Plans whose element type is known only at run time.

use super::{BaseRole, ExactPlan, Plan, Workers};
use crate::chunk::encode::EncodedChunk;
use crate::chunk::with_scratch;
use crate::error::Result;
use crate::float::{Element, ElementType};
use crate::header::RecordHeader;
use crate::spec::Spec;
use crate::view::{elements, elements_mut};

/// A plan whose element type is known at run time.
pub enum AnyPlan {
    F16(Plan<half::f16>),
    BF16(Plan<half::bf16>),
    F32(Plan<f32>),
    F64(Plan<f64>),
    Bytes(ExactPlan),
    /// Bytes that equal their base.
    SameBytes(BaseRole),
}

/// A chunk's part of a base.
pub enum ChunkBase<'a> {
    None,
    Previous(&'a mut [u8]),
    Own(&'a [u8]),
}

fn plan_of<E: Element>(
    spec: &Spec,
    target: &[u8],
    base: Option<(&[u8], BaseRole)>,
    workers: &impl Workers,
) -> Result<Plan<E>> {
    let base = match base {
        Some((base, role)) => Some((elements(base)?, role)),
        None => None,
    };
    Ok(Plan::new(spec, elements(target)?, base, workers))
}

impl AnyPlan {
    /// Decides how elements of type `element`, given as bytes, will be coded.
    pub fn new(
        element: ElementType,
        spec: &Spec,
        target: &[u8],
        base: Option<(&[u8], BaseRole)>,
        workers: &impl Workers,
    ) -> Result<Self> {
        Ok(match element {
            ElementType::F16 => AnyPlan::F16(plan_of(spec, target, base, workers)?),
            ElementType::BF16 => AnyPlan::BF16(plan_of(spec, target, base, workers)?),
            ElementType::F32 => AnyPlan::F32(plan_of(spec, target, base, workers)?),
            ElementType::F64 => AnyPlan::F64(plan_of(spec, target, base, workers)?),
            ElementType::Bytes(size) => match base {
                Some((base, role)) if base == target => AnyPlan::SameBytes(role),
                base => AnyPlan::Bytes(ExactPlan::of_bytes(spec, usize::from(size), target, base)),
            },
        })
    }

    /// The header, but for its index and its error.
    pub fn header(&self) -> RecordHeader {
        match self {
            AnyPlan::F16(plan) => plan.header(),
            AnyPlan::BF16(plan) => plan.header(),
            AnyPlan::F32(plan) => plan.header(),
            AnyPlan::F64(plan) => plan.header(),
            AnyPlan::Bytes(plan) => plan.header(),
            AnyPlan::SameBytes(role) => RecordHeader::same(role.base()),
        }
    }

    /// Appends chunk `number`, and turns a previous base into the reconstruction.
    pub fn encode_chunk(
        &self,
        number: usize,
        target: &[u8],
        base: &mut ChunkBase<'_>,
        slot: &mut Vec<u8>,
    ) -> Result<EncodedChunk> {
        match self {
            AnyPlan::F16(plan) => encode_float(plan, number, target, base, slot),
            AnyPlan::BF16(plan) => encode_float(plan, number, target, base, slot),
            AnyPlan::F32(plan) => encode_float(plan, number, target, base, slot),
            AnyPlan::F64(plan) => encode_float(plan, number, target, base, slot),
            AnyPlan::SameBytes(_) => Ok(EncodedChunk::default()),
            AnyPlan::Bytes(plan) => Ok(encode_bytes(plan, target, base, slot)),
        }
    }
}

fn encode_float<E: Element>(
    plan: &Plan<E>,
    number: usize,
    target: &[u8],
    base: &mut ChunkBase<'_>,
    slot: &mut Vec<u8>,
) -> Result<EncodedChunk> {
    let target = elements(target)?;
    Ok(match base {
        ChunkBase::None => plan.encode_chunk(number, target, None, slot),
        ChunkBase::Previous(base) => plan.encode_chunk(number, target, Some(elements_mut(base)?), slot),
        ChunkBase::Own(base) => plan.encode_residual_chunk(target, elements(base)?, slot),
    })
}

fn encode_bytes(plan: &ExactPlan, target: &[u8], base: &mut ChunkBase<'_>, slot: &mut Vec<u8>) -> EncodedChunk {
    let before = match &*base {
        ChunkBase::None => None,
        ChunkBase::Previous(base) => Some(&**base),
        ChunkBase::Own(base) => Some(*base),
    };
    let encoded = with_scratch(|scratch| plan.encode_byte_chunk(target, before, scratch, slot));
    if let ChunkBase::Previous(base) = base {
        base.copy_from_slice(target);
    }
    encoded
}
