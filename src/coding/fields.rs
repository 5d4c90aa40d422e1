//! Fields of raw bits: one stream, or four (format.md, section 6).

use crate::bits::word_at;
use crate::error::{Flaw, Parsed};
use crate::huffman::stream_ranges;
use crate::sink::Sink;
use crate::wire::Reader;

/// A list of fields to be written: values and widths.
#[derive(Default)]
pub struct Fields {
    values: Vec<u64>,
    widths: Vec<u8>,
    count: usize,
}

impl Fields {
    /// Forgets all fields and makes room for `count`.
    pub fn restart(&mut self, count: usize) {
        self.count = 0;
        if self.values.len() < count {
            self.values.resize(count, 0);
            self.widths.resize(count, 0);
        }
    }

    /// Adds a field, for which there must be room.
    #[inline(always)]
    pub fn push(&mut self, value: u64, width: u32) {
        self.values[self.count] = value;
        self.widths[self.count] = width as u8;
        self.count += 1;
    }

    /// Appends all fields.
    pub fn write(&self, out: &mut dyn Sink) {
        for range in stream_ranges(self.count) {
            let start = out.length();
            let room: usize = self.widths[range.clone()].iter().map(|&width| usize::from(width)).sum::<usize>() / 8;
            let length = write_stream(&self.values[range.clone()], &self.widths[range], out.stretch(room + 24));
            out.cut(start + length);
        }
    }
}

/// Writes a stream and tells how many bytes it has; `out` has 23 bytes more than its whole ones.
fn write_stream(values: &[u64], widths: &[u8], out: &mut [u8]) -> usize {
    let (mut bits, mut count, mut at) = (0u64, 0u32, 0usize);
    let mut put = |value: u64, width: u32| {
        bits |= value << count;
        count += width;
        out[at..at + 8].copy_from_slice(&bits.to_le_bytes());
        at += (count / 8) as usize;
        bits >>= count & !7;
        count %= 8;
    };
    for (&value, &width) in values.iter().zip(widths) {
        // Less than 8 bits wait: 56 more fit.
        if width <= 56 {
            put(value, u32::from(width));
        } else {
            put(value & 0xffff_ffff, 32);
            put(value >> 32, u32::from(width) - 32);
        }
    }
    if count > 0 {
        out[at] = bits as u8;
        at += 1;
    }
    at
}

/// Reads fields in order from untrusted bytes. What is read past their end is zero, and found out by
/// [`FieldReader::finish`].
pub struct FieldReader<'a> {
    bytes: &'a [u8],
    /// In bits.
    at: usize,
    /// Fields left in this stream.
    left: usize,
    /// Fields of the streams to come.
    streams: [usize; 4],
    stream: usize,
    dirty: bool,
}

impl<'a> FieldReader<'a> {
    /// Reads `count` fields from where `input` stands.
    pub fn new(input: &Reader<'a>, count: usize) -> Self {
        let mut streams = [0; 4];
        streams.iter_mut().zip(stream_ranges(count)).for_each(|(stream, range)| *stream = range.len());
        FieldReader { bytes: input.rest(), at: 0, left: streams[0], streams, stream: 0, dirty: false }
    }

    /// The next field, `width` (0..=64) bits wide.
    #[inline(always)]
    pub fn get(&mut self, width: u32) -> u64 {
        if width <= 56 {
            return self.get_if(true, width);
        }
        let low = self.get_if(true, 32);
        // The same field goes on.
        self.left += 1;
        low | self.get_if(true, width - 32) << 32
    }

    /// The next field if it is `wanted`, else 0; `width` is at most 56, and 0 if it is not wanted.
    #[inline(always)]
    pub fn get_if(&mut self, wanted: bool, width: u32) -> u64 {
        if wanted && self.left == 0 {
            self.next_stream();
        }
        self.left = self.left.wrapping_sub(usize::from(wanted));
        let word = self.word();
        self.at += width as usize;
        word & ((1 << width) - 1)
    }

    /// At least 57 bits from here on.
    #[inline(always)]
    fn word(&self) -> u64 {
        word_at(self.bytes, self.at)
    }

    #[cold]
    fn next_stream(&mut self) {
        self.end_stream();
        self.stream += 1;
        // Past the last stream no more fields are asked for: their count is known.
        self.left = self.streams.get(self.stream).copied().unwrap_or(usize::MAX);
    }

    fn end_stream(&mut self) {
        let padding = self.at.next_multiple_of(8) - self.at;
        self.dirty |= self.word() & ((1 << padding) - 1) != 0;
        self.at += padding;
    }

    /// Moves `input` past the fields. They must all have been read.
    pub fn finish(mut self, input: &mut Reader<'a>) -> Parsed<()> {
        self.end_stream();
        let length = self.at / 8;
        if self.dirty {
            return Err(Flaw::new(input.position(), "the padding of raw bits is not zero"));
        }
        input.slice(length)?;
        Ok(())
    }
}

/// Bytes that `n` fields take that are all `width` bits wide.
#[cfg(test)]
fn field_bytes(n: usize, width: u32) -> usize {
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
            written.restart(fields.len());
            let cut = |(width, value): (u32, u64)| (width, if width == 64 { value } else { value & ((1 << width) - 1) });
            let fields: Vec<(u32, u64)> = fields.into_iter().map(cut).collect();
            fields.iter().for_each(|&(width, value)| written.push(value, width));
            let mut out = vec![7];
            written.write(&mut out);
            out.push(0xff);
            let mut input = Reader::new(&out[1..]);
            let mut reader = FieldReader::new(&input, fields.len());
            for &(width, value) in &fields {
                prop_assert_eq!(reader.get(width), value);
            }
            reader.finish(&mut input).expect("own output");
            prop_assert_eq!(input.remaining(), 1);
        }

        #[test]
        fn even_fields_have_the_size_told(n in 0usize..3000, width in 0u32..=64) {
            let mut fields = Fields::default();
            fields.restart(n);
            (0..n).for_each(|_| fields.push(0, width));
            let mut out = Vec::new();
            fields.write(&mut out);
            prop_assert_eq!(out.len(), field_bytes(n, width));
        }

        #[test]
        fn fields_that_are_cut_off_or_dirty_are_found(widths in prop::collection::vec(1u32..=64, 1..2000), cut in 1usize..9) {
            let mut fields = Fields::default();
            fields.restart(widths.len());
            widths.iter().for_each(|&width| fields.push(0, width));
            let mut out = Vec::new();
            fields.write(&mut out);
            let read = |bytes: &[u8]| {
                let mut input = Reader::new(bytes);
                let mut reader = FieldReader::new(&input, widths.len());
                for &width in &widths {
                    reader.get(width);
                }
                reader.finish(&mut input)
            };
            prop_assert!(read(&out).is_ok());
            prop_assert!(read(&out[..out.len().saturating_sub(cut)]).is_err());
            if widths.len() < 1024 && widths.iter().sum::<u32>() % 8 != 0 {
                *out.last_mut().expect("a byte") |= 0x80;
                prop_assert!(read(&out).is_err());
            }
        }
    }
}
