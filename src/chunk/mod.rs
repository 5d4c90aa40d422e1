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

impl Scratch {
    /// Calls `work` with a copy of `elements`.
    pub fn with_copy<E: bytemuck::Pod, R>(&mut self, elements: &[E], work: impl FnOnce(&[E], &mut Self) -> R) -> R {
        self.with_room(elements.len(), |copy, scratch| {
            copy.copy_from_slice(elements);
            work(copy, scratch)
        })
    }

    /// Calls `work` with room for so many elements, whatever they hold. `E` is as long as 1, 2, 4 or 8 bytes.
    pub fn with_room<E: bytemuck::Pod, R>(
        &mut self,
        elements: usize,
        work: impl FnOnce(&mut [E], &mut Self) -> R,
    ) -> R {
        let mut words = std::mem::take(&mut self.content);
        words.resize((elements * size_of::<E>()).div_ceil(8).max(words.len()), 0);
        let result = work(&mut bytemuck::cast_slice_mut(&mut words)[..elements], self);
        self.content = words;
        result
    }
}

thread_local! {
    static SCRATCH: std::cell::RefCell<Scratch> = std::cell::RefCell::default();
}

/// Lends this thread's buffers to `work`, which does not call this again.
pub fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with_borrow_mut(work)
}
