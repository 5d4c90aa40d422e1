//! Copying NumPy arrays into buffers that lie ready.

use super::arrays::{Bytes, readable, writable};
use super::errors::guarded;
use crate::parallel::{self, Pool};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Makes each room equal to its source and returns how many bytes had to be written. `rooms[i]` is as long as `sources[i]`.
#[pyfunction]
pub fn copy_changed(
    py: Python<'_>,
    sources: Vec<Bound<'_, Bytes>>,
    rooms: Vec<Bound<'_, Bytes>>,
    threads: usize,
) -> PyResult<usize> {
    let sources = sources.iter().map(readable).collect::<PyResult<Vec<_>>>()?;
    let mut rooms = rooms.iter().map(writable).collect::<PyResult<Vec<_>>>()?;
    let sources = sources.iter().map(|s| Ok(s.as_slice()?)).collect::<PyResult<Vec<&[u8]>>>()?;
    let mut rooms = rooms.iter_mut().map(|r| Ok(r.as_slice_mut()?)).collect::<PyResult<Vec<&mut [u8]>>>()?;
    if sources.len() != rooms.len() || sources.iter().zip(&rooms).any(|(s, r)| s.len() != r.len()) {
        return Err(PyValueError::new_err("sources and rooms of different lengths"));
    }
    let pool = Pool::new(threads)?;
    py.detach(|| guarded(|| Ok::<_, PyErr>(parallel::copy_changed(&sources, &mut rooms, &pool))))
}
