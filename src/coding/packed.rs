//! Fields of at most 32 bits, all of a chunk at once: the quick twin of [`Fields`](super::Fields) and
//! [`FieldReader`](super::FieldReader).

use crate::bits::word_at;
use crate::error::{Flaw, Parsed};
use crate::huffman::{FOUR_STREAMS_FROM, stream_ranges};
use crate::simd::packed::{self, Packed};
use crate::simd::wide;
use crate::sink::Sink;
use crate::wire::Reader;
use std::ops::Range;

/// Appends the fields of all entries that have one: those of a width above 0. A field has no bits above its width, which is
/// at most 32.
pub fn pack(fields: &[u32], widths: &[u8], out: &mut dyn Sink) {
    let (streams, count) = streams_of(widths);
    for entries in &streams[..count] {
        let (fields, widths) = (&fields[entries.clone()], &widths[entries.clone()]);
        let (start, bits) = (out.length(), sum_of(widths));
        // Short fields fill a word four at a time, long ones two.
        let length = pack_stream(fields, widths, bits / 12 < widths.len(), out.stretch(bits / 8 + 16));
        out.cut(start + length);
    }
}

/// Reads the fields of all entries that have one, with other bits above the width of each.
pub fn unpack(input: &mut Reader<'_>, widths: &[u8], fields: &mut Vec<u32>) -> Parsed<()> {
    let (streams, count) = streams_of(widths);
    unpack_streams(input, widths, streams.into_iter().take(count), fields)
}

/// The same where all entries have a field, if only one of no bits.
pub fn unpack_all(input: &mut Reader<'_>, widths: &[u8], fields: &mut Vec<u32>) -> Parsed<()> {
    unpack_streams(input, widths, stream_ranges(widths.len()), fields)
}

fn unpack_streams(
    input: &mut Reader<'_>,
    widths: &[u8],
    streams: impl Iterator<Item = Range<usize>>,
    fields: &mut Vec<u32>,
) -> Parsed<()> {
    fields.resize(widths.len(), 0);
    for entries in streams {
        let (widths, fields) = (&widths[entries.clone()], &mut fields[entries]);
        let (position, bits) = (input.position(), sum_of(widths));
        let bytes = input.slice(bits.div_ceil(8))?;
        unpack_stream(bytes, widths, fields);
        let used = bits % 8;
        if used > 0 && bytes.last().is_some_and(|last| last >> used != 0) {
            return Err(Flaw::new(position, "the padding of raw bits is not zero"));
        }
    }
    Ok(())
}

// In narrow integers, as many as cannot overflow, so that a vector holds many.

wide! {
    fn sum_of[](widths: &[u8]) -> usize {
        let of_some = |some: &[u8]| some.iter().fold(0u16, |sum, &width| sum + u16::from(width));
        widths.chunks(256).map(|some| usize::from(of_some(some))).sum()
    }
}

wide! {
    fn count_fields[](widths: &[u8]) -> usize {
        let of_some = |some: &[u8]| some.iter().fold(0u8, |count, &width| count + u8::from(width != 0));
        widths.chunks(255).map(|some| usize::from(of_some(some))).sum()
    }
}

/// The entries whose fields make up each stream, and how many streams there are.
fn streams_of(widths: &[u8]) -> ([Range<usize>; 4], usize) {
    let fields = count_fields(widths);
    let mut streams = [const { 0..0 }; 4];
    let count = if fields < FOUR_STREAMS_FROM { 1 } else { 4 };
    let mut start = 0;
    for (stream, range) in streams.iter_mut().zip(stream_ranges(fields)) {
        let rest = &widths[start..];
        let length = if range.end == fields { rest.len() } else { entries_with(rest, range.len()) };
        *stream = start..start + length;
        start += length;
    }
    (streams, count)
}

/// How many entries from the first on have so many fields.
fn entries_with(widths: &[u8], mut fields: usize) -> usize {
    let mut at = 0;
    // Ever shorter blocks, down to single entries.
    for block in [1024, 64, 1] {
        for widths in widths[at..].chunks(block) {
            let found = count_fields(widths);
            if found > fields || fields == 0 {
                break;
            }
            fields -= found;
            at += widths.len();
        }
    }
    at
}

/// Writes a stream and tells how many bytes it has; `out` has 15 bytes more than its whole ones.
fn pack_stream(fields: &[u32], widths: &[u8], fours: bool, out: &mut [u8]) -> usize {
    let Packed { fields: done, bytes: mut at, mut bits, mut count } = packed::pack(fields, widths, fours, out);
    for (&field, &width) in fields[done..].iter().zip(&widths[done..]) {
        bits |= u64::from(field) << count;
        count += u32::from(width);
        out[at..at + 8].copy_from_slice(&bits.to_le_bytes());
        at += (count / 8) as usize;
        bits >>= count & !7;
        count %= 8;
    }
    if count > 0 {
        out[at] = bits as u8;
        at += 1;
    }
    at
}

/// Reads a stream, which has all the bits that the widths add up to.
fn unpack_stream(bytes: &[u8], widths: &[u8], fields: &mut [u32]) {
    let (done, mut at) = packed::unpack(bytes, widths, fields);
    for (field, &width) in fields[done..].iter_mut().zip(&widths[done..]) {
        *field = word_at(bytes, at) as u32;
        at += usize::from(width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::{FieldReader, Fields};
    use proptest::prelude::*;

    fn fields(limit: u8) -> impl Strategy<Value = Vec<(u8, u32)>> {
        let field = (0..=limit, any::<u32>()).prop_map(|(width, value)| (width, value & ((1u64 << width) - 1) as u32));
        let none = Just((0u8, 0u32));
        prop::collection::vec(prop_oneof![3 => field, 1 => none], 0..5000)
    }

    #[test]
    fn eight_fields_as_long_as_can_be_and_just_too_long_for_a_word() {
        // Of 32 bits each, of 56 in all, and of 57.
        let eights: [[u8; 8]; 5] = [[32; 8], [7; 8], [7, 7, 7, 7, 7, 7, 7, 8], [0, 0, 0, 0, 0, 0, 24, 32], [0; 8]];
        for pattern in 0..eights.len().pow(3) {
            let chosen = [pattern % 5, pattern / 5 % 5, pattern / 25];
            let widths: Vec<u8> = (0..150).flat_map(|k| eights[chosen[k % 3]]).collect();
            let field = |(i, &width): (usize, &u8)| {
                ((1u64 << width) - 1) as u32 & (i as u32).wrapping_mul(0x9e37_79b9) | u32::from(width > 0)
            };
            let values: Vec<u32> = widths.iter().enumerate().map(field).collect();
            let mut plain = Fields::default();
            plain.restart(values.len());
            values
                .iter()
                .zip(&widths)
                .filter(|(_, w)| **w > 0)
                .for_each(|(&v, &w)| plain.push(u64::from(v), u32::from(w)));
            let (mut expected, mut found, mut read) = (Vec::new(), Vec::new(), Vec::new());
            plain.write(&mut expected);
            pack(&values, &widths, &mut found);
            assert_eq!(found, expected);
            unpack(&mut Reader::new(&found), &widths, &mut read).expect("own output");
            let same = |((read, value), width): ((&u32, &u32), &u8)| (read ^ value) & ((1u64 << width) - 1) as u32 == 0;
            assert!(read.iter().zip(&values).zip(&widths).all(same));
        }
    }

    proptest! {
        #[test]
        fn as_field_by_field(fields in prop_oneof![fields(6), fields(32)]) {
            let (widths, values): (Vec<u8>, Vec<u32>) = fields.into_iter().unzip();
            let mut plain = Fields::default();
            plain.restart(values.len());
            values.iter().zip(&widths).filter(|(_, w)| **w > 0).for_each(|(&v, &w)| plain.push(u64::from(v), u32::from(w)));
            let (mut expected, mut found) = (vec![1], vec![1]);
            plain.write(&mut expected);
            pack(&values, &widths, &mut found);
            prop_assert_eq!(&found, &expected);
            let mut read = Vec::new();
            let mut input = Reader::new(&found[1..]);
            unpack(&mut input, &widths, &mut read).expect("own output");
            prop_assert_eq!(input.remaining(), 0);
            for ((read, value), width) in read.iter().zip(&values).zip(&widths) {
                prop_assert_eq!(u64::from(*read) & ((1u64 << width) - 1), u64::from(*value));
            }
        }

        #[test]
        fn damage_is_found_as_field_by_field(fields in fields(32), cut in 0usize..3, flip: u8) {
            let (widths, values): (Vec<u8>, Vec<u32>) = fields.into_iter().unzip();
            let mut bytes = Vec::new();
            pack(&values, &widths, &mut bytes);
            bytes.truncate(bytes.len().saturating_sub(cut));
            if let Some(last) = bytes.last_mut() {
                *last ^= flip;
            }
            let mut input = Reader::new(&bytes);
            let mut plain = FieldReader::new(&input, widths.iter().filter(|w| **w > 0).count());
            let expected: Vec<u64> = widths.iter().filter(|w| **w > 0).map(|&w| plain.get(u32::from(w))).collect();
            let fine = plain.finish(&mut input).is_ok();
            let mut read = Vec::new();
            let mut input = Reader::new(&bytes);
            prop_assert_eq!(unpack(&mut input, &widths, &mut read).is_ok(), fine);
            if fine {
                let with_fields = read.iter().zip(&widths).filter(|(_, w)| **w > 0);
                let read: Vec<u64> = with_fields.map(|(&v, &w)| u64::from(v) & ((1u64 << w) - 1)).collect();
                prop_assert_eq!(read, expected);
            }
        }
    }
}
