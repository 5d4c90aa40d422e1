//! Statistics of the buckets, and the quantizer made from the promoted ones: entry -> symbol and reconstruction.

use crate::bound::Bound;
use crate::delta::{Bucket, Domain, Summation};
use crate::float::Element;
use crate::kernels::FastTable;

/// Buckets that there is room for at once; a chunk rarely has more.
const USUAL_BUCKETS: usize = 32;

thread_local! {
    /// By index of a bucket: its place among those found so far, from 1 on; all 0 between chunks.
    static PLACES: std::cell::RefCell<Vec<u16>> = std::cell::RefCell::default();
}

/// What is known of one bucket.
#[derive(Debug, Clone)]
pub struct BucketStatistics<E: Element, D: Domain<E>> {
    pub count: u64,
    pub least: D::Delta,
    pub greatest: D::Delta,
    sum: D::Sum,
}

/// The non-empty buckets of a tensor, or of a chunk.
#[derive(Debug, Clone)]
pub struct Statistics<E: Element, D: Domain<E>> {
    /// Rising by [`Bucket::index`].
    pub buckets: Vec<(Bucket, BucketStatistics<E, D>)>,
    pub entries: u64,
}

impl<E: Element, D: Domain<E>> Default for Statistics<E, D> {
    fn default() -> Self {
        Statistics { buckets: Vec::new(), entries: 0 }
    }
}

/// Where the base of an entry comes from while nothing is written.
#[derive(Debug, Clone, Copy)]
pub enum Against<'a, E> {
    Zero,
    Base(&'a [E]),
}

impl<E: Element> Against<'_, E> {
    #[inline(always)]
    pub fn at(&self, i: usize) -> E {
        match self {
            Against::Zero => E::ZERO,
            Against::Base(base) => base[i],
        }
    }
}

impl<E: Element, D: Domain<E>> Statistics<E, D> {
    /// The statistics of one chunk.
    pub fn of_chunk(domain: D, target: &[E], base: Against<'_, E>) -> Self {
        let mut buckets: Vec<(Bucket, BucketStatistics<E, D>)> = Vec::with_capacity(USUAL_BUCKETS);
        PLACES.with_borrow_mut(|places| {
            places.resize(places.len().max(D::BUCKETS), 0);
            for (i, &t) in target.iter().enumerate() {
                let b = base.at(i);
                if t.bits() == b.bits() {
                    continue;
                }
                let Some(delta) = domain.delta(t, b).filter(|_| t.finite()) else {
                    continue;
                };
                if let Some(bucket) = domain.bucket(delta) {
                    let place = &mut places[bucket.index()];
                    if *place == 0 {
                        buckets.push((bucket, BucketStatistics::of_extremes(0, delta, delta)));
                        *place = buckets.len() as u16;
                    }
                    buckets[usize::from(*place) - 1].1.include(i, delta);
                }
            }
            buckets.iter().for_each(|(bucket, _)| places[bucket.index()] = 0);
        });
        buckets.iter_mut().for_each(|(_, statistics)| statistics.sum.close_chunk());
        buckets.sort_unstable_by_key(|(bucket, _)| bucket.index());
        Statistics { buckets, entries: target.len() as u64 }
    }

    /// Adds the statistics of the chunk that follows.
    pub fn append(&mut self, next: Self) {
        self.entries += next.entries;
        if self.buckets.is_empty() {
            self.buckets = next.buckets;
            return;
        }
        for (bucket, statistics) in next.buckets {
            match self.buckets.binary_search_by_key(&bucket.index(), |(b, _)| b.index()) {
                Ok(at) => self.buckets[at].1.append(&statistics),
                Err(at) => self.buckets.insert(at, (bucket, statistics)),
            }
        }
    }
}

impl<E: Element, D: Domain<E>> BucketStatistics<E, D> {
    /// Without the sum: a mean cannot be told.
    pub fn of_extremes(count: u64, least: D::Delta, greatest: D::Delta) -> Self {
        BucketStatistics { count, least, greatest, sum: D::Sum::default() }
    }

    #[inline(always)]
    fn include(&mut self, i: usize, delta: D::Delta) {
        self.count += 1;
        self.sum.add(i, delta);
        if delta < self.least {
            self.least = delta;
        }
        if delta > self.greatest {
            self.greatest = delta;
        }
    }

    fn append(&mut self, next: &Self) {
        self.count += next.count;
        self.sum.append(&next.sum);
        if next.least < self.least {
            self.least = next.least;
        }
        if next.greatest > self.greatest {
            self.greatest = next.greatest;
        }
    }

    pub fn midrange(&self) -> D::Delta {
        D::new().midrange(self.least, self.greatest)
    }

    /// The mean; the midrange where the sum has overflowed.
    pub fn mean(&self) -> D::Delta {
        self.sum.mean(self.count).unwrap_or_else(|| self.midrange())
    }
}

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
