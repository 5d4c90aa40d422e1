//! Files of several snapshots: their chunks lie by tensor, then by chunk, then by snapshot (format.md, section 11).

use super::{Layer, Segment};
use crate::error::{Error, Result};

/// Tells where the chunks of a file's snapshots start; returns the length of its payload.
pub fn place(layers: &mut [Layer]) -> u64 {
    let mut end = 0u64;
    let mut starts: Vec<Vec<Vec<u64>>> = layers.iter().map(|layer| layer.offsets.clone()).collect();
    in_order(layers.iter().collect(), |layer, record, chunk, length| {
        starts[layer][record][chunk] = end;
        end = end.saturating_add(length);
    });
    for (layer, starts) in layers.iter_mut().zip(starts) {
        layer.offsets = starts;
    }
    end
}

/// What a file that holds some layers of others (file and number) is put together from, in order.
pub fn pieces(files: &[Vec<Layer>], chosen: &[(usize, usize)], absent: &[Vec<u32>]) -> Result<Vec<Segment>> {
    let wrong = Error::Request("a merge of what is not there");
    let mut layers = Vec::with_capacity(chosen.len());
    for (&(file, number), left) in chosen.iter().zip(absent) {
        let source = files.get(file).and_then(|layers| layers.get(number)).ok_or(wrong.clone())?;
        let mut layer = source.clone();
        layer.leave_out(left)?;
        if source.absent.iter().zip(&layer.absent).any(|(gone, left)| *gone && !left) {
            return Err(wrong);
        }
        layers.push(layer);
    }
    let mut pieces: Vec<Segment> = Vec::new();
    in_order(layers.iter().collect(), |layer, record, chunk, length| {
        let (file, offset) = (chosen[layer].0, layers[layer].offsets[record][chunk]);
        Segment { file, offset, length: length as usize, chunks: 1 }.append_to(&mut pieces);
    });
    Ok(pieces)
}

/// Calls with (layer, record, chunk, length) for each chunk that has bytes, in the order in which a file holds them.
fn in_order(layers: Vec<&Layer>, mut call: impl FnMut(usize, usize, usize, u64)) {
    let mut seen = vec![false; layers.first().map_or(0, |layer| layer.records.len())];
    let named: Vec<usize> = match layers[..] {
        // One alone has them in the order in which it was written.
        [layer] => layer.order.iter().map(|&record| layer.tensors[record]).collect(),
        _ => layers.iter().flat_map(|layer| &layer.tensors).copied().collect(),
    };
    for tensor in named {
        if std::mem::replace(&mut seen[tensor], true) {
            continue;
        }
        let mut chunks = Vec::new();
        for (number, layer) in layers.iter().enumerate() {
            let Some(record) = layer.records[tensor].filter(|&record| !layer.absent[record]) else { continue };
            let header = &layer.headers[record];
            let coded = header.index.iter().enumerate().filter_map(|(chunk, entry)| Some((chunk, entry.length?)));
            let coded = coded.filter(|(_, length)| *length > 0);
            chunks.extend(coded.map(|(chunk, length)| (chunk << header.chunk_log2, number, record, chunk, length)));
        }
        chunks.sort_unstable();
        for (_, layer, record, chunk, length) in chunks {
            call(layer, record, chunk, length);
        }
    }
}
