//! Canonical, length-limited Huffman codes over at most 256 symbols (format.md, section 6).

mod code;
mod decoder;
mod group;
mod lengths;
mod stage;

pub use code::{Code, best_lengths, coded_bits, least_bits, quick_lengths};
pub use decoder::Decoder;
pub use group::{decode_group, encode_group, group_bits, stream_ranges};
pub use lengths::code_lengths;
pub use stage::decode_group as decode_group_alone;

/// The longest code that the format allows.
pub const MAX_LENGTH: u8 = 11;

/// Groups of at least this many symbols are cut into four streams.
pub const FOUR_STREAMS_FROM: usize = 1024;
