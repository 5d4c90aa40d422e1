//! The core's errors as Python exceptions, and panics as errors.

use crate::error::{Error, Part};
use crate::parallel::Failure;
use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use std::panic::{AssertUnwindSafe, catch_unwind};

create_exception!(
    ckptz._core,
    RecordError,
    PyException,
    "Damaged bytes. Arguments: message, whether it is a checksum, layer, tensor, chunk (None: the header), offset."
);

create_exception!(
    ckptz._core,
    ReadError,
    PyException,
    "A payload that the system does not read. Arguments: the system's number of what is wrong, layer."
);

create_exception!(ckptz._core, ChangedError, PyException, "A tensor was changed while it was being encoded.");

/// What systems say where a thread cannot be started; the same number on Linux as where macOS has another name for it.
const EAGAIN: i32 = if cfg!(target_os = "macos") { 35 } else { 11 };

/// `layer` and `tensor` as far as they are known.
pub fn exception(error: &Error, layer: Option<usize>, tensor: Option<usize>) -> PyErr {
    let chunk = |part: &Part| match part {
        Part::Header => None,
        Part::Chunk(number) => Some(*number),
    };
    match error {
        Error::Format { part, offset, .. } => {
            RecordError::new_err((error.to_string(), false, layer, tensor, chunk(part), *offset))
        }
        Error::Content { part } => RecordError::new_err((error.to_string(), true, layer, tensor, chunk(part), 0)),
        Error::Request(what) => PyValueError::new_err(*what),
        Error::Changed => ChangedError::new_err(error.to_string()),
        Error::Threads => PyOSError::new_err((EAGAIN, error.to_string())),
        Error::Read(number) => ReadError::new_err((*number, layer)),
        Error::Memory(_) => PyMemoryError::new_err(error.to_string()),
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        exception(&error, None, None)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        exception(&failure.error, Some(failure.layer), Some(failure.tensor))
    }
}

/// Runs `work`; a panic, which would be a bug of ours, becomes a RuntimeError.
pub fn guarded<T, E: Into<PyErr>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, PyErr> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(Into::into),
        Err(_) => Err(PyRuntimeError::new_err("internal error in the core of ckptz; please report it")),
    }
}
