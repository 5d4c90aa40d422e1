//! The domain of values.

use super::{BLOCK, Bucket, Domain, Summation};
use crate::bound::last_place;
use crate::float::{Arith, Element, ElementType};
use crate::kernels::{FastTable, Steps, ValueTable};
use std::marker::PhantomData;

/// Deltas are differences of values.
#[derive(Debug, Clone, Copy)]
pub struct Value;

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

    fn of_total(total: f64) -> Self {
        ValueSum { lanes: [total, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], arith: PhantomData }
    }

    fn append(&mut self, next: &Self) {
        self.lanes[0] += next.lanes[0];
    }

    fn mean(&self, count: u64) -> Option<A> {
        let mean = A::of_f64(self.lanes[0] / count as f64);
        mean.finite().then_some(mean)
    }
}
