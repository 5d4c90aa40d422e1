//! Exact coding of any bytes: zstd, or as they are (format.md, section 5, "bytes").

use crate::error::{Flaw, Parsed};
use crate::sink::Sink;

/// zstd's compression level: what it costs beyond level 1 is small beside reading the data.
const LEVEL: i32 = 3;

/// Buffers and contexts kept from chunk to chunk.
#[derive(Default)]
pub struct Scratch {
    transposed: Vec<u8>,
    compressor: Option<zstd::bulk::Compressor<'static>>,
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
}

/// Appends a chunk: as one zstd frame if that is smaller, else as it is. `planes`: 0, or the item size to transpose by.
pub fn encode(bytes: &[u8], planes: u8, scratch: &mut Scratch, out: &mut dyn Sink) {
    let start = out.length();
    let source = if planes > 0 {
        transpose(bytes, usize::from(planes), &mut scratch.transposed);
        &scratch.transposed
    } else {
        bytes
    };
    if scratch.compressor.is_none() {
        scratch.compressor = zstd::bulk::Compressor::new(LEVEL).ok();
    }
    // A frame that is no smaller does not fit in the room given and is not wanted.
    let room = out.stretch(source.len().saturating_sub(1));
    let compressed = scratch.compressor.as_mut().and_then(|c| c.compress_to_buffer(source, room).ok());
    out.cut(start + compressed.unwrap_or(0));
    if compressed.is_none() {
        out.put(source);
    }
}

/// Reads a chunk of exactly `bytes.len()` decoded bytes.
pub fn decode(input: &[u8], planes: u8, scratch: &mut Scratch, bytes: &mut [u8]) -> Parsed<()> {
    if input.len() > bytes.len() {
        return Err(Flaw::new(bytes.len(), "a chunk of bytes is longer than its content"));
    }
    scratch.transposed.resize(if planes > 0 { bytes.len() } else { 0 }, 0);
    let target = if planes > 0 { &mut scratch.transposed[..] } else { &mut *bytes };
    if input.len() == target.len() {
        target.copy_from_slice(input);
    } else {
        decompress(input, &mut scratch.decompressor, target)?;
    }
    if planes > 0 {
        restore(&scratch.transposed, usize::from(planes), bytes);
    }
    Ok(())
}

fn decompress(
    input: &[u8],
    decompressor: &mut Option<zstd::bulk::Decompressor<'static>>,
    target: &mut [u8],
) -> Parsed<()> {
    if decompressor.is_none() {
        *decompressor = zstd::bulk::Decompressor::new().ok();
    }
    let Some(decompressor) = decompressor else { return Err(Flaw::new(0, "no zstd decompressor could be made")) };
    match decompressor.decompress_to_buffer(input, target) {
        Ok(length) if length == target.len() => Ok(()),
        Ok(_) => Err(Flaw::new(0, "a zstd frame is shorter than its content")),
        Err(_) => Err(Flaw::new(0, "a damaged zstd frame")),
    }
}

/// First byte 0 of every item, then byte 1 of every item ..
fn transpose(bytes: &[u8], size: usize, out: &mut Vec<u8>) {
    out.clear();
    for plane in 0..size {
        out.extend(bytes.iter().skip(plane).step_by(size));
    }
}

fn restore(planes: &[u8], size: usize, bytes: &mut [u8]) {
    let items = bytes.len() / size;
    for (plane, values) in planes.chunks_exact(items.max(1)).enumerate() {
        bytes.iter_mut().skip(plane).step_by(size).zip(values).for_each(|(byte, value)| *byte = *value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_come_back(items in prop::collection::vec(0u32..5000, 0..2000), planes in prop::sample::select(vec![0u8, 2, 4])) {
            let bytes: Vec<u8> = items.iter().flat_map(|item| item.to_le_bytes()).collect();
            let (mut scratch, mut out) = (Scratch::default(), vec![7]);
            encode(&bytes, planes, &mut scratch, &mut out);
            prop_assert!(out.len() - 1 <= bytes.len());
            let mut decoded = vec![0; bytes.len()];
            decode(&out[1..], planes, &mut scratch, &mut decoded).expect("own output");
            prop_assert_eq!(decoded, bytes);
        }

        #[test]
        fn damage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), n in 0usize..400, planes in 0u8..9) {
            let n = n.next_multiple_of(usize::from(planes).max(1));
            let _ = decode(&bytes, planes, &mut Scratch::default(), &mut vec![0; n]);
        }
    }
}
