//! Tables in the shape that fast loops want, and where those loops do not apply.
//!
//! A fast loop takes a table from here, does whole groups of entries, and hands what is unusual back to the plain loop.

use crate::delta::Bucket;

/// Entries that fast loops work on together: two stripes of a content sum of f32.
pub const GROUP: usize = 32;

/// Symbols by exponent and sign, for buckets within 15 exponents.
#[derive(Debug, Clone, PartialEq)]
pub struct SymbolTable<R> {
    /// The largest promoted exponent, as a field of an f32. Entries above it are unusual.
    pub top: u8,
    /// Symbols of positive and of negative deltas with exponent field `top - i`; the last is 0, for all below.
    pub positive: [u8; 16],
    pub negative: [u8; 16],
    /// By symbol; the value for symbol 0 changes nothing when added.
    pub representatives: [R; 16],
}

/// f32 values; the representative of 0 is -0.0.
pub type ValueTable = SymbolTable<f32>;

/// f32 on ordered bits, from +0.0 up; representatives are below 2^30 in size.
pub type OrderedTable = SymbolTable<i32>;

/// A table for the fast loops, of the domain that it is for.
#[derive(Debug, Clone, PartialEq)]
pub enum FastTable {
    Value(ValueTable),
    Ordered(OrderedTable),
}

/// What is added to the entries of each symbol, in the fast loops of a domain.
#[derive(Debug, Clone, PartialEq)]
pub enum Steps {
    Value([f32; 16]),
    Ordered([i32; 16]),
}

/// By symbol; `none` for those without.
fn by_symbol<R: Copy>(representatives: impl Iterator<Item = R>, none: R) -> [R; 16] {
    let mut steps = [none; 16];
    steps[1..].iter_mut().zip(representatives).for_each(|(step, representative)| *step = representative);
    steps
}

impl Steps {
    pub fn of_values(representatives: impl Iterator<Item = f32>) -> Self {
        Steps::Value(by_symbol(representatives, -0.0))
    }

    /// `None` where one is not below 2^30 in size.
    pub fn of_integers(representatives: impl Iterator<Item = i128>) -> Option<Self> {
        let steps = by_symbol(representatives, 0);
        let small = steps.iter().all(|step| step.unsigned_abs() < 1 << 30);
        small.then(|| Steps::Ordered(steps.map(|step| step as i32)))
    }
}

impl<R: Copy> SymbolTable<R> {
    /// `None` where the buckets do not fit, or there are none. `kept` and `representatives` are in the order of the symbols; `field` makes an
    /// exponent of the domain one of an f32.
    fn new(
        kept: &[Bucket],
        field: impl Fn(u16) -> u16,
        representatives: impl Iterator<Item = R>,
        none: R,
    ) -> Option<Self> {
        let top = kept.iter().map(|bucket| field(bucket.exponent)).max()?;
        // Below, a delta of zero would seem to have a bucket.
        if !(15..255).contains(&top) {
            return None;
        }
        let mut table =
            SymbolTable { top: top as u8, positive: [0; 16], negative: [0; 16], representatives: [none; 16] };
        for ((symbol, bucket), representative) in (1u8..).zip(kept).zip(representatives) {
            let below = usize::from(top - field(bucket.exponent));
            let signed = if bucket.negative { &mut table.negative } else { &mut table.positive };
            *signed.get_mut(below).filter(|_| below < 15)? = symbol;
            table.representatives[usize::from(symbol)] = representative;
        }
        Some(table)
    }
}

impl<R> SymbolTable<R> {
    /// Symbols by cell: the low four bits of an exponent of `top` or up to 15 less, and 16 more for negative deltas.
    pub fn symbols_by_cell(&self, top: u32) -> [u8; 32] {
        let mut symbols = [0; 32];
        for below in 0..16 {
            let cell = (top.wrapping_sub(below) & 15) as usize;
            // Less than 16: what is looked up with it is in the table.
            symbols[cell] = self.positive[below as usize] & 15;
            symbols[16 + cell] = self.negative[below as usize] & 15;
        }
        symbols
    }
}

impl ValueTable {
    /// `None` where the buckets do not fit.
    pub fn of_values(kept: &[Bucket], representatives: impl Iterator<Item = f32>) -> Option<Self> {
        SymbolTable::new(kept, |exponent| exponent, representatives, -0.0)
    }
}

/// Bit lengths of integers whose float has the exponent field 126 more; those above leave 30 bits.
const LONGEST: u16 = 29;

impl OrderedTable {
    /// `None` where the buckets do not fit.
    pub fn of_integers(kept: &[Bucket], representatives: impl Iterator<Item = i32>) -> Option<Self> {
        let fits = kept.iter().all(|bucket| bucket.exponent <= LONGEST);
        fits.then(|| SymbolTable::new(kept, |length| length + 126, representatives, 0))?
    }
}

/// A Huffman code of at most 7 bits over at most 16 symbols: codewords (bit-reversed, as they stand in a stream) and lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShortCode {
    pub words: [u8; 16],
    pub lengths: [u8; 16],
}

impl ShortCode {
    pub const SYMBOLS: usize = 16;
    pub const LONGEST: u8 = 7;

    /// `None` where the code is too long or too large.
    pub fn new(words: &[u16], lengths: &[u8]) -> Option<Self> {
        if lengths.len() > Self::SYMBOLS || lengths.iter().any(|length| *length > Self::LONGEST) {
            return None;
        }
        let mut code = ShortCode { words: [0; 16], lengths: [0; 16] };
        for (symbol, (&word, &length)) in words.iter().zip(lengths).enumerate() {
            (code.words[symbol], code.lengths[symbol]) = (word as u8, length);
        }
        Some(code)
    }
}

/// A Huffman code of at most 11 bits over bytes. By symbol: the lower 8 bits of its codeword (bit-reversed, as it stands in a
/// stream); the upper 3 bits and, from bit 3 on, the length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByteCode {
    low: [u8; 256],
    high: [u8; 256],
    /// No symbol from here on has a codeword.
    symbols: usize,
}

impl ByteCode {
    pub const LONGEST: u8 = 11;

    /// Panics where a length is above [`ByteCode::LONGEST`]: what writes codes relies on it.
    pub fn new(words: &[u16], lengths: &[u8]) -> Self {
        assert!(lengths.iter().all(|length| *length <= Self::LONGEST));
        let mut code = ByteCode { low: [0; 256], high: [0; 256], symbols: words.len() };
        for (symbol, (&word, &length)) in words.iter().zip(lengths).enumerate() {
            code.low[symbol] = word as u8;
            code.high[symbol] = (word >> 8) as u8 & 7 | length << 3;
        }
        code
    }

    pub fn low(&self) -> &[u8; 256] {
        &self.low
    }

    pub fn high(&self) -> &[u8; 256] {
        &self.high
    }

    pub fn symbols(&self) -> usize {
        self.symbols
    }
}

/// Runs from here on are noted apart: where places are kept modulo 256, none of 255 or more can be told. Within a group of 64 there is
/// no such run.
pub const FAR_FROM: usize = 192;

/// The symbols that are not 0, found group by group: how many, and those with many zeros before them.
#[derive(Debug, Default)]
pub struct Found {
    pub count: usize,
    /// Where the zeros before the next one start.
    pub after: usize,
    /// Number and run of every symbol with at least [`FAR_FROM`] zeros before it.
    pub far: Vec<(u32, u32)>,
}

impl Found {
    pub fn restart(&mut self) {
        (self.count, self.after) = (0, 0);
        self.far.clear();
    }

    /// Adds the marks (not 0) of group `number` of 64 symbols: no two of them are far from each other.
    #[inline(always)]
    pub fn add(&mut self, number: usize, marks: u64) {
        self.note(64 * number + marks.trailing_zeros() as usize);
        self.after = 64 * number + 64 - marks.leading_zeros() as usize;
        self.count += marks.count_ones() as usize;
    }

    /// Adds one symbol.
    pub fn add_one(&mut self, place: usize) {
        self.note(place);
        (self.after, self.count) = (place + 1, self.count + 1);
    }

    #[inline(always)]
    fn note(&mut self, place: usize) {
        let run = place - self.after;
        if run >= FAR_FROM {
            self.far.push((self.count as u32, run as u32));
        }
    }
}

/// Bits on their way to a buffer: fewer than 8 between calls.
#[derive(Debug, Default, Clone, Copy)]
pub struct Pending {
    pub bits: u64,
    pub count: u32,
}
