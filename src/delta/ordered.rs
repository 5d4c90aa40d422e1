//! The domain of ordered bits.

use super::{BLOCK, Bucket, Domain, Summation};
use crate::float::{Element, ElementType, Wide};
use crate::kernels::{FastTable, OrderedTable, Steps};

/// Deltas are differences of ordered bits; the result is clamped to the finite range, or its part from +0.0 up.
#[derive(Debug, Clone, Copy)]
pub struct Ordered<const NON_NEGATIVE: bool>;

impl<E: Element, const NON_NEGATIVE: bool> Domain<E> for Ordered<NON_NEGATIVE> {
    type Delta = E::Wide;
    type Sum = OrderedSum;
    const BUCKETS: usize = 2 * (E::BITS as usize + 2);

    fn new() -> Self {
        Ordered
    }

    #[inline(always)]
    fn delta(self, target: E, base: E) -> Option<E::Wide> {
        // A negative target would be clamped to zero: it is none of this domain's.
        let told = target.finite() && base.finite() && !(NON_NEGATIVE && target.sign());
        told.then(|| E::Wide::difference(target.ordered(), base.ordered()))
    }

    #[inline(always)]
    fn size(delta: E::Wide) -> f64 {
        delta.to_f64()
    }

    #[inline(always)]
    fn bucket(self, delta: E::Wide) -> Option<Bucket> {
        let zero = E::Wide::of_i128(0);
        (delta != zero).then(|| Bucket { exponent: delta.bit_length() as u16, negative: delta < zero })
    }

    #[inline(always)]
    fn apply(self, base: E, delta: E::Wide) -> E {
        let lowest = if NON_NEGATIVE { 0 } else { -1 - E::LARGEST };
        E::of_ordered(delta.add_to(base.ordered(), lowest, E::LARGEST))
    }

    #[inline(always)]
    fn field_width(self, bucket: Bucket, r: u32) -> u32 {
        r.min(u32::from(bucket.exponent) - 1)
    }

    #[inline(always)]
    fn field(self, delta: E::Wide, r: u32) -> u64 {
        let length = delta.bit_length();
        let width = r.min(length - 1);
        let magnitude = delta.to_i128().unsigned_abs();
        (magnitude >> (length - 1 - width)) as u64 & ((1 << width) - 1)
    }

    #[inline(always)]
    fn cell(self, bucket: Bucket, r: u32, field: u64) -> E::Wide {
        let length = u32::from(bucket.exponent);
        let cell = length - 1 - r.min(length - 1);
        let middle = if cell > 0 { 1i128 << (cell - 1) } else { 0 };
        let magnitude = 1i128 << (length - 1) | i128::from(field) << cell | middle;
        E::Wide::of_i128(if bucket.negative { -magnitude } else { magnitude })
    }

    fn reach(self, bucket: Bucket) -> f64 {
        (1u128 << bucket.exponent) as f64 / 4.0
    }

    #[inline(always)]
    fn of_places(self, _target: E, places: f64) -> f64 {
        places
    }

    fn midrange(self, least: E::Wide, greatest: E::Wide) -> E::Wide {
        E::Wide::of_i128(divide_half_even(least.to_i128() + greatest.to_i128(), 2))
    }

    fn fast_table(self, kept: &[Bucket], representatives: &[E::Wide]) -> Option<FastTable> {
        let fits = NON_NEGATIVE && E::TYPE == ElementType::F32 && kept.len() == representatives.len();
        let integers = || OrderedTable::of_integers(kept, representatives.iter().map(|r| r.to_i128() as i32));
        fits.then(integers)?.map(FastTable::Ordered)
    }

    fn steps(self, representatives: &[E::Wide]) -> Option<Steps> {
        let integers = representatives.iter().map(|r| r.to_i128());
        if NON_NEGATIVE && E::TYPE == ElementType::F32 { Steps::of_integers(integers) } else { None }
    }
}

/// An exact integer sum.
#[derive(Debug, Clone, Default)]
pub struct OrderedSum(i128);

impl<W: Wide> Summation<W> for OrderedSum {
    type Term = W;

    #[inline(always)]
    fn term(delta: W) -> W {
        delta
    }

    #[inline(always)]
    fn add(&mut self, terms: &[W; BLOCK], places: &[u64; BLOCK], place: u64) {
        // A block's sum is far from the ends of the type, which has twice the bits of an element.
        let chosen = |of: u64| -i64::from(of == place);
        let sum = terms.iter().zip(places).fold(W::default(), |sum, (term, &of)| sum + term.masked(chosen(of)));
        self.0 += sum.to_i128();
    }

    fn close_chunk(&mut self) {}

    fn of_total(total: f64) -> Self {
        OrderedSum(total as i128)
    }

    fn append(&mut self, next: &Self) {
        self.0 += next.0;
    }

    fn mean(&self, count: u64) -> Option<W> {
        Some(W::of_i128(divide_half_even(self.0, i128::from(count))))
    }
}

/// `dividend / divisor`, rounded to nearest, ties to even; `divisor` is positive.
pub(super) fn divide_half_even(dividend: i128, divisor: i128) -> i128 {
    let floor = dividend.div_euclid(divisor);
    let twice_rest = 2 * dividend.rem_euclid(divisor);
    let up = twice_rest > divisor || (twice_rest == divisor && floor % 2 != 0);
    floor + i128::from(up)
}
