//! A coding alone, for benchmarks of stages.

use super::{Coding, CodingChoice, Decoding, FieldBits, Histogram, Scratch};
use crate::wire::Reader;
use std::cell::RefCell;

const CHUNK: usize = 1 << 16;

/// The coding of some symbols, ready to write and read them.
pub struct CodingStage {
    coding: Coding,
    decoding: Decoding,
    scratch: RefCell<Scratch>,
}

impl CodingStage {
    pub fn new(choice: CodingChoice, highest: u8, symbols: &[u8]) -> Self {
        let mut counts = Histogram::with_pairs();
        symbols.chunks(CHUNK).for_each(|chunk| counts.count(chunk));
        let coding = Coding::choose(&counts, highest, FieldBits::default(), choice).coding;
        CodingStage { decoding: Decoding::new(coding.clone(), highest), coding, scratch: RefCell::default() }
    }

    pub fn name(&self) -> &'static str {
        self.coding.name()
    }

    /// Every chunk to a buffer of its own.
    pub fn encode(&self, symbols: &[u8], stored: &mut Vec<Vec<u8>>) {
        stored.resize(symbols.len().div_ceil(CHUNK), Vec::new());
        for (chunk, out) in symbols.chunks(CHUNK).zip(stored) {
            out.clear();
            self.coding.encode(chunk, &mut self.scratch.borrow_mut(), out);
        }
    }

    /// Panics on anything but its own output.
    pub fn decode(&self, stored: &[Vec<u8>], symbols: &mut [u8]) {
        for (chunk, bytes) in symbols.chunks_mut(CHUNK).zip(stored) {
            let read = self.decoding.decode(&mut Reader::new(bytes), chunk, &mut self.scratch.borrow_mut());
            assert!(read.is_ok(), "own output");
        }
    }
}
