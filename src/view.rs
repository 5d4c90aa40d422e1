//! Bytes seen as elements: the step from an element type known at run time to one known to the compiler.

use crate::error::{Error, Result};

/// The bytes of a tensor as elements, or an error if they are not aligned or not a whole number of elements.
pub fn elements<E: bytemuck::Pod>(bytes: &[u8]) -> Result<&[E]> {
    // No bytes may be anywhere.
    if bytes.is_empty() {
        return Ok(&[]);
    }
    bytemuck::try_cast_slice(bytes).map_err(|_| Error::Request("a tensor's bytes are not aligned elements"))
}

/// The same for bytes that may be changed.
pub fn elements_mut<E: bytemuck::Pod>(bytes: &mut [u8]) -> Result<&mut [E]> {
    if bytes.is_empty() {
        return Ok(&mut []);
    }
    bytemuck::try_cast_slice_mut(bytes).map_err(|_| Error::Request("a tensor's bytes are not aligned elements"))
}

/// Evaluates an expression with the type `$E` that a float [`ElementType`](crate::float::ElementType) names; `$bytes` where
/// it names bytes.
macro_rules! with_element_type {
    ($element:expr, $E:ident => $float:expr, $size:ident => $bytes:expr) => {
        match $element {
            $crate::float::ElementType::F16 => {
                type $E = half::f16;
                $float
            }
            $crate::float::ElementType::BF16 => {
                type $E = half::bf16;
                $float
            }
            $crate::float::ElementType::F32 => {
                type $E = f32;
                $float
            }
            $crate::float::ElementType::F64 => {
                type $E = f64;
                $float
            }
            $crate::float::ElementType::Bytes($size) => $bytes,
        }
    };
}

pub(crate) use with_element_type;
