//! A group alone, for tests outside the crate.

use super::{Code, Decoder, group};
use crate::simd::ahead::Ahead;
use crate::wire::Reader;

/// Decodes a group of streams under the code of these lengths. Tells how many bytes it took; `None` where it is refused.
pub fn decode_group(lengths: &[u8], bytes: &[u8], symbols: &mut [u8]) -> Option<usize> {
    let decoder = Decoder::new(&Code::of_lengths(lengths)?);
    let mut input = Reader::new(bytes);
    group::decode_group(&mut input, &decoder, symbols, &mut Ahead::default()).ok()?;
    Some(bytes.len() - input.remaining())
}
