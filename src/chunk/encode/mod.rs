//! Elements -> stored bytes, the base becoming the reconstruction on the way.

mod exact;
mod lossy;
mod squares;
mod stage;

pub use exact::{ExactRecord, count_classes, count_exact, encode_bytes};
pub use lossy::{LossyRecord, count_lossy};
pub use squares::{Measured, Squares};
pub use stage::QuantizeStage;

/// What became of a chunk.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EncodedChunk {
    /// Bytes appended; `None`: the chunk is unchanged from the base.
    pub length: Option<usize>,
    /// Content sum of the reconstruction.
    pub sum: u64,
    pub errors: Squares,
}

#[cfg(test)]
mod tests;
