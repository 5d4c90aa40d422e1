//! NumPy arrays of bytes, and element types as numbers.

use crate::float::ElementType;
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pub type Bytes = PyArray1<u8>;

/// Element types as `ckptz.codec` numbers them: 0 f16, 1 bf16, 2 f32, 3 f64, 16 + n: n opaque bytes.
pub fn element_type(number: u16) -> PyResult<ElementType> {
    Ok(match number {
        0 => ElementType::F16,
        1 => ElementType::BF16,
        2 => ElementType::F32,
        3 => ElementType::F64,
        17..=271 => ElementType::Bytes((number - 16) as u8),
        _ => return Err(PyValueError::new_err("an unknown element type")),
    })
}

pub fn readable<'py>(array: &Bound<'py, Bytes>) -> PyResult<PyReadonlyArray1<'py, u8>> {
    array.try_readonly().map_err(|_| PyValueError::new_err("an array that is being written to"))
}

pub fn writable<'py>(array: &Bound<'py, Bytes>) -> PyResult<PyReadwriteArray1<'py, u8>> {
    array
        .try_readwrite()
        .map_err(|_| PyValueError::new_err("an array that is read-only, given twice, or in use elsewhere"))
}
