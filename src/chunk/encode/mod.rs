//! Elements -> stored bytes, the base becoming the reconstruction on the way.

mod exact;
mod lossy;
mod squares;
mod stage;

pub use exact::{ExactRecord, count_classes, count_exact, encode_bytes};
pub use lossy::{LossyRecord, count_lossy, squared_error_of};
pub use squares::{Measured, Squares};
pub use stage::QuantizeStage;

use crate::float::Element;
use crate::simd::wide;

/// What became of a chunk.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EncodedChunk {
    /// Bytes appended; `None`: the chunk is unchanged from the base.
    pub length: Option<usize>,
    /// Content sum of the reconstruction. Of an exact record that is the target's, taken after all else is read of it: `parallel/watch.rs`
    /// tells by it whether the target is changed meanwhile.
    pub sum: u64,
    pub errors: Squares,
    /// Whether an entry of the target is not finite. Lossy records tell; for exact ones `AnyPlan` looks, but not for residuals, whose
    /// snapshot has told.
    pub not_finite: bool,
}

wide! {
    /// Whether every element is finite.
    pub fn all_finite[E: Element](elements: &[E]) -> bool {
        // Without leaving early, so that the loop is vectorised.
        elements.iter().fold(true, |finite, element| finite & element.finite())
    }
}

#[cfg(test)]
mod tests;
