//! [`crate::Spec`] as a Python object.

use crate::bound::Bound;
use crate::coding::CodingChoice;
use crate::promote::{Promotion, Representative};
use crate::spec::{BaseChoice, DomainChoice, Lossy};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// How a tensor is to be coded.
#[pyclass(frozen, eq, module = "ckptz._core")]
#[derive(Clone, PartialEq)]
pub struct Spec(pub crate::Spec);

fn unknown(what: &str, value: &str) -> PyErr {
    PyValueError::new_err(format!("unknown {what} {value:?}"))
}

#[pymethods]
impl Spec {
    /// Bit for bit.
    #[staticmethod]
    #[pyo3(signature = (*, links, predict, chunk_log2))]
    fn exact(links: bool, predict: bool, chunk_log2: u8) -> PyResult<Self> {
        checked(crate::Spec { lossy: None, links, predict, chunk_log2 })
    }

    /// Lossy. Exactly one of `levels` and `bits` is given.
    #[staticmethod]
    #[pyo3(signature = (*, levels, bits, non_negative_levels, domain, representative, refinement, base, coding,
                        exact_fallback, least_elements, links, predict, chunk_log2,
                        max_error = None, max_rel_error = None))]
    #[allow(clippy::too_many_arguments)]
    fn lossy(
        levels: Option<u8>,
        bits: Option<u8>,
        non_negative_levels: Option<u8>,
        domain: &str,
        representative: &str,
        refinement: u8,
        base: &str,
        coding: &str,
        exact_fallback: bool,
        least_elements: usize,
        links: bool,
        predict: bool,
        chunk_log2: u8,
        max_error: Option<f64>,
        max_rel_error: Option<f64>,
    ) -> PyResult<Self> {
        let promotion = match (levels, bits) {
            (Some(levels), None) => Promotion::Levels(levels),
            (None, Some(bits)) => Promotion::Buckets { bits },
            _ => return Err(PyValueError::new_err("either levels or bits must be given")),
        };
        let lossy = Lossy {
            domain: match domain {
                "auto" => DomainChoice::Auto,
                "value" => DomainChoice::Value,
                "ordered" => DomainChoice::Ordered,
                other => return Err(unknown("domain", other)),
            },
            promotion,
            non_negative: non_negative_levels.map_or(promotion, Promotion::Levels),
            representative: match representative {
                "mean" => Representative::Mean,
                "midrange" => Representative::Midrange,
                other => return Err(unknown("representative", other)),
            },
            refinement,
            bound: Bound::of(max_error, max_rel_error),
            base: match base {
                "auto" => BaseChoice::Auto,
                "previous" => BaseChoice::Previous,
                other => return Err(unknown("base", other)),
            },
            coding: match coding {
                "auto" => CodingChoice::Cheapest,
                "plain" => CodingChoice::Plain,
                "mask" => CodingChoice::Mask,
                "tokens" => CodingChoice::Tokens,
                "fixed" => CodingChoice::Fixed,
                "pairs" => CodingChoice::Pairs,
                other => return Err(unknown("coding", other)),
            },
            exact_fallback,
            least_elements,
        };
        checked(crate::Spec { lossy: Some(lossy), links, predict, chunk_log2 })
    }

    /// Whether a tensor of so many elements may be coded in pairs of symbols.
    fn may_pair(&self, elements: usize) -> bool {
        self.0.may_pair(elements)
    }
}

fn checked(spec: crate::Spec) -> PyResult<Spec> {
    spec.check()?;
    Ok(Spec(spec))
}
