//! Bytes in and out of the byte-aligned parts of the format: integers, varints, slices (format.md, section 1).

use crate::error::{Flaw, Parsed};
use crate::sink::Sink;

/// A cursor over untrusted bytes: every read is checked.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// All that is left.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// A flaw at the current position.
    pub fn flaw(&self, what: &'static str) -> Flaw {
        Flaw::new(self.at, what)
    }

    pub fn slice(&mut self, length: usize) -> Parsed<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let slice = rest.get(..length).ok_or_else(|| self.flaw("the bytes end too early"))?;
        self.at += length;
        Ok(slice)
    }

    fn array<const N: usize>(&mut self) -> Parsed<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.slice(N)?);
        Ok(array)
    }

    pub fn u8(&mut self) -> Parsed<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Parsed<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Parsed<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn f32(&mut self) -> Parsed<f32> {
        Ok(f32::from_le_bytes(self.array()?))
    }

    pub fn f64(&mut self) -> Parsed<f64> {
        Ok(f64::from_le_bytes(self.array()?))
    }

    /// A varint of at most ten bytes (70 bits), in its shortest form.
    pub fn wide_varint(&mut self) -> Parsed<u128> {
        let start = self.at;
        let mut value = 0u128;
        for group in 0..10 {
            let byte = self.u8()?;
            value |= u128::from(byte & 0x7f) << (7 * group);
            if byte & 0x80 == 0 {
                if byte == 0 && group > 0 {
                    return Err(Flaw::new(start, "a varint is not in its shortest form"));
                }
                return Ok(value);
            }
        }
        Err(Flaw::new(start, "a varint is longer than ten bytes"))
    }

    pub fn varint(&mut self) -> Parsed<u64> {
        let start = self.at;
        u64::try_from(self.wide_varint()?).map_err(|_| Flaw::new(start, "a varint exceeds 64 bits"))
    }

    /// A varint that counts things in memory.
    pub fn count(&mut self) -> Parsed<usize> {
        let start = self.at;
        usize::try_from(self.varint()?).map_err(|_| Flaw::new(start, "a count is too large"))
    }

    /// A zigzag varint of at most 70 bits.
    pub fn zigzag(&mut self) -> Parsed<i128> {
        let value = self.wide_varint()?;
        Ok((value >> 1) as i128 ^ -((value & 1) as i128))
    }
}

/// Appends `value` as a varint.
pub fn put_varint(out: &mut (impl Sink + ?Sized), value: u64) {
    put_wide_varint(out, u128::from(value));
}

fn put_wide_varint(out: &mut (impl Sink + ?Sized), mut value: u128) {
    let (mut bytes, mut count) = ([0; 19], 0);
    while value >= 0x80 {
        bytes[count] = value as u8 | 0x80;
        value >>= 7;
        count += 1;
    }
    bytes[count] = value as u8;
    out.put(&bytes[..=count]);
}

/// Appends `value` (below 2^69 in size) as a zigzag varint.
pub fn put_zigzag(out: &mut Vec<u8>, value: i128) {
    put_wide_varint(out, ((value << 1) ^ (value >> 127)) as u128);
}

/// How many bytes [`put_varint`] writes.
pub fn varint_length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_come_back(value: u64, signed in -(1i128 << 68)..(1i128 << 68)) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            prop_assert_eq!(out.len(), varint_length(value));
            put_zigzag(&mut out, signed);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint(), Ok(value));
            prop_assert_eq!(reader.zigzag(), Ok(signed));
            prop_assert_eq!(reader.remaining(), 0);
        }
    }

    #[test]
    fn long_forms_and_cut_forms_are_refused() {
        for bytes in [&[0x80, 0x00][..], &[0x80], &[0xff; 11], &[]] {
            assert!(Reader::new(bytes).varint().is_err(), "{bytes:?}");
        }
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]).varint().is_err());
    }
}
