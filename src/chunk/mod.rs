//! One chunk: everything between its elements and its stored bytes (format.md, section 7).

pub mod decode;
pub mod encode;

use crate::bytes;
use crate::coding::{self, Fields};
use crate::exact::Cuts;

/// Buffers that a thread keeps from chunk to chunk.
#[derive(Default)]
pub struct Scratch {
    pub(crate) symbols: Vec<u8>,
    pub(crate) escapes: Vec<u16>,
    pub(crate) fields: Fields,
    pub(crate) cuts: Cuts,
    pub(crate) exceptions: Vec<u32>,
    pub(crate) values: Vec<u8>,
    /// Elements that are made and forgotten.
    pub(crate) content: Vec<u64>,
    pub(crate) coding: coding::Scratch,
    pub(crate) bytes: bytes::Scratch,
}

thread_local! {
    static SCRATCH: std::cell::RefCell<Scratch> = std::cell::RefCell::default();
}

/// Lends this thread's buffers to `work`, which does not call this again.
pub fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with_borrow_mut(work)
}
