//! How the symbols of a record's chunks are written: six codings, one choice (format.md, section 6).
//!
//! [`Histogram`] counts what each coding would have to write; [`Coding::choose`] takes the cheapest;
//! [`Coding::encode`] and [`Decoding::decode`] write and read one chunk.

mod choose;
mod fields;
mod histogram;
mod mask;
mod packed;
mod pairs;
mod stage;
mod tables;
pub(crate) mod tokens;

pub use choose::{Candidate, CodingChoice, FieldBits, LARGE_FROM};
pub use fields::{FieldReader, Fields};
pub use histogram::Histogram;
pub use packed::{pack, unpack};
pub use pairs::Pairs;
pub use stage::CodingStage;

use crate::bits::{BitReader, BitWriter};
use crate::error::Parsed;
use crate::huffman::{Code, Decoder, decode_group, encode_group};
use crate::kernels::Found;
use crate::simd::ahead::{Ahead, LINE};
use crate::simd::highest_of;
use crate::sink::Sink;
use crate::wire::Reader;

/// The coding of a record's symbols, with its tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coding {
    /// Every element has this symbol.
    Constant(u8),
    /// A codeword for each symbol.
    Plain(Code),
    /// Codewords for bytes of non-zero marks, then for the non-zero symbols less one (none if there is one such symbol).
    Mask { masks: Code, symbols: Option<Code> },
    /// Codewords for (zeros before, symbol).
    Tokens(Tokens),
    /// Symbols as integers of this many bits.
    Fixed(u32),
    /// Codewords for two symbols each.
    Pairs(Pairs),
}

/// The token code of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// Runs below 2^rho have a class of their own; longer ones share one an octave.
    pub rho: u32,
    /// The highest symbol, K.
    pub highest: u8,
    /// Token = class * K + symbol - 1.
    pub code: Code,
}

/// Buffers that coding a chunk needs, kept from chunk to chunk.
#[derive(Default)]
pub struct Scratch {
    pub(crate) units: Vec<u8>,
    pub(crate) marked: Vec<u8>,
    pub(crate) streams: Vec<u8>,
    pub(crate) runs: Fields,
    pub(crate) marks: Vec<u64>,
    pub(crate) places: Vec<u8>,
    pub(crate) near: Vec<u8>,
    pub(crate) found: Found,
    pub(crate) gaps: Vec<u16>,
    pub(crate) read: tokens::RunFields,
    /// Whether there was something to code that the plan did not foresee: the tensor has changed since.
    pub(crate) unfit: bool,
    /// What is needed after the symbols.
    pub(crate) ahead: Ahead,
}

impl Coding {
    /// The number that stands for the coding in a record header.
    pub fn number(&self) -> u8 {
        match self {
            Coding::Constant(_) => 0,
            Coding::Plain(_) => 1,
            Coding::Mask { .. } => 2,
            Coding::Tokens(_) => 3,
            Coding::Fixed(_) => 4,
            Coding::Pairs(_) => 5,
        }
    }

    /// The coding's name in messages and statistics.
    pub fn name(&self) -> &'static str {
        ["constant", "plain", "mask", "tokens", "fixed", "pairs"][usize::from(self.number())]
    }

    /// The code lengths of symbols 0, 1 .. in the plain coding.
    pub fn plain_lengths(&self) -> Option<&[u8]> {
        if let Coding::Plain(code) = self { Some(code.lengths()) } else { None }
    }

    /// Whether elements with symbol 0 are passed over, and so have no field in a record of exponent classes.
    pub fn skips_zeros(&self) -> bool {
        matches!(self, Coding::Mask { .. } | Coding::Tokens(_))
    }

    /// Appends the symbols of a chunk, run fields included.
    pub fn encode(&self, symbols: &[u8], scratch: &mut Scratch, out: &mut dyn Sink) {
        match self {
            Coding::Constant(constant) => scratch.unfit |= symbols.iter().any(|symbol| symbol != constant),
            Coding::Plain(code) => scratch.unfit |= !encode_group(symbols, code, &mut scratch.streams, out),
            Coding::Mask { masks, symbols: code } => mask::encode(symbols, masks, code.as_ref(), scratch, out),
            Coding::Tokens(tokens) => tokens::encode(symbols, tokens, scratch, out),
            Coding::Pairs(pairs) => pairs::encode(symbols, pairs, scratch, out),
            Coding::Fixed(width) => {
                scratch.unfit |= highest_of(symbols) >> width != 0;
                let mut writer = BitWriter::new(out);
                symbols.iter().for_each(|&symbol| writer.put(u64::from(symbol), *width));
                writer.finish();
            }
        }
    }
}

/// Entries of f32 in a line of cache.
const ENTRIES_OF_A_LINE: usize = LINE / 4;

/// A [`Coding`] made ready to read chunks.
pub struct Decoding {
    coding: Coding,
    highest: u8,
    tables: Tables,
}

/// What decodes each coding.
enum Tables {
    Constant(u8),
    Fixed(u32),
    Plain(Decoder),
    Mask(Decoder, Option<Decoder>),
    Tokens(Decoder, tokens::Meanings),
    Pairs(Decoder<2>),
}

impl Decoding {
    /// `highest`: K.
    pub fn new(coding: Coding, highest: u8) -> Self {
        let tables = match &coding {
            Coding::Constant(symbol) => Tables::Constant(*symbol),
            Coding::Fixed(width) => Tables::Fixed(*width),
            Coding::Plain(code) => Tables::Plain(Decoder::new(code)),
            Coding::Mask { masks, symbols } => Tables::Mask(Decoder::new(masks), symbols.as_ref().map(Decoder::new)),
            Coding::Tokens(tokens) => Tables::Tokens(Decoder::new(&tokens.code), tokens::Meanings::new(tokens)),
            Coding::Pairs(pairs) => Tables::Pairs(Decoder::of_meanings(&pairs.code, pairs.meanings())),
        };
        Decoding { coding, highest, tables }
    }

    pub fn coding(&self) -> &Coding {
        &self.coding
    }

    /// Reads the symbols of a chunk, and the run fields after them. Every symbol is at most K.
    pub fn decode(&self, input: &mut Reader<'_>, symbols: &mut [u8], scratch: &mut Scratch) -> Parsed<()> {
        match &self.tables {
            Tables::Plain(decoder) => decode_group(input, decoder, symbols, &mut scratch.ahead),
            Tables::Mask(masks, marked) => mask::decode(input, masks, marked.as_ref(), symbols, scratch),
            Tables::Tokens(decoder, meanings) => tokens::decode(input, decoder, meanings, symbols, scratch),
            Tables::Pairs(decoder) => decode_group(input, decoder, symbols, &mut scratch.ahead),
            Tables::Fixed(width) => self.decode_fixed(input, *width, symbols),
            Tables::Constant(symbol) => {
                symbols.fill(*symbol);
                Ok(())
            }
        }
    }

    /// Reads a chunk of so many elements as runs of symbol 0 and the symbols after each, if it is in token coding and these are at
    /// most `most`; otherwise `None`, and nothing has been read.
    pub fn read_few<'s>(
        &self,
        input: &mut Reader<'_>,
        elements: usize,
        most: usize,
        scratch: &'s mut Scratch,
    ) -> Parsed<Option<(&'s [u16], &'s [u8])>> {
        let Tables::Tokens(decoder, meanings) = &self.tables else { return Ok(None) };
        let count = input.clone().count()?;
        if elements > tokens::MOST_PLACES || count > most {
            return Ok(None);
        }
        if count < elements / ENTRIES_OF_A_LINE {
            // Most lines are not touched.
            scratch.ahead = Ahead::default();
        }
        tokens::read(input, decoder, meanings, elements, scratch)?;
        tokens::apart(input, count, elements, scratch).map(Some)
    }

    fn decode_fixed(&self, input: &mut Reader<'_>, width: u32, symbols: &mut [u8]) -> Parsed<()> {
        let start = input.position();
        let bytes = input.slice((symbols.len() * width as usize).div_ceil(8))?;
        let mut reader = BitReader::new(bytes);
        for slot in symbols {
            *slot = reader.get(width)? as u8;
            if *slot > self.highest {
                return Err(input.flaw("a symbol above the highest"));
            }
        }
        reader.finish().map_err(|flaw| flaw.shifted(start))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
