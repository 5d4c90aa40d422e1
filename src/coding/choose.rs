//! The choice of a coding: the one with the fewest bits, tables included.

use super::histogram::{FINEST_RHO, Histogram};
use super::tables::{FIRST_LENGTH_BITS, packed_bits};
use super::{Coding, Tokens};
use crate::huffman::{Code, group_bits};

/// Which codings may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodingChoice {
    /// The cheapest.
    Cheapest,
    /// A codeword for each symbol, as in the paper (or constant, where one symbol is used).
    Plain,
    /// One of the others, for comparison (constant where one symbol is used; plain where it cannot be).
    Mask,
    Tokens,
    Fixed,
}

/// Tensors with so many elements are large: a coding that is quicker than tokens may take more bits, by this part.
const LARGE: u64 = 1 << 18;
const QUICKER_WORTH: u64 = 100;

/// Bits of a record's raw fields in all chunks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FieldBits {
    /// Of elements with symbol 0, in the codings that do not pass over them.
    pub of_zeros: u64,
    /// Of the others: these are the same in every coding.
    pub of_others: u64,
}

/// A coding and what it is expected to take, in bits: its tables and its symbols in all chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub coding: Coding,
    pub bits: u64,
}

impl Coding {
    /// The cheapest coding for symbols with these counts, or a quicker one that makes the record little larger. `highest`: K.
    pub fn choose(counts: &Histogram, highest: u8, fields: FieldBits, choice: CodingChoice) -> Candidate {
        let used = counts.symbols.iter().filter(|count| **count > 0).count();
        if used <= 1 {
            let symbol = counts.symbols.iter().position(|count| *count > 0).unwrap_or(0);
            return Candidate { coding: Coding::Constant(symbol as u8), bits: 8 + fields.of_zeros };
        }
        let wanted = |candidate: &Candidate| match choice {
            CodingChoice::Cheapest | CodingChoice::Plain => true,
            CodingChoice::Mask => matches!(candidate.coding, Coding::Mask { .. }),
            CodingChoice::Tokens => matches!(candidate.coding, Coding::Tokens(_)),
            CodingChoice::Fixed => matches!(candidate.coding, Coding::Fixed(_)),
        };
        if choice == CodingChoice::Plain {
            return plain(counts, highest, Code::of_counts);
        }
        let candidates: Vec<Candidate> = all(counts, highest, fields).into_iter().filter(wanted).collect();
        let Some(best) = candidates.iter().min_by_key(|candidate| candidate.bits) else {
            return plain(counts, highest, Code::of_counts);
        };
        let fast = |candidate: &&Candidate| {
            let (bits, slack) = (candidate.bits, (best.bits + fields.of_others) / QUICKER_WORTH);
            counts.elements >= LARGE && !matches!(candidate.coding, Coding::Tokens(_)) && bits <= best.bits + slack
        };
        candidates.iter().find(fast).unwrap_or(best).clone()
    }
}

/// Every coding that more than one symbol can have, plain first.
pub fn all(counts: &Histogram, highest: u8, fields: FieldBits) -> Vec<Candidate> {
    let quick = |of: &[u64]| Code::quick_of_counts(of, fields.of_others);
    let mut all = vec![plain(counts, highest, quick), fixed(counts, highest)];
    all.iter_mut().for_each(|candidate| candidate.bits += fields.of_zeros);
    all.push(mask(counts, highest, quick));
    all.extend((0..=FINEST_RHO).filter_map(|rho| tokens(counts, highest, rho)));
    all
}

fn plain(counts: &Histogram, highest: u8, code_of: impl Fn(&[u64]) -> Code) -> Candidate {
    let counts_of = &counts.symbols[..=usize::from(highest)];
    let code = code_of(counts_of);
    let bits = 4 * counts_of.len() as u64 + group_bits(counts.elements as usize, code.bits(counts_of));
    Candidate { coding: Coding::Plain(code), bits }
}

fn fixed(counts: &Histogram, highest: u8) -> Candidate {
    let width = 8 - highest.leading_zeros();
    Candidate { coding: Coding::Fixed(width), bits: counts.elements * u64::from(width) }
}

fn mask(counts: &Histogram, highest: u8, code_of: impl Fn(&[u64]) -> Code) -> Candidate {
    let masks = Code::of_counts(&counts.masks);
    let units = counts.elements.div_ceil(8) as usize;
    let mut bits = 4 * 256 + group_bits(units, masks.bits(&counts.masks));
    let mut symbols = None;
    if highest > 1 {
        let counts_of = &counts.symbols[1..=usize::from(highest)];
        let code = code_of(counts_of);
        bits += 4 * u64::from(highest) + group_bits(counts.marked() as usize, code.bits(counts_of));
        symbols = Some(code);
    }
    Candidate { coding: Coding::Mask { masks, symbols }, bits }
}

/// `None` where the tokens would not fit in a byte.
fn tokens(counts: &Histogram, highest: u8, rho: u32) -> Option<Candidate> {
    let (mut tokens, run_bits) = counts.tokens(rho, highest);
    if tokens.len() < 2 {
        tokens.resize(2 * usize::from(highest), 0);
    }
    if tokens.len() > 256 {
        return None;
    }
    let code = Code::of_counts(&tokens);
    let table = 16 + packed_bits(code.lengths(), usize::from(highest), FIRST_LENGTH_BITS);
    let count = counts.marked() as usize;
    let bits = table + 16 + run_bits + group_bits(count, code.bits(&tokens));
    Some(Candidate { coding: Coding::Tokens(Tokens { rho, highest, code }), bits })
}
