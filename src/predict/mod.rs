//! Predicted bases: where a tensor is expected to be, from where it was and from its siblings (format.md, section 9).

mod fit;
mod order;

pub use fit::{Fit, Sampled};
pub use order::payload_order;

use crate::error::{Error, Parsed, Result};
use crate::float::{Arith, Element, ElementType};
use crate::header::{parse_arith, put_arith};
use crate::simd;
use crate::view::{elements, elements_mut, with_element_type};
use crate::wire::{Reader, put_varint};
use std::ops::Range;

/// What is computed. r: the tensor's previous reconstruction; s, t: its siblings; s': the first sibling's previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Formula {
    /// `a*r + b*s`
    Direction,
    /// `a*r + b*(s / (sqrt(t) + e))`
    AdaptiveDirection,
    /// `a*r + b*(s - d*s')^2`
    SecondMoment,
}

/// A formula with the records and numbers that it needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    pub formula: Formula,
    /// Record numbers in the same snapshot.
    pub siblings: Vec<u32>,
    /// Exact in the arithmetic type.
    pub coefficients: Vec<f64>,
}

impl Formula {
    /// Siblings and coefficients that the formula has.
    pub fn arity(self) -> (usize, usize) {
        match self {
            Formula::Direction => (1, 2),
            Formula::AdaptiveDirection => (2, 3),
            Formula::SecondMoment => (1, 3),
        }
    }

    /// The number that records have for it.
    pub fn number(self) -> u8 {
        match self {
            Formula::Direction => 1,
            Formula::AdaptiveDirection => 2,
            Formula::SecondMoment => 3,
        }
    }

    pub fn of_number(number: u8) -> Option<Self> {
        [Formula::Direction, Formula::AdaptiveDirection, Formula::SecondMoment]
            .into_iter()
            .find(|formula| formula.number() == number)
    }
}

impl Prediction {
    /// Whether it depends on the siblings.
    pub fn says_something(&self) -> bool {
        self.coefficients[1] != 0.0
    }

    pub fn write(&self, element: ElementType, out: &mut Vec<u8>) {
        out.push(self.formula.number());
        self.siblings.iter().for_each(|&sibling| put_varint(out, u64::from(sibling)));
        self.coefficients.iter().for_each(|&coefficient| put_arith(element, coefficient, out));
    }

    pub fn parse(input: &mut Reader<'_>, element: ElementType) -> Parsed<Self> {
        let number = input.u8()?;
        let formula = Formula::of_number(number).ok_or_else(|| input.flaw("an unknown prediction formula"))?;
        let (siblings, coefficients) = formula.arity();
        let sibling = |input: &mut Reader<'_>| {
            let number = input.varint()?;
            u32::try_from(number).map_err(|_| input.flaw("a record number is too large"))
        };
        Ok(Prediction {
            formula,
            siblings: (0..siblings).map(|_| sibling(input)).collect::<Parsed<_>>()?,
            coefficients: (0..coefficients).map(|_| parse_arith(input, element)).collect::<Parsed<_>>()?,
        })
    }

    /// Replaces `base` (r) by the prediction. What the formula lacks of `siblings` is not read; the rest is as long as `base`.
    pub fn predict<E: Element>(&self, base: &mut [E], siblings: Siblings<'_, E>) {
        let c = |k: usize| E::A::of_f64(self.coefficients[k]);
        let n = base.len();
        let (a, b, s) = (c(0), c(1), &siblings.s[..n]);
        match self.formula {
            Formula::Direction => step(base, a, b, |i| s[i].to_arith()),
            Formula::AdaptiveDirection => {
                let (t, e) = (&siblings.t[..n], c(2));
                step(base, a, b, |i| s[i].to_arith().over(t[i].to_arith().root().plus(e)));
            }
            Formula::SecondMoment => {
                let (before, d) = (&siblings.before[..n], c(2));
                step(base, a, b, |i| {
                    let gradient = s[i].to_arith().minus(d.times(before[i].to_arith()));
                    gradient.times(gradient)
                });
            }
        }
    }

    /// The same for bytes of elements of a type known at run time.
    pub fn predict_bytes(&self, element: ElementType, base: &mut [u8], siblings: Siblings<'_, u8>) -> Result<()> {
        with_element_type!(element, E => {
            self.predict(elements_mut::<E>(base)?, siblings.of()?);
            Ok(())
        }, _size => Err(Error::Request("a prediction of something else than floats")))
    }
}

simd::wide! {
    /// `base[i] = a * base[i] + b * direction(i)`.
    fn step[E: Element, F: Fn(usize) -> E::A](base: &mut [E], a: E::A, b: E::A, direction: F) -> () {
        for (i, r) in base.iter_mut().enumerate() {
            let predicted = a.times(r.to_arith()).plus(b.times(direction(i)));
            // Which NaN arithmetic gives depends on the processor.
            let is_number = predicted.partial_cmp(&predicted).is_some();
            *r = if is_number { E::round(predicted) } else { E::of_bits(E::quiet_nan()) };
        }
    }
}

/// What a formula reads beside the tensor itself; empty where it reads none.
#[derive(Debug, Clone, Copy)]
pub struct Siblings<'a, T> {
    pub s: &'a [T],
    pub t: &'a [T],
    /// The first sibling's previous reconstruction.
    pub before: &'a [T],
}

impl<'a, T> Siblings<'a, T> {
    pub const NONE: Self = Siblings { s: &[], t: &[], before: &[] };

    /// The same part of each that is there.
    pub fn part(self, range: Range<usize>) -> Self {
        let part = |all: &'a [T]| all.get(range.clone()).unwrap_or(&[]);
        Siblings { s: part(self.s), t: part(self.t), before: part(self.before) }
    }
}

impl<'a> Siblings<'a, u8> {
    /// Bytes as elements.
    pub fn of<E: Element>(self) -> Result<Siblings<'a, E>> {
        Ok(Siblings { s: elements(self.s)?, t: elements(self.t)?, before: elements(self.before)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn predicted(formula: Formula, coefficients: &[f64], [r, s, t, before]: [f32; 4]) -> f32 {
        let (siblings, _) = formula.arity();
        let prediction = Prediction { formula, siblings: vec![0; siblings], coefficients: coefficients.to_vec() };
        let mut base = [r];
        prediction.predict(&mut base, Siblings { s: &[s], t: &[t], before: &[before] });
        base[0]
    }

    proptest! {
        #[test]
        fn formulas_are_rounded_after_each_operation(
            x in prop::array::uniform4(-10f32..10.0), c in prop::array::uniform3(-2f32..2.0),
        ) {
            let [r, s, t, before] = x;
            let t = t.abs();
            let wide: Vec<f64> = c.iter().map(|&c| f64::from(c)).collect();
            let direction = predicted(Formula::Direction, &wide[..2], x);
            prop_assert_eq!(direction.to_bits(), (c[0] * r + c[1] * s).to_bits());
            let adaptive = predicted(Formula::AdaptiveDirection, &wide, [r, s, t, before]);
            prop_assert_eq!(adaptive.to_bits(), (c[0] * r + c[1] * (s / (t.sqrt() + c[2]))).to_bits());
            let gradient = s - c[2] * before;
            let second = predicted(Formula::SecondMoment, &wide, x);
            prop_assert_eq!(second.to_bits(), (c[0] * r + c[1] * (gradient * gradient)).to_bits());
        }
    }
}
