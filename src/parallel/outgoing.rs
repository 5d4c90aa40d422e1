//! Coded bytes on their way to the caller.

use crate::checksum::Crc;
use crate::sink::{Sink, Spilling};

/// The caller's room for coded bytes, what it has none for, and the checksum of both.
pub struct Outgoing<'a> {
    to: Spilling<'a>,
    crc: &'a mut Crc,
}

impl<'a> Outgoing<'a> {
    pub fn new(to: Spilling<'a>, crc: &'a mut Crc) -> Self {
        Outgoing { to, crc }
    }

    /// Bytes in the caller's room.
    pub fn taken(&self) -> usize {
        self.to.taken()
    }

    pub fn into_spill(self) -> Vec<u8> {
        self.to.into_spill()
    }

    pub fn emit(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
        self.to.put(bytes);
    }

    /// The same of what `write` writes.
    pub fn emit_with<R>(&mut self, write: impl FnOnce(&mut dyn Sink) -> R) -> R {
        let start = self.to.length();
        let result = write(&mut self.to);
        // While the bytes are in cache.
        self.to.since(start).into_iter().for_each(|bytes| self.crc.update(bytes));
        // Nothing in the room would mean that all is coded.
        self.to.settle();
        result
    }
}
