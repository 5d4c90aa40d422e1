//! Plans whose element type is known only at run time.

use super::{BaseRole, ExactPlan, Plan, Relatives, Without, Workers};
use crate::chunk::encode::{EncodedChunk, all_finite};
use crate::chunk::with_scratch;
use crate::error::{Error, Result};
use crate::float::{Element, ElementType};
use crate::header::RecordHeader;
use crate::predict::{Formula, Siblings};
use crate::sink::Sink;
use crate::spec::Spec;
use crate::view::{elements, elements_mut, with_element_type};

/// A plan whose element type is known at run time.
pub enum AnyPlan {
    F16(Plan<half::f16>),
    BF16(Plan<half::bf16>),
    F32(Plan<f32>),
    F64(Plan<f64>),
    Bytes(ExactPlan),
    /// Of any type, equal to its base.
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

fn relatives<'a, E: Element>(
    spec: &Spec,
    target: &'a [u8],
    base: &'a [u8],
    siblings: Siblings<'a, u8>,
) -> Result<Relatives<'a, E>> {
    let (target, base, siblings) = (elements(target)?, elements(base)?, siblings.of()?);
    Ok(Relatives { target, base, siblings, chunk_log2: spec.chunk_log2 })
}

/// A plan whose element type is forgotten.
trait IntoAny {
    fn any(self) -> AnyPlan;
}

macro_rules! into_any {
    ($($element:ty => $variant:ident),*) => {
        $(impl IntoAny for Plan<$element> {
            fn any(self) -> AnyPlan {
                AnyPlan::$variant(self)
            }
        })*
    };
}

into_any!(half::f16 => F16, half::bf16 => BF16, f32 => F32, f64 => F64);

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

    /// The plan for floats whose base is predicted by a formula from siblings with these record numbers, if that beats `without`.
    pub fn predicted(
        element: ElementType,
        spec: &Spec,
        (target, base): (&[u8], &[u8]),
        siblings: Siblings<'_, u8>,
        from: (Formula, &[u32]),
        without: Without,
        workers: &impl Workers,
    ) -> Result<Option<Self>> {
        with_element_type!(element, E => {
            let of = relatives::<E>(spec, target, base, siblings)?;
            Ok(Plan::predicted(spec, &of, from, without, workers).map(IntoAny::any))
        }, _size => Ok(None))
    }

    /// The plan for floats that are coded after their siblings although these say nothing of them.
    pub fn unpredicted(
        element: ElementType,
        spec: &Spec,
        (target, base): (&[u8], &[u8]),
        siblings: Siblings<'_, u8>,
        (formula, records): (Formula, &[u32]),
        workers: &impl Workers,
    ) -> Result<Self> {
        with_element_type!(element, E => {
            let of = relatives::<E>(spec, target, base, siblings)?;
            Ok(Plan::unpredicted(spec, &of, formula, records, workers).any())
        }, _size => Err(Error::Request("a prediction of something else than floats")))
    }

    pub fn is_lossy(&self) -> bool {
        match self {
            AnyPlan::F16(plan) => plan.is_lossy(),
            AnyPlan::BF16(plan) => plan.is_lossy(),
            AnyPlan::F32(plan) => plan.is_lossy(),
            AnyPlan::F64(plan) => plan.is_lossy(),
            AnyPlan::Bytes(_) | AnyPlan::SameBytes(_) => false,
        }
    }

    /// What a prediction has to beat this plan for floats.
    pub fn to_beat(&self, target: &[u8], base: &[u8], chunk_log2: u8) -> Result<Without> {
        Ok(match self {
            AnyPlan::F16(plan) => plan.to_beat(elements(target)?, elements(base)?, chunk_log2),
            AnyPlan::BF16(plan) => plan.to_beat(elements(target)?, elements(base)?, chunk_log2),
            AnyPlan::F32(plan) => plan.to_beat(elements(target)?, elements(base)?, chunk_log2),
            AnyPlan::F64(plan) => plan.to_beat(elements(target)?, elements(base)?, chunk_log2),
            AnyPlan::Bytes(_) | AnyPlan::SameBytes(_) => Without { bytes: 0, squared_error: 0.0 },
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

    /// Appends chunk `number`, and turns a previous base into the reconstruction. `siblings`: what a prediction reads of them.
    pub fn encode_chunk(
        &self,
        number: usize,
        target: &[u8],
        base: &mut ChunkBase<'_>,
        siblings: Siblings<'_, u8>,
        out: &mut dyn Sink,
    ) -> Result<EncodedChunk> {
        let encoded = match self {
            AnyPlan::F16(plan) => encode_float(plan, number, target, base, siblings, out),
            AnyPlan::BF16(plan) => encode_float(plan, number, target, base, siblings, out),
            AnyPlan::F32(plan) => encode_float(plan, number, target, base, siblings, out),
            AnyPlan::F64(plan) => encode_float(plan, number, target, base, siblings, out),
            AnyPlan::SameBytes(_) => Ok(EncodedChunk::default()),
            AnyPlan::Bytes(plan) => Ok(encode_bytes(plan, target, base, out)),
        }?;
        let unfit = with_scratch(|scratch| std::mem::take(&mut scratch.coding.unfit));
        if unfit { Err(Error::Changed) } else { Ok(encoded) }
    }
}

fn encode_float<E: Element>(
    plan: &Plan<E>,
    number: usize,
    target: &[u8],
    base: &mut ChunkBase<'_>,
    siblings: Siblings<'_, u8>,
    out: &mut dyn Sink,
) -> Result<EncodedChunk> {
    let target = elements(target)?;
    Ok(match base {
        ChunkBase::None => {
            let encoded = plan.encode_chunk(number, target, None, out);
            EncodedChunk { not_finite: !all_finite(target), ..encoded }
        }
        ChunkBase::Previous(base) => {
            let base = elements_mut(base)?;
            let encoded = plan.encode_chunk_beside(number, target, base, siblings.of()?, out);
            // What an exact record has coded is in the base now, whatever becomes of the target.
            let not_finite = if plan.is_lossy() { encoded.not_finite } else { !all_finite(base) };
            EncodedChunk { not_finite, ..encoded }
        }
        ChunkBase::Own(base) => plan.encode_residual_chunk(target, elements(base)?, out),
    })
}

fn encode_bytes(plan: &ExactPlan, target: &[u8], base: &mut ChunkBase<'_>, out: &mut dyn Sink) -> EncodedChunk {
    with_scratch(|scratch| match base {
        ChunkBase::None => plan.encode_byte_chunk(target, None, scratch, out),
        ChunkBase::Own(base) => plan.encode_byte_chunk(target, Some(base), scratch, out),
        // As for floats.
        ChunkBase::Previous(base) => scratch.with_copy(target, |target, scratch| {
            let encoded = plan.encode_byte_chunk(target, Some(base), scratch, out);
            base.copy_from_slice(target);
            encoded
        }),
    })
}
