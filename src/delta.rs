//! Deltas and what is made of them: the two domains in which a lossy record works (format.md, section 8).

use crate::bound::last_place;
use crate::float::{Arith, Element, ElementType, Wide};
use crate::kernels::{FastTable, OrderedTable, Steps, ValueTable};
use std::fmt::Debug;
use std::marker::PhantomData;

/// All delta entries with the same sign and exponent (value domain: the exponent field; ordered bits: the bit length).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket {
    pub exponent: u16,
    pub negative: bool,
}

impl Bucket {
    #[inline(always)]
    pub fn index(self) -> usize {
        usize::from(self.exponent) * 2 + usize::from(self.negative)
    }

    #[inline(always)]
    pub fn of_index(index: usize) -> Self {
        Bucket { exponent: (index / 2) as u16, negative: index % 2 == 1 }
    }
}

/// How target and base become a delta, and base and delta a reconstruction.
pub trait Domain<E: Element>: Copy + Send + Sync + 'static {
    type Delta: Copy + Default + PartialEq + PartialOrd + Send + Sync + Debug;
    /// Sums deltas so that the result does not depend on threads or vector width.
    type Sum: Summation<Self::Delta>;
    /// One more than the highest [`Bucket::index`].
    const BUCKETS: usize;

    fn new() -> Self;
    /// `target - base`, or `None` where it cannot be told in this domain: the entry is an exception.
    fn delta(self, target: E, base: E) -> Option<Self::Delta>;
    /// The delta as a number.
    fn size(delta: Self::Delta) -> f64;
    /// `None` for a delta of zero.
    fn bucket(self, delta: Self::Delta) -> Option<Bucket>;
    /// The reconstruction.
    fn apply(self, base: E, delta: Self::Delta) -> E;

    /// Width in bits of an entry's refinement field when `r` bits are asked for.
    fn field_width(self, bucket: Bucket, r: u32) -> u32;
    /// The refinement field of a delta that is not zero.
    fn field(self, delta: Self::Delta, r: u32) -> u64;
    /// The middle of the cell that `field` names.
    fn cell(self, bucket: Bucket, r: u32, field: u64) -> Self::Delta;
    /// Half the width of a bucket, as a number.
    fn reach(self, bucket: Bucket) -> f64;
    /// As a number, a delta of so many units of the target's last place.
    fn of_places(self, target: E, places: f64) -> f64;
    /// `(least + greatest) / 2`, rounded once.
    fn midrange(self, least: Self::Delta, greatest: Self::Delta) -> Self::Delta;

    /// The table for the fast loop, where there is one for these types and it can hold the buckets.
    fn fast_table(self, kept: &[Bucket], representatives: &[Self::Delta]) -> Option<FastTable>;

    /// The representatives for the fast loops, likewise.
    fn steps(self, representatives: &[Self::Delta]) -> Option<Steps>;
}

/// Entries whose buckets are found before they are counted and summed.
pub const BLOCK: usize = 256;

/// A sum of deltas in eight lanes (entry i of a chunk in lane i mod 8), and their mean.
pub trait Summation<D>: Clone + Default + Debug + Send {
    /// What a delta adds.
    type Term: Copy + Default;
    fn term(delta: D) -> Self::Term;
    /// Adds those of a block whose place is `place`. Blocks follow each other from the start of a chunk on.
    fn add(&mut self, terms: &[Self::Term; BLOCK], places: &[u64; BLOCK], place: u64);
    /// Folds the lanes: the end of a chunk.
    fn close_chunk(&mut self);
    /// Adds the sum of the next chunk; both are closed.
    fn append(&mut self, next: &Self);
    /// The mean of `count` entries, rounded once to nearest even; `None` if the sum has overflowed.
    fn mean(&self, count: u64) -> Option<D>;
}

/// Deltas are differences of values.
#[derive(Debug, Clone, Copy)]
pub struct Value;

/// Deltas are differences of ordered bits; the result is clamped to the finite range, or its part from +0.0 up.
#[derive(Debug, Clone, Copy)]
pub struct Ordered<const NON_NEGATIVE: bool>;

impl<E: Element> Domain<E> for Value {
    type Delta = E::A;
    type Sum = ValueSum<E::A>;
    const BUCKETS: usize = 2 << E::A::EXPONENT_BITS;

    fn new() -> Self {
        Value
    }

    #[inline(always)]
    fn delta(self, target: E, base: E) -> Option<E::A> {
        let delta = target.to_arith().minus(base.to_arith());
        delta.finite().then_some(delta)
    }

    #[inline(always)]
    fn size(delta: E::A) -> f64 {
        delta.to_f64()
    }

    #[inline(always)]
    fn bucket(self, delta: E::A) -> Option<Bucket> {
        (delta != E::A::ZERO).then(|| Bucket { exponent: delta.exponent_field() as u16, negative: delta.sign() })
    }

    #[inline(always)]
    fn apply(self, base: E, delta: E::A) -> E {
        E::round(base.to_arith().plus(delta))
    }

    #[inline(always)]
    fn field_width(self, _bucket: Bucket, r: u32) -> u32 {
        r
    }

    #[inline(always)]
    fn field(self, delta: E::A, r: u32) -> u64 {
        delta.bits() >> (E::A::MANTISSA_BITS - r) & ((1 << r) - 1)
    }

    #[inline(always)]
    fn cell(self, bucket: Bucket, r: u32, field: u64) -> E::A {
        let cell = E::A::MANTISSA_BITS - r;
        let middle = if cell > 0 { 1u64 << (cell - 1) } else { 0 };
        let sign_and_exponent = u64::from(bucket.negative) << E::A::EXPONENT_BITS | u64::from(bucket.exponent);
        E::A::of_bits(sign_and_exponent << E::A::MANTISSA_BITS | field << cell | middle)
    }

    fn reach(self, bucket: Bucket) -> f64 {
        E::A::of_bits(u64::from(bucket.exponent.max(1)) << E::A::MANTISSA_BITS).to_f64() / 2.0
    }

    #[inline(always)]
    fn of_places(self, target: E, places: f64) -> f64 {
        places * last_place(target)
    }

    fn midrange(self, least: E::A, greatest: E::A) -> E::A {
        let (least, greatest) = (least.to_f64(), greatest.to_f64());
        let sum = least + greatest;
        E::A::of_f64(if sum.is_finite() { sum / 2.0 } else { least / 2.0 + greatest / 2.0 })
    }

    fn fast_table(self, kept: &[Bucket], representatives: &[E::A]) -> Option<FastTable> {
        let fits = E::TYPE != ElementType::F64 && kept.len() == representatives.len();
        let values = || ValueTable::of_values(kept, representatives.iter().map(|r| r.to_f64() as f32));
        fits.then(values)?.map(FastTable::Value)
    }

    fn steps(self, representatives: &[E::A]) -> Option<Steps> {
        let values = representatives.iter().map(|r| r.to_f64() as f32);
        (E::TYPE != ElementType::F64).then(|| Steps::of_values(values))
    }
}

/// f64 lanes.
#[derive(Debug, Clone)]
pub struct ValueSum<A> {
    lanes: [f64; 8],
    arith: PhantomData<A>,
}

impl<A> Default for ValueSum<A> {
    fn default() -> Self {
        ValueSum { lanes: [0.0; 8], arith: PhantomData }
    }
}

impl<A: Arith> Summation<A> for ValueSum<A> {
    type Term = f64;

    #[inline(always)]
    fn term(delta: A) -> f64 {
        delta.to_f64()
    }

    #[inline(always)]
    fn add(&mut self, terms: &[f64; BLOCK], places: &[u64; BLOCK], place: u64) {
        let mut lanes = self.lanes;
        for (terms, places) in terms.as_chunks::<8>().0.iter().zip(places.as_chunks::<8>().0) {
            for k in 0..8 {
                // No lane is ever -0.0: adding 0.0 changes none. Of a condition the compiler would make a branch.
                let chosen = u64::from(places[k] == place).wrapping_neg();
                lanes[k] += f64::from_bits(terms[k].to_bits() & chosen);
            }
        }
        self.lanes = lanes;
    }

    fn close_chunk(&mut self) {
        let l = self.lanes;
        let sum = ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
        self.lanes = [sum, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    }

    fn append(&mut self, next: &Self) {
        self.lanes[0] += next.lanes[0];
    }

    fn mean(&self, count: u64) -> Option<A> {
        let mean = A::of_f64(self.lanes[0] / count as f64);
        mean.finite().then_some(mean)
    }
}

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

    fn append(&mut self, next: &Self) {
        self.0 += next.0;
    }

    fn mean(&self, count: u64) -> Option<W> {
        Some(W::of_i128(divide_half_even(self.0, i128::from(count))))
    }
}

/// `dividend / divisor`, rounded to nearest, ties to even; `divisor` is positive.
fn divide_half_even(dividend: i128, divisor: i128) -> i128 {
    let floor = dividend.div_euclid(divisor);
    let twice_rest = 2 * dividend.rem_euclid(divisor);
    let up = twice_rest > divisor || (twice_rest == divisor && floor % 2 != 0);
    floor + i128::from(up)
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};
    use proptest::prelude::*;

    #[test]
    fn ties_go_to_even() {
        let rounded: Vec<i128> = [-7, -5, -3, -1, 1, 3, 5, 7].map(|x| divide_half_even(x, 2)).to_vec();
        assert_eq!(rounded, [-4, -2, -2, 0, 0, 2, 2, 4]);
    }

    /// The cell of a delta's field has its bucket, and lies within half a cell of the delta. Subnormal deltas share one bucket,
    /// as wide as the least normal ones.
    fn cell_is_close<E: Element, D: Domain<E>>(target: u64, base: u64, r: u32)
    where
        D::Delta: Into<f64>,
    {
        let (target, base) = (E::of_bits(target), E::of_bits(base));
        let domain = D::new();
        let Some(delta) = domain.delta(target, base) else { return };
        let Some(bucket) = domain.bucket(delta) else { return };
        let field = domain.field(delta, r);
        let width = domain.field_width(bucket, r);
        assert!(field < 1 << width);
        let cell = domain.cell(bucket, r, field);
        assert_eq!(domain.bucket(cell), Some(bucket));
        assert_eq!(domain.field(cell, r), field);
        let (delta, cell): (f64, f64) = (delta.into(), cell.into());
        let size = delta.abs().max(f64::from(f32::MIN_POSITIVE));
        assert!((delta - cell).abs() <= size / f64::from(1u32 << width));
    }

    proptest! {
        #[test]
        fn refined_values_are_close(t: u32, b: u32, r in 1u32..=23) {
            cell_is_close::<f16, Value>(u64::from(t & 0xffff), u64::from(b & 0xffff), r);
            cell_is_close::<bf16, Value>(u64::from(t & 0xffff), u64::from(b & 0xffff), r);
        }

        #[test]
        fn an_ordered_delta_leads_from_base_to_target(t: u64, b: u64) {
            let (t, b) = (f64::from_bits(t), f64::from_bits(b));
            let domain = Ordered::<false>;
            if let Some(delta) = domain.delta(t, b) {
                prop_assert_eq!(domain.apply(b, delta).to_bits(), t.to_bits());
                if let Some(bucket) = Domain::<f64>::bucket(domain, delta) {
                    prop_assert!(bucket.index() < <Ordered<false> as Domain<f64>>::BUCKETS);
                    let field = Domain::<f64>::field(domain, delta, 23);
                    let cell = Domain::<f64>::cell(domain, bucket, 23, field);
                    prop_assert_eq!(Domain::<f64>::bucket(domain, cell), Some(bucket));
                }
            }
        }

        #[test]
        fn non_negative_stays_non_negative(b in 0u32..0x7f80_0000, delta: i32) {
            let element = Domain::<f32>::apply(Ordered::<true>, f32::from_bits(b), i64::from(delta) * 2);
            prop_assert!(element.is_finite() && element.is_sign_positive());
        }
    }
}
