//! A tensor of a snapshot, with what it is coded against.

use crate::error::{Error, Result};
use crate::float::ElementType;
use crate::plan::BaseRole;
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
    pub(super) fn bytes(&self) -> Option<(&[u8], BaseRole)> {
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

    /// What a reader will have of it, once it is coded.
    pub(super) fn reconstruction(&self) -> &[u8] {
        match &self.base {
            TensorBase::Previous(base) => base,
            TensorBase::None | TensorBase::Own(_) => self.target,
        }
    }

    /// Whether its reconstruction may differ from its target.
    pub fn may_be_lossy(&self) -> bool {
        self.spec.lossy.is_some() && self.element.is_float() && matches!(self.base, TensorBase::Previous(_))
    }

    /// Bytes of a chunk.
    pub(super) fn chunk_bytes(&self) -> usize {
        self.element.size().max(1) << self.spec.chunk_log2
    }

    pub(super) fn check(&self) -> Result<()> {
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
