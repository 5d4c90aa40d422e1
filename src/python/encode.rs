//! The snapshot encoder over NumPy arrays.

use super::arrays::{Bytes, element_type, readable, writable};
use super::errors::guarded;
use super::hashes::Crc;
use super::spec::Spec;
use crate::float::ElementType;
use crate::parallel::{self, Finished, Known, Pool, Tensor, TensorBase, find_families, find_links};
use crate::predict::Formula;
use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Mutex, PoisonError};

/// Encodes the tensors of one snapshot. Arrays are contiguous bytes and stay alive, unchanged by others, until `finish`.
#[pyclass(module = "ckptz._core", frozen)]
pub struct SnapshotEncoder {
    tensors: Vec<Held>,
    residual: bool,
    pool: Pool,
    encoder: Mutex<Option<parallel::SnapshotEncoder>>,
}

struct Held {
    element: ElementType,
    spec: crate::Spec,
    target: Py<Bytes>,
    base: Option<Py<Bytes>>,
}

/// Borrowed bases, as long as a call lasts.
enum Borrowed<'py> {
    None,
    Previous(PyReadwriteArray1<'py, u8>),
    Own(PyReadonlyArray1<'py, u8>),
}

#[pymethods]
impl SnapshotEncoder {
    /// `bases[i]`: the previous reconstruction, which becomes the new one, or None; with `residual` the new one, which stays.
    /// `first`: the record number of the first tensor. `known`: for each tensor the formula and the records that its base was
    /// predicted from in the snapshot before; `search`: whether to look for more such siblings. None at all: neither. `watched`:
    /// whether sums of the targets are taken.
    #[new]
    #[pyo3(signature = (targets, bases, elements, specs, residual, threads, first = 0, known = Vec::new(), search = false, watched = false))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        targets: Vec<Bound<'_, Bytes>>,
        bases: Vec<Option<Bound<'_, Bytes>>>,
        elements: Vec<u16>,
        specs: Vec<Bound<'_, Spec>>,
        residual: bool,
        threads: usize,
        first: u32,
        known: Vec<Option<Predicted>>,
        search: bool,
        watched: bool,
    ) -> PyResult<Self> {
        let tensors = held(targets, bases, elements, specs)?;
        let encoder = SnapshotEncoder { tensors, residual, pool: Pool::new(threads)?, encoder: Mutex::new(None) };
        let known: Vec<Option<Known>> = known.into_iter().map(|known| of_records(known?, first)).collect();
        let pool = &encoder.pool;
        let begun = encoder.with_tensors(py, |tensors| {
            let links = find_links(tensors)?;
            let families = find_families(tensors, &links, &known, search, first, pool)?;
            Ok(parallel::SnapshotEncoder::with_families(families, links, first).watching(watched))
        })?;
        *encoder.encoder.lock().unwrap_or_else(PoisonError::into_inner) = Some(begun);
        Ok(encoder)
    }

    /// Whether any record's base is predicted.
    #[getter]
    fn predicts(&self) -> bool {
        {
            let encoder = self.encoder.lock().unwrap_or_else(PoisonError::into_inner);
            encoder.as_ref().is_some_and(parallel::SnapshotEncoder::predicts)
        }
    }

    /// Writes coded bytes to `out` and returns how many; 0 once there are no more. `crc` is of all of them then.
    fn fill(&self, py: Python<'_>, out: &Bound<'_, Bytes>, crc: &Bound<'_, Crc>) -> PyResult<usize> {
        let mut out = writable(out)?;
        let out = out.as_slice_mut()?;
        let crc = crc.get();
        self.with_tensors(py, |tensors| {
            // Put back only after success: a base that is partly updated is no base to go on from.
            let mut slot = self.encoder.lock().unwrap_or_else(PoisonError::into_inner);
            let mut encoder = slot.take().ok_or(crate::Error::Request("the encoder is finished or has failed"))?;
            let filled = crc.with(|crc| encoder.fill(tensors, out, crc, &self.pool))?;
            *slot = Some(encoder);
            Ok(filled)
        })
    }

    /// Once `fill` has returned 0: the record headers, whether any record is lossy, whether all floats are finite, and the sums of
    /// the targets, none if they are not watched.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, bool, bool, Vec<u64>)> {
        let Finished { headers, summary, sums } = self.with_tensors(py, |tensors| {
            match self.encoder.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(encoder) => encoder.finish(tensors),
                None => Err(crate::Error::Request("the encoder is finished or has failed")),
            }
        })?;
        Ok((PyBytes::new(py, &headers), summary.lossy, summary.finite, sums))
    }
}

/// The sums of the targets as they are now: what an encoder that watches them has found.
#[pyfunction]
pub fn content_sums(
    py: Python<'_>,
    targets: Vec<Bound<'_, Bytes>>,
    elements: Vec<u16>,
    specs: Vec<Bound<'_, Spec>>,
    threads: usize,
) -> PyResult<Vec<u64>> {
    let bases = targets.iter().map(|_| None).collect();
    let (tensors, pool) = (held(targets, bases, elements, specs)?, Pool::new(threads)?);
    with_tensors(py, &tensors, true, |tensors| Ok(parallel::sums_of(tensors, &pool)))
}

fn held(
    targets: Vec<Bound<'_, Bytes>>,
    bases: Vec<Option<Bound<'_, Bytes>>>,
    elements: Vec<u16>,
    specs: Vec<Bound<'_, Spec>>,
) -> PyResult<Vec<Held>> {
    if targets.len() != bases.len() || targets.len() != elements.len() || targets.len() != specs.len() {
        return Err(PyValueError::new_err("lists of different lengths"));
    }
    let arrays = targets.into_iter().zip(bases).map(|(target, base)| (target.unbind(), base.map(Bound::unbind)));
    let types = elements.into_iter().zip(specs);
    arrays
        .zip(types)
        .map(|((target, base), (element, spec))| {
            Ok(Held { element: element_type(element)?, spec: spec.get().0, target, base })
        })
        .collect()
}

/// A formula's number and the records that it reads, as `predictions` tells them.
pub type Predicted = (u8, Vec<u32>);

/// Tensors instead of records.
fn of_records((formula, records): Predicted, first: u32) -> Option<Known> {
    let siblings = records.into_iter().map(|record| record.checked_sub(first)).collect::<Option<Vec<u32>>>()?;
    Some((Formula::of_number(formula)?, siblings))
}

impl SnapshotEncoder {
    fn with_tensors<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut [Tensor<'_>]) -> crate::Result<R> + Send,
    ) -> PyResult<R> {
        with_tensors(py, &self.tensors, self.residual, work)
    }
}

/// Calls `work`, without the interpreter, on all tensors.
fn with_tensors<R: Send>(
    py: Python<'_>,
    all: &[Held],
    residual: bool,
    work: impl FnOnce(&mut [Tensor<'_>]) -> crate::Result<R> + Send,
) -> PyResult<R> {
    let targets = all.iter().map(|held| readable(held.target.bind(py))).collect::<PyResult<Vec<_>>>()?;
    let borrow = |held: &Held| match &held.base {
        None => Ok(Borrowed::None),
        Some(base) if residual => readable(base.bind(py)).map(Borrowed::Own),
        Some(base) => writable(base.bind(py)).map(Borrowed::Previous),
    };
    let mut bases = all.iter().map(borrow).collect::<PyResult<Vec<_>>>()?;
    let mut tensors = Vec::with_capacity(targets.len());
    for ((held, target), base) in all.iter().zip(&targets).zip(&mut bases) {
        let base = match base {
            Borrowed::None => TensorBase::None,
            Borrowed::Previous(base) => TensorBase::Previous(base.as_slice_mut()?),
            Borrowed::Own(base) => TensorBase::Own(base.as_slice()?),
        };
        tensors.push(Tensor { element: held.element, spec: held.spec, target: target.as_slice()?, base });
    }
    py.detach(|| guarded(|| work(&mut tensors)))
}
