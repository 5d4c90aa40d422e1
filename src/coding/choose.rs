//! The choice of a coding: the one with the fewest bits, tables included.

use super::histogram::{FINEST_RHO, Histogram};
use super::tables::{FIRST_LENGTH_BITS, least_packed_bits, packed_bits};
use super::{Coding, Pairs, Tokens};
use crate::huffman::{Code, MAX_LENGTH, best_lengths, coded_bits, group_bits, least_bits, quick_lengths};

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
    Pairs,
}

/// Tensors with so many elements are large: pairs, with their larger table, are counted, and a quicker coding may take more bits.
pub const LARGE_FROM: u64 = 1 << 18;

/// By this part: one bit in so many.
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
        let wanted = |draft: &Draft| match choice {
            CodingChoice::Cheapest | CodingChoice::Plain => true,
            CodingChoice::Mask => matches!(draft.form, Form::Mask { .. }),
            CodingChoice::Tokens => matches!(draft.form, Form::Tokens { .. }),
            CodingChoice::Fixed => matches!(draft.form, Form::Fixed(_)),
            CodingChoice::Pairs => matches!(draft.form, Form::Pairs { .. }),
        };
        let optimal_plain = || plain(counts, highest, |of| best_lengths(of, MAX_LENGTH)).candidate();
        if choice == CodingChoice::Plain {
            return optimal_plain();
        }
        let all = choice != CodingChoice::Cheapest || counts.elements >= LARGE_FROM;
        let drafts: Vec<Draft> = drafts(counts, highest, fields, all).into_iter().filter(wanted).collect();
        let Some(best) = drafts.iter().map(|draft| draft.bits).min() else { return optimal_plain() };
        let fast = |draft: &Draft| {
            let slack = (best + fields.of_others) / QUICKER_WORTH;
            counts.elements >= LARGE_FROM && !matches!(draft.form, Form::Tokens { .. }) && draft.bits <= best + slack
        };
        let chosen = drafts.iter().position(fast).or(drafts.iter().position(|draft| draft.bits == best));
        drafts.into_iter().nth(chosen.unwrap_or(0)).map_or_else(optimal_plain, Draft::candidate)
    }
}

/// A coding before its code is made, of which most are not chosen.
struct Draft {
    form: Form,
    bits: u64,
}

/// A coding with code lengths in place of codes.
enum Form {
    Plain(Vec<u8>),
    Mask { masks: Vec<u8>, symbols: Option<Vec<u8>> },
    Tokens { rho: u32, highest: u8, lengths: Vec<u8> },
    Fixed(u32),
    Pairs { highest: u8, lengths: Vec<u8> },
}

impl Draft {
    fn candidate(self) -> Candidate {
        let code = |lengths: Vec<u8>| Code::of_lengths(&lengths).expect("package-merge gives complete codes");
        let coding = match self.form {
            Form::Plain(lengths) => Coding::Plain(code(lengths)),
            Form::Mask { masks, symbols } => Coding::Mask { masks: code(masks), symbols: symbols.map(code) },
            Form::Tokens { rho, highest, lengths } => Coding::Tokens(Tokens { rho, highest, code: code(lengths) }),
            Form::Fixed(width) => Coding::Fixed(width),
            Form::Pairs { highest, lengths } => Coding::Pairs(Pairs { highest, code: code(lengths) }),
        };
        Candidate { coding, bits: self.bits }
    }
}

/// Every coding that more than one symbol can have, plain first.
#[cfg(test)]
pub fn all(counts: &Histogram, highest: u8, fields: FieldBits) -> Vec<Candidate> {
    drafts(counts, highest, fields, true).into_iter().map(Draft::candidate).collect()
}

/// `all`: also those that cannot take less than one before them.
fn drafts(counts: &Histogram, highest: u8, fields: FieldBits, all: bool) -> Vec<Draft> {
    let quick = |of: &[u64]| quick_lengths(of, fields.of_others);
    let mut drafts = vec![plain(counts, highest, quick), fixed(counts, highest)];
    drafts.extend(pairs(counts, highest));
    drafts.iter_mut().for_each(|draft| draft.bits += fields.of_zeros);
    let below = |drafts: &[Draft]| {
        let best = drafts.iter().map(|draft| draft.bits).min();
        best.filter(|_| !all).unwrap_or(u64::MAX)
    };
    drafts.extend(mask(counts, highest, quick, below(&drafts)));
    // With rho = 1 the classes are those of rho = 0.
    let mut room = Vec::with_capacity(256);
    for rho in [0, 2, 3, FINEST_RHO] {
        drafts.extend(tokens(counts, highest, rho, below(&drafts), &mut room));
    }
    drafts
}

fn plain(counts: &Histogram, highest: u8, lengths_of: impl Fn(&[u64]) -> Vec<u8>) -> Draft {
    let counts_of = &counts.symbols[..=usize::from(highest)];
    let lengths = lengths_of(counts_of);
    let bits = 4 * counts_of.len() as u64 + group_bits(counts.elements as usize, coded_bits(counts_of, &lengths));
    Draft { form: Form::Plain(lengths), bits }
}

fn fixed(counts: &Histogram, highest: u8) -> Draft {
    let width = 8 - highest.leading_zeros();
    Draft { form: Form::Fixed(width), bits: counts.elements * u64::from(width) }
}

/// `None` where pairs have not been counted.
fn pairs(counts: &Histogram, highest: u8) -> Option<Draft> {
    let rows = counts.pairs.chunks(16).take(usize::from(highest) + 1);
    let counts_of: Vec<u64> = rows.flat_map(|row| &row[..=usize::from(highest)]).copied().collect();
    if counts_of.is_empty() {
        return None;
    }
    let lengths = best_lengths(&counts_of, MAX_LENGTH);
    let units = counts.elements.div_ceil(2) as usize;
    let bits = 4 * counts_of.len() as u64 + group_bits(units, coded_bits(&counts_of, &lengths));
    Some(Draft { form: Form::Pairs { highest, lengths }, bits })
}

/// `None` where it takes `below` bits at least.
fn mask(counts: &Histogram, highest: u8, lengths_of: impl Fn(&[u64]) -> Vec<u8>, below: u64) -> Option<Draft> {
    let units = counts.elements.div_ceil(8) as usize;
    let of_symbols = if highest > 1 { 4 * u64::from(highest) + counts.marked() } else { 0 };
    // A codeword has one bit or more.
    let least = 4 * 256 + of_symbols;
    if least + units as u64 >= below || least + group_bits(units, least_bits(&counts.masks)) >= below {
        return None;
    }
    let masks = best_lengths(&counts.masks, MAX_LENGTH);
    let mut bits = 4 * 256 + group_bits(units, coded_bits(&counts.masks, &masks));
    let mut symbols = None;
    if highest > 1 {
        let counts_of = &counts.symbols[1..=usize::from(highest)];
        let lengths = lengths_of(counts_of);
        bits += 4 * u64::from(highest) + group_bits(counts.marked() as usize, coded_bits(counts_of, &lengths));
        symbols = Some(lengths);
    }
    Some(Draft { form: Form::Mask { masks, symbols }, bits })
}

/// `None` where the tokens would not fit in a byte, or take `below` bits at least. `tokens`: memory that may be used.
fn tokens(counts: &Histogram, highest: u8, rho: u32, below: u64, tokens: &mut Vec<u64>) -> Option<Draft> {
    let run_bits = counts.tokens(rho, highest, tokens);
    if tokens.len() < 2 {
        tokens.resize(2 * usize::from(highest), 0);
    }
    let (row, count) = (usize::from(highest), counts.marked() as usize);
    if tokens.len() > 256 {
        return None;
    }
    let beside = 32 + run_bits;
    let least = beside + least_packed_bits(tokens, row, FIRST_LENGTH_BITS);
    if least + group_bits(count, least_bits(tokens)) >= below {
        return None;
    }
    let lengths = best_lengths(tokens, MAX_LENGTH);
    let bits = beside + packed_bits(&lengths, row, FIRST_LENGTH_BITS) + group_bits(count, coded_bits(tokens, &lengths));
    Some(Draft { form: Form::Tokens { rho, highest, lengths }, bits })
}
