//! Predicted bases: where a tensor is expected to be, from where it was and from its siblings (format.md, section 9).

use crate::error::Parsed;
use crate::float::{Arith, Element, ElementType};
use crate::header::{parse_arith, put_arith};
use crate::wire::{Reader, put_varint};

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

    fn number(self) -> u8 {
        match self {
            Formula::Direction => 1,
            Formula::AdaptiveDirection => 2,
            Formula::SecondMoment => 3,
        }
    }
}

impl Prediction {
    pub fn write(&self, element: ElementType, out: &mut Vec<u8>) {
        out.push(self.formula.number());
        self.siblings.iter().for_each(|&sibling| put_varint(out, u64::from(sibling)));
        self.coefficients.iter().for_each(|&coefficient| put_arith(element, coefficient, out));
    }

    pub fn parse(input: &mut Reader<'_>, element: ElementType) -> Parsed<Self> {
        let formula = match input.u8()? {
            1 => Formula::Direction,
            2 => Formula::AdaptiveDirection,
            3 => Formula::SecondMoment,
            _ => return Err(input.flaw("an unknown prediction formula")),
        };
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

    /// Replaces `base` (r) by the prediction. `s` and `t`: the siblings, `before`: s'; those that the formula lacks are not read.
    pub fn predict<E: Element>(&self, base: &mut [E], s: &[E], t: &[E], before: &[E]) {
        let c = |k: usize| E::A::of_f64(self.coefficients[k]);
        let at = |slice: &[E], i: usize| slice[i].to_arith();
        for i in 0..base.len() {
            let kept = c(0).times(at(base, i));
            let step = match self.formula {
                Formula::Direction => at(s, i),
                Formula::AdaptiveDirection => at(s, i).over(at(t, i).root().plus(c(2))),
                Formula::SecondMoment => {
                    let gradient = at(s, i).minus(c(2).times(at(before, i)));
                    gradient.times(gradient)
                }
            };
            let predicted = kept.plus(c(1).times(step));
            // Which NaN arithmetic gives depends on the processor.
            base[i] = if predicted.partial_cmp(&predicted).is_some() {
                E::round(predicted)
            } else {
                E::of_bits(E::quiet_nan())
            };
        }
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
        prediction.predict(&mut base, &[s], &[t], &[before]);
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
