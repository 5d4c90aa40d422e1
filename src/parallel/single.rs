//! One record on several threads, without a chain: for arrays that are kept without a store.

use super::Pool;
use crate::chunk::decode::AnyDecoder;
use crate::error::{Error, Part, Result};
use crate::fenv;
use crate::float::ElementType;
use crate::header::{Base, Kind, RecordHeader, chunk_count};

/// Turns `content` (the base; anything where the record has none) into the reconstruction, checked against the content sums.
/// After an error `content` means nothing.
pub fn decode_record(
    header: &RecordHeader,
    element: ElementType,
    payload: &[u8],
    content: &mut [u8],
    pool: &Pool,
) -> Result<()> {
    if matches!(header.kind, Kind::Link(_)) || matches!(header.base, Base::Predicted(_)) {
        return Err(damaged("this record needs other records of its snapshot"));
    }
    let elements = content.len() / element.size().max(1);
    let same = header.kind == Kind::Same;
    let fits = same || header.index.len() == chunk_count(elements, header.chunk_log2);
    if !fits || header.payload_bytes() != payload.len() as u64 {
        return Err(damaged("the record is of another length than its tensor or payload"));
    }
    if same {
        return Ok(());
    }
    fenv::standard(|| {
        let decoder = AnyDecoder::new(header, element);
        let mut rest = payload;
        let mut work = Vec::new();
        let chunks = content.chunks_mut(element.size() << header.chunk_log2).zip(&header.index);
        for (number, (chunk, entry)) in chunks.enumerate() {
            if let Some(length) = entry.length {
                let (stored, after) = rest.split_at(length as usize);
                rest = after;
                work.push((number, stored, chunk, entry.sum));
            }
        }
        let decode = |(number, stored, chunk, sum): (usize, &[u8], &mut [u8], u64)| {
            let part = Part::Chunk(number);
            let found = decoder.decode(stored, chunk, true).map_err(|flaw| flaw.within(part))?;
            if found == sum { Ok(()) } else { Err(Error::Content { part }) }
        };
        pool.map(work, decode).into_iter().collect()
    })
}

fn damaged(what: &'static str) -> Error {
    Error::Format { part: Part::Header, offset: 0, what }
}
