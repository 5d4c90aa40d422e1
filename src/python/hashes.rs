//! Checksums, digests and zstd for the parts of a file that Python writes.

use crate::checksum;
use crate::error::Error;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::sync::{Mutex, PoisonError};

/// A CRC-64/NVME taken piece by piece.
#[pyclass(module = "ckptz._core", frozen)]
pub struct Crc(Mutex<checksum::Crc>);

#[pymethods]
impl Crc {
    #[new]
    fn new() -> Self {
        Crc(Mutex::default())
    }

    fn update(&self, py: Python<'_>, bytes: &Bound<'_, PyAny>) -> PyResult<()> {
        let update = |bytes: &[u8]| self.with(|crc| crc.update(bytes));
        if let Ok(array) = bytes.cast::<super::arrays::Bytes>() {
            let array = super::arrays::readable(array)?;
            let slice = array.as_slice()?;
            py.detach(|| update(slice));
        } else {
            let bytes: PyBackedBytes = bytes.extract()?;
            py.detach(|| update(&bytes));
        }
        Ok(())
    }

    #[getter]
    fn value(&self) -> u64 {
        self.with(|crc| crc.value())
    }
}

impl Crc {
    /// Whoever holds the interpreter meanwhile must be quick: others wait for the lock with it.
    pub fn with<R>(&self, call: impl FnOnce(&mut checksum::Crc) -> R) -> R {
        call(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The first 16 bytes of BLAKE3 over the parts, one after another.
#[pyfunction]
pub fn digest<'py>(py: Python<'py>, parts: Vec<PyBackedBytes>) -> Bound<'py, PyBytes> {
    let digest = py.detach(|| checksum::digest(parts.iter().map(|part| &**part)));
    PyBytes::new(py, &digest)
}

/// The content sum of some bytes.
#[pyfunction]
pub fn content_sum(bytes: &[u8]) -> u64 {
    checksum::content_sum(bytes)
}

/// One zstd frame.
#[pyfunction]
pub fn compress<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let compressed = py.detach(|| zstd::bulk::compress(bytes, 3));
    let compressed = compressed.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(PyBytes::new(py, &compressed))
}

/// The `length` bytes that one zstd frame holds; ValueError if it holds others.
#[pyfunction]
pub fn decompress<'py>(py: Python<'py>, bytes: &[u8], length: usize) -> PyResult<Bound<'py, PyBytes>> {
    let decompress = || {
        let mut out = Vec::new();
        out.try_reserve_exact(length).map_err(|_| Error::Memory(length))?;
        let written = zstd::bulk::Decompressor::new().and_then(|mut d| d.decompress_to_buffer(bytes, &mut out));
        match written {
            Ok(written) if written == length => Ok(out),
            _ => Err(Error::Request("a damaged zstd frame")),
        }
    };
    let out = py.detach(decompress)?;
    Ok(PyBytes::new(py, &out))
}
