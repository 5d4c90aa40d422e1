//! A group alone, for tests outside the crate.

use super::{Code, Decoder, group};
use crate::simd::ahead::Ahead;
use crate::wire::Reader;

/// Decodes a group of streams under the code of these lengths, several symbols a look-up; `N`: the symbols that each codeword stands
/// for, all the same. Tells how many bytes it took; `None` where it is refused.
pub fn decode_group<const N: usize>(lengths: &[u8], bytes: &[u8], symbols: &mut [u8]) -> Option<usize> {
    let meanings = Box::new(std::array::from_fn(|unit| [unit as u8; N]));
    let decoder = Decoder::of_meanings(&Code::of_lengths(lengths)?, meanings);
    decoder.entries(usize::MAX / 2)?;
    let mut input = Reader::new(bytes);
    group::decode_group(&mut input, &decoder, symbols, &mut Ahead::default()).ok()?;
    Some(bytes.len() - input.remaining())
}
