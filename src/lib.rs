//! The core of ckptz: one tensor's target and base in, one record out, and back.
//!
//! Modules stand in the order in which data passes them when it is encoded. `docs/format.md` says what the bytes mean.

mod bits;
pub mod checksum;
pub mod error;
mod fenv;
pub mod float;
mod kernels;
mod rounding;
mod simd;
mod sink;
mod view;
mod wire;

pub mod bound;
mod bytes;
pub mod delta;
mod exact;
#[cfg_attr(not(any(test, target_arch = "x86_64")), allow(dead_code, reason = "there only widening has a use"))]
mod halves;
pub mod predict;
pub mod promote;
pub mod quantize;
pub mod statistics;
mod tally;
mod tops;

pub mod coding;
mod huffman;

mod chunk;
pub mod header;
pub mod parallel;
pub mod plan;
pub mod record;
pub mod spec;

pub use error::{Error, Result};
pub use header::RecordHeader;
pub use record::{Decoder, Encoder};
pub use spec::Spec;

#[cfg(feature = "python")]
mod python;

#[cfg(test)]
mod naive;

/// What tests outside the crate need and users do not.
#[doc(hidden)]
pub mod testing {
    #[cfg(target_arch = "x86_64")]
    pub use crate::fenv::flushing;

    pub use crate::chunk::encode::QuantizeStage;
    pub use crate::coding::CodingStage;
    pub use crate::huffman::decode_group_alone as decode_group;

    /// Other machines have no such setting that is known here.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn flushing<T>(work: impl FnOnce() -> T) -> T {
        work()
    }
}
