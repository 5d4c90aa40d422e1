//! Bit streams: the lowest bit first, padded with zero bits to a whole byte (format.md, section 1).

use crate::error::{Flaw, Parsed};
use crate::sink::Sink;

/// Appends fields of bits to a byte buffer.
pub struct BitWriter<'a> {
    out: &'a mut dyn Sink,
    pending: u64,
    held: u32,
}

impl<'a> BitWriter<'a> {
    pub fn new(out: &'a mut dyn Sink) -> Self {
        BitWriter { out, pending: 0, held: 0 }
    }

    /// Writes the `width` (0..=64) low bits of `value`; its other bits must be zero.
    #[inline]
    pub fn put(&mut self, value: u64, width: u32) {
        debug_assert!(width == 64 || value >> width == 0);
        if width > 32 {
            self.put_short(value & 0xffff_ffff, 32);
            self.put_short(value >> 32, width - 32);
        } else {
            self.put_short(value, width);
        }
    }

    #[inline]
    fn put_short(&mut self, value: u64, width: u32) {
        self.pending |= value << self.held;
        self.held += width;
        if self.held >= 32 {
            self.out.put(&(self.pending as u32).to_le_bytes());
            self.pending >>= 32;
            self.held -= 32;
        }
    }

    /// Pads the last byte with zero bits.
    pub fn finish(self) {
        let bytes = self.held.div_ceil(8) as usize;
        self.out.put(&self.pending.to_le_bytes()[..bytes]);
    }
}

/// Reads fields of bits from untrusted bytes.
pub struct BitReader<'a> {
    bytes: &'a [u8],
    next: usize,
    pending: u64,
    held: u32,
}

impl<'a> BitReader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        BitReader { bytes, next: 0, pending: 0, held: 0 }
    }

    /// Fills the buffer to at least 32 bits, or with all that is left.
    #[inline]
    fn refill(&mut self) {
        if let Some(word) = self.bytes.get(self.next..self.next + 4) {
            let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            self.pending |= u64::from(word) << self.held;
            self.next += 4;
            self.held += 32;
        } else {
            while self.held <= 56 && self.next < self.bytes.len() {
                self.pending |= u64::from(self.bytes[self.next]) << self.held;
                self.next += 1;
                self.held += 8;
            }
        }
    }

    /// The next bits without taking them; past the end they read as zero. At least 32 are valid before the end.
    #[inline]
    pub fn peek(&mut self) -> u64 {
        if self.held < 32 {
            self.refill();
        }
        self.pending
    }

    /// Takes `width` (0..=32) bits that [`BitReader::peek`] showed.
    #[inline]
    pub fn take(&mut self, width: u32) -> Parsed<()> {
        if width > self.held {
            return Err(Flaw::new(self.bytes.len(), "a bit stream ends too early"));
        }
        self.pending >>= width;
        self.held -= width;
        Ok(())
    }

    /// The next `width` (0..=64) bits.
    #[inline]
    pub fn get(&mut self, width: u32) -> Parsed<u64> {
        if width > 32 {
            let low = self.get_short(32)?;
            return Ok(low | self.get_short(width - 32)? << 32);
        }
        self.get_short(width)
    }

    #[inline]
    fn get_short(&mut self, width: u32) -> Parsed<u64> {
        let value = self.peek() & ((1u64 << width) - 1);
        self.take(width)?;
        Ok(value)
    }

    /// Bytes that the bits taken so far touch.
    pub fn bytes_touched(&self) -> usize {
        self.next - self.held as usize / 8
    }

    /// Checks that the rest of the last byte is zero and returns how many bytes the stream had.
    pub fn finish(self) -> Parsed<usize> {
        let touched = self.bytes_touched();
        let padding = self.held % 8;
        if self.pending & ((1 << padding) - 1) != 0 {
            return Err(Flaw::new(touched, "the padding of a bit stream is not zero"));
        }
        Ok(touched)
    }
}

/// At least 57 bits from one on; those past the end are zero.
#[inline(always)]
pub fn word_at(bytes: &[u8], bit: usize) -> u64 {
    let at = bit / 8;
    let word = match bytes.get(at..at + 8) {
        Some(word) => u64::from_le_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]),
        None => last_word(bytes, at),
    };
    word >> (bit % 8)
}

#[cold]
fn last_word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    let rest = bytes.get(at..).unwrap_or(&[]);
    let length = rest.len().min(8);
    word[..length].copy_from_slice(&rest[..length]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_come_back(fields in prop::collection::vec((0u32..=64, any::<u64>()), 0..200)) {
            let fields: Vec<_> = fields.into_iter().map(|(w, v)| (w, if w == 64 { v } else { v & ((1 << w) - 1) })).collect();
            let mut out = Vec::new();
            let mut writer = BitWriter::new(&mut out);
            for &(width, value) in &fields {
                writer.put(value, width);
            }
            writer.finish();
            let total: u32 = fields.iter().map(|f| f.0).sum();
            prop_assert_eq!(out.len(), total.div_ceil(8) as usize);
            let mut reader = BitReader::new(&out);
            for &(width, value) in &fields {
                prop_assert_eq!(reader.get(width), Ok(value));
            }
            prop_assert_eq!(reader.finish(), Ok(out.len()));
        }

        #[test]
        fn bit_order_is_lowest_first(bits in prop::collection::vec(any::<bool>(), 0..100)) {
            let mut out = Vec::new();
            let mut writer = BitWriter::new(&mut out);
            for &bit in &bits {
                writer.put(u64::from(bit), 1);
            }
            writer.finish();
            for (k, &bit) in bits.iter().enumerate() {
                prop_assert_eq!(out[k / 8] >> (k % 8) & 1 == 1, bit);
            }
        }
    }

    #[test]
    fn reading_past_the_end_and_dirty_padding_are_flaws() {
        assert!(BitReader::new(&[0xff]).get(9).is_err());
        let mut reader = BitReader::new(&[0b1000]);
        assert_eq!(reader.get(3), Ok(0));
        assert!(reader.finish().is_err());
    }
}
