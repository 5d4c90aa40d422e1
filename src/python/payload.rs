//! Stored bytes of a window: NumPy arrays, or files that the core reads.

use super::arrays::{Bytes, readable};
use crate::parallel::Source;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use std::fs::File;

/// A payload that the core reads by itself, chunk by chunk: from an offset of a file on.
#[pyclass(module = "ckptz._core", frozen)]
pub struct Payload {
    file: File,
    start: u64,
}

/// Where the system has what is open as files.
const OPEN_FILES: &str = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };

#[pymethods]
impl Payload {
    /// Opens what is open as `descriptor` once more. Raises OSError where that cannot be.
    #[new]
    fn new(py: Python<'_>, descriptor: i32, start: u64) -> PyResult<Self> {
        let file = py.detach(|| File::open(format!("{OPEN_FILES}/{descriptor}")))?;
        Ok(Payload { file, start })
    }
}

/// The bytes of a segment, or the payload that has them.
#[derive(FromPyObject)]
pub enum Stored<'py> {
    Bytes(Bound<'py, Bytes>),
    Payload(Bound<'py, Payload>),
}

/// The same, borrowed.
pub enum Borrowed<'py> {
    Bytes(PyReadonlyArray1<'py, u8>),
    Payload(Bound<'py, Payload>),
}

impl<'py> Stored<'py> {
    pub fn borrowed(self) -> PyResult<Borrowed<'py>> {
        match self {
            Stored::Bytes(bytes) => readable(&bytes).map(Borrowed::Bytes),
            Stored::Payload(payload) => Ok(Borrowed::Payload(payload)),
        }
    }
}

impl Borrowed<'_> {
    pub fn source(&self) -> PyResult<Source<'_>> {
        match self {
            Borrowed::Bytes(bytes) => Ok(Source::Bytes(bytes.as_slice()?)),
            Borrowed::Payload(payload) => Ok(Source::File(&payload.get().file, payload.get().start)),
        }
    }
}
