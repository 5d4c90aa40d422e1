//! The core of ckptz: one tensor's target and base in, one record out, and back.
//!
//! Modules stand in the order in which data passes them when it is encoded. `docs/format.md` says what the bytes mean.

pub mod error;
pub mod float;
mod fenv;
mod wire;
mod bits;
pub mod checksum;

pub mod delta;
pub mod quantize;
pub mod promote;
mod exact;
pub mod predict;
mod bytes;

mod huffman;
pub mod coding;

pub mod header;
pub mod spec;
mod chunk;
pub mod plan;
pub mod record;

pub use error::{Error, Result};
pub use header::RecordHeader;
pub use record::{Decoder, Encoder};
pub use spec::Spec;

#[cfg(test)]
mod naive;
