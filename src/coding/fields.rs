//! Fields of raw bits: one stream, or four (format.md, section 6).

use crate::bits::{BitReader, BitWriter};
use crate::error::Parsed;
use crate::huffman::stream_ranges;
use crate::wire::Reader;

/// A list of fields: values and widths.
#[derive(Default)]
pub struct Fields {
    values: Vec<u64>,
    widths: Vec<u8>,
}

impl Fields {
    pub fn clear(&mut self) {
        self.values.clear();
        self.widths.clear();
    }

    #[inline(always)]
    pub fn push(&mut self, value: u64, width: u32) {
        self.values.push(value);
        self.widths.push(width as u8);
    }

    /// Adds a field whose value [`Fields::read`] will fill in.
    #[inline(always)]
    pub fn expect(&mut self, width: u32) {
        self.push(0, width);
    }

    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// Appends all fields.
    pub fn write(&self, out: &mut Vec<u8>) {
        for range in stream_ranges(self.values.len()) {
            let mut writer = BitWriter::new(out);
            for (&value, &width) in self.values[range.clone()].iter().zip(&self.widths[range]) {
                writer.put(value, u32::from(width));
            }
            writer.finish();
        }
    }

    /// Reads the value of every expected field.
    pub fn read(&mut self, input: &mut Reader<'_>) -> Parsed<()> {
        for range in stream_ranges(self.values.len()) {
            let widths = &self.widths[range.clone()];
            let bits: usize = widths.iter().map(|&width| usize::from(width)).sum();
            let start = input.position();
            let mut reader = BitReader::new(input.slice(bits.div_ceil(8))?);
            for (value, &width) in self.values[range].iter_mut().zip(widths) {
                *value = reader.get(u32::from(width))?;
            }
            reader.finish().map_err(|flaw| flaw.shifted(start))?;
        }
        Ok(())
    }
}

/// Bytes that `n` fields take that are all `width` bits wide.
pub fn field_bytes(n: usize, width: u32) -> usize {
    stream_ranges(n).map(|range| (range.len() * width as usize).div_ceil(8)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_come_back(fields in prop::collection::vec((0u32..=64, any::<u64>()), 0..3000)) {
            let mut written = Fields::default();
            let mut read = Fields::default();
            for (width, value) in fields {
                written.push(if width == 64 { value } else { value & ((1 << width) - 1) }, width);
                read.expect(width);
            }
            let mut out = Vec::new();
            written.write(&mut out);
            let mut reader = Reader::new(&out);
            read.read(&mut reader).expect("own output");
            prop_assert_eq!(reader.remaining(), 0);
            prop_assert_eq!(written.values(), read.values());
        }

        #[test]
        fn even_fields_have_the_size_told(n in 0usize..3000, width in 0u32..=64) {
            let mut fields = Fields::default();
            (0..n).for_each(|_| fields.push(0, width));
            let mut out = Vec::new();
            fields.write(&mut out);
            prop_assert_eq!(out.len(), field_bytes(n, width));
        }
    }
}
