//! What is asked of the encoder for one tensor. What was done is in its [`RecordHeader`](crate::header::RecordHeader).

use crate::bound::Bound;
use crate::coding::{CodingChoice, LARGE_FROM};
use crate::error::{Error, Result};
use crate::header::{CHUNK_LOG2, DEFAULT_CHUNK_LOG2};
use crate::promote::{Promotion, Representative};

/// How a tensor is to be coded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spec {
    /// `None`: exactly.
    pub lossy: Option<Lossy>,
    /// Whether a tensor may be stored as a link to an equal one, or to one that it is the rounding of.
    pub links: bool,
    /// Whether its base may be predicted from siblings.
    pub predict: bool,
    /// log2 of the chunk size, 6..=24.
    pub chunk_log2: u8,
}

/// The dials of lossy coding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lossy {
    pub domain: DomainChoice,
    pub promotion: Promotion,
    /// Used instead of `promotion` where [`DomainChoice::Auto`] takes ordered bits.
    pub non_negative: Promotion,
    pub representative: Representative,
    /// Raw refinement bits of each promoted entry, 0..=23.
    pub refinement: u8,
    /// What every entry keeps to: levels and refinement bits are then the fewest that are taken, and what they do not reach is
    /// an exception.
    pub bound: Option<Bound>,
    pub base: BaseChoice,
    pub coding: CodingChoice,
    /// Whether a tensor is coded exactly where its lossy form is not smaller.
    pub exact_fallback: bool,
    /// Tensors with fewer elements are coded exactly.
    pub least_elements: usize,
}

impl Lossy {
    /// As [`Spec::may_pair`]: where a table of pairs is nothing beside the symbols.
    pub fn may_pair(&self, elements: usize) -> bool {
        match self.coding {
            CodingChoice::Cheapest => elements as u64 >= LARGE_FROM,
            choice => choice == CodingChoice::Pairs,
        }
    }
}

/// The domain that deltas are taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainChoice {
    /// Ordered bits where neither target nor base has a sign bit set, else values.
    Auto,
    Value,
    Ordered,
}

/// What deltas are taken against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseChoice {
    /// The previous reconstruction, or zero where that is no worse in bits and in error, and better in one.
    Auto,
    Previous,
}

impl Spec {
    /// Bit for bit.
    pub fn exact() -> Self {
        Spec { lossy: None, links: true, predict: true, chunk_log2: DEFAULT_CHUNK_LOG2 }
    }

    /// The product's rule: `levels` exponents (1..=7), the mean of each bucket.
    pub fn lossy(levels: u8) -> Self {
        let lossy = Lossy {
            domain: DomainChoice::Auto,
            promotion: Promotion::Levels(levels),
            non_negative: Promotion::Levels(levels.min(2.max(levels.saturating_sub(1)))),
            representative: Representative::Mean,
            refinement: 0,
            bound: None,
            base: BaseChoice::Auto,
            coding: CodingChoice::Cheapest,
            exact_fallback: true,
            least_elements: 16,
        };
        Spec { lossy: Some(lossy), links: true, predict: true, chunk_log2: DEFAULT_CHUNK_LOG2 }
    }

    /// The paper's rule: 2^`bits` - 1 buckets, their midrange, a codeword for each symbol.
    pub fn paper(bits: u8) -> Self {
        let lossy = Lossy {
            domain: DomainChoice::Value,
            promotion: Promotion::Buckets { bits },
            non_negative: Promotion::Buckets { bits },
            representative: Representative::Midrange,
            refinement: 0,
            bound: None,
            base: BaseChoice::Previous,
            coding: CodingChoice::Plain,
            exact_fallback: false,
            least_elements: 0,
        };
        Spec { lossy: Some(lossy), links: false, predict: false, chunk_log2: DEFAULT_CHUNK_LOG2 }
    }

    /// Whether a tensor of so many elements may be coded in pairs of symbols.
    pub fn may_pair(&self, elements: usize) -> bool {
        self.lossy.is_some_and(|lossy| lossy.may_pair(elements))
    }

    /// Checks the ranges of all numbers.
    pub fn check(&self) -> Result<()> {
        if !CHUNK_LOG2.contains(&self.chunk_log2) {
            return Err(Error::Request("the chunk size must be 2^6 to 2^24 elements"));
        }
        let Some(lossy) = &self.lossy else { return Ok(()) };
        for promotion in [lossy.promotion, lossy.non_negative] {
            match promotion {
                Promotion::Buckets { bits: 1..=4 } | Promotion::Levels(1..=7) => {}
                Promotion::Buckets { .. } => return Err(Error::Request("bits must be 1 to 4")),
                Promotion::Levels(_) => return Err(Error::Request("levels must be 1 to 7")),
            }
        }
        if lossy.refinement > 23 {
            return Err(Error::Request("refinement bits must be 0 to 23"));
        }
        lossy.bound.map_or(Ok(()), Bound::check)
    }
}
