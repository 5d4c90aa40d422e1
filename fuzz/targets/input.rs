//! What a target makes of its bytes; `seeds.py` writes the same forms.
#![allow(dead_code)] // each target uses some of it

use ckptz::float::ElementType;

/// Bytes taken from the front; zeros, or as many as there are, past the end.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn u8(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    pub fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A piece that says its length before it.
    pub fn piece(&mut self) -> &'a [u8] {
        let length = self.u16().into();
        self.take(length)
    }

    pub fn element(&mut self) -> ElementType {
        match self.u8() {
            0 => ElementType::F16,
            1 => ElementType::BF16,
            2 => ElementType::F32,
            3 => ElementType::F64,
            size => ElementType::Bytes(size - 3),
        }
    }
}

/// A tensor's bytes, aligned for every element type; as many of `bytes` as there are, then zeros.
pub struct Aligned {
    words: Vec<u64>,
    length: usize,
}

impl Aligned {
    pub fn new(length: usize, bytes: &[u8]) -> Self {
        let mut aligned = Aligned { words: vec![0; length.div_ceil(8)], length };
        let given = length.min(bytes.len());
        aligned.get_mut()[..given].copy_from_slice(&bytes[..given]);
        aligned
    }

    pub fn get(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.length]
    }

    pub fn get_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.length]
    }
}
