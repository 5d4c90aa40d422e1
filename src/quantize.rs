//! The quantizer made from the promoted buckets: entry -> symbol and reconstruction.

use crate::bound::Bound;
use crate::delta::{Bucket, Domain};
use crate::float::Element;
use crate::kernels::FastTable;

/// What stands for symbols 1, 2 ..: representatives, or buckets whose entries carry refinement bits.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantizer<E: Element, D: Domain<E>> {
    domain: D,
    /// Refinement bits r.
    refinement: u32,
    buckets: Vec<Bucket>,
    representatives: Vec<D::Delta>,
}

/// A quantizer with the table that finds an entry's symbol.
#[derive(Debug, Clone)]
pub struct Encoding<E: Element, D: Domain<E>> {
    pub quantizer: Quantizer<E, D>,
    symbols: Vec<u8>,
    /// Entries with this or a larger exponent are exceptions: all that changed, where nothing is promoted.
    unpromoted_from: u16,
    /// What reconstructions keep to: entries that would not are exceptions.
    bound: Option<Bound>,
    /// For the fast loops over f32.
    pub fast_table: Option<FastTable>,
}

/// What an entry becomes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Coded<E> {
    /// Symbol 0: the base's bits stay.
    Kept,
    /// A symbol, its refinement field, and the reconstruction.
    Symbol { symbol: u8, field: u64, element: E },
    /// Stored exactly, by position.
    Exception,
}

impl<E: Element, D: Domain<E>> Quantizer<E, D> {
    /// With r = 0: symbol s stands for `representatives[s - 1]`.
    pub fn of_representatives(domain: D, representatives: Vec<D::Delta>) -> Self {
        Quantizer { domain, refinement: 0, buckets: Vec::new(), representatives }
    }

    /// With r > 0: symbol s stands for `buckets[s - 1]`.
    pub fn of_buckets(domain: D, refinement: u32, buckets: Vec<Bucket>) -> Self {
        Quantizer { domain, refinement, buckets, representatives: Vec::new() }
    }

    pub fn refinement(&self) -> u32 {
        self.refinement
    }

    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    pub fn representatives(&self) -> &[D::Delta] {
        &self.representatives
    }

    /// Symbols besides 0.
    pub fn symbols(&self) -> u8 {
        self.buckets.len().max(self.representatives.len()) as u8
    }

    /// Width of the refinement field of an entry with `symbol` (not 0).
    #[inline(always)]
    pub fn field_width(&self, symbol: u8) -> u32 {
        if self.refinement == 0 {
            return 0;
        }
        self.domain.field_width(self.buckets[usize::from(symbol) - 1], self.refinement)
    }

    /// The reconstruction of an entry with `symbol` (not 0).
    #[inline(always)]
    pub fn element(&self, base: E, symbol: u8, field: u64) -> E {
        let at = usize::from(symbol) - 1;
        let delta = if self.refinement == 0 {
            self.representatives[at]
        } else {
            self.domain.cell(self.buckets[at], self.refinement, field)
        };
        self.domain.apply(base, delta)
    }
}

impl<E: Element, D: Domain<E>> Encoding<E, D> {
    /// `kept`: the promoted buckets in the order of their symbols.
    pub fn new(quantizer: Quantizer<E, D>, kept: &[Bucket]) -> Self {
        let mut symbols = vec![0; D::BUCKETS];
        for (at, bucket) in kept.iter().enumerate() {
            symbols[bucket.index()] = at as u8 + 1;
        }
        let fast_table = quantizer.domain.fast_table(kept, &quantizer.representatives);
        let unpromoted_from = kept.iter().map(|bucket| bucket.exponent + 1).max().unwrap_or(0);
        Encoding { quantizer, symbols, unpromoted_from, bound: None, fast_table }
    }

    /// The encoding that promotes nothing, and leaves every finite entry as its base.
    pub fn of_nothing(domain: D) -> Self {
        let quantizer = Quantizer::of_representatives(domain, Vec::new());
        Encoding { unpromoted_from: u16::MAX, ..Encoding::new(quantizer, &[]) }
    }

    /// The same with a bound. The fast loops do not look at it.
    pub fn within(self, bound: Option<Bound>) -> Self {
        let fast_table = self.fast_table.filter(|_| bound.is_none());
        Encoding { bound, fast_table, ..self }
    }

    #[inline(always)]
    pub fn code(&self, target: E, base: E) -> Coded<E> {
        let coded = self.code_freely(target, base);
        let Some(bound) = self.bound else { return coded };
        let holds = match coded {
            Coded::Kept => target.bits() == base.bits() || bound.holds(target, base),
            Coded::Symbol { element, .. } => bound.holds(target, element),
            Coded::Exception => true,
        };
        if holds { coded } else { Coded::Exception }
    }

    /// Whatever its error is.
    #[inline(always)]
    fn code_freely(&self, target: E, base: E) -> Coded<E> {
        if target.bits() == base.bits() {
            return Coded::Kept;
        }
        let q = &self.quantizer;
        let Some(delta) = q.domain.delta(target, base).filter(|_| target.finite()) else {
            return Coded::Exception;
        };
        let Some(bucket) = q.domain.bucket(delta) else { return Coded::Kept };
        if bucket.exponent >= self.unpromoted_from {
            return Coded::Exception;
        }
        let symbol = self.symbols[bucket.index()];
        if symbol == 0 {
            return Coded::Kept;
        }
        let field = if q.refinement == 0 { 0 } else { q.domain.field(delta, q.refinement) };
        let element = q.element(base, symbol, field);
        if !element.finite() {
            return Coded::Exception;
        }
        Coded::Symbol { symbol, field, element }
    }
}
