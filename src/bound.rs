//! The largest error that an entry may have, and whether a reconstruction keeps to it.

use crate::error::{Error, Result};
use crate::float::{Arith, Element};

/// How far a reconstruction r may be from a finite target u. Both hold where both are given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// |r - u| is at most this.
    pub absolute: Option<f64>,
    /// |r - u| is at most this times |u|.
    pub relative: Option<f64>,
}

impl Bound {
    /// The bound with these parts, if there is one.
    pub fn of(absolute: Option<f64>, relative: Option<f64>) -> Option<Self> {
        (absolute.is_some() || relative.is_some()).then_some(Bound { absolute, relative })
    }

    pub fn check(self) -> Result<()> {
        let sound = |bound: f64| bound > 0.0 && bound.is_finite();
        if [self.absolute, self.relative].into_iter().flatten().all(sound) {
            return Ok(());
        }
        Err(Error::Request("an error bound must be finite and above zero"))
    }

    /// Whether the bound surely holds in exact arithmetic; both are finite. Rounding to nearest keeps order: a difference above a
    /// product is not below it when both are rounded.
    #[inline(always)]
    pub fn holds<E: Element>(self, target: E, reconstruction: E) -> bool {
        let (u, r) = (target.to_arith().to_f64(), reconstruction.to_arith().to_f64());
        r == u
            || (self.absolute.is_none_or(|most| is_within(r, u, most))
                && self.relative.is_none_or(|most| (r - u).abs() < most * u.abs()))
    }

    /// About how far a reconstruction of `target` may be from it, in units of the target's last place: a whole number, and the
    /// half that rounding to an element forgives.
    #[inline(always)]
    pub fn places<E: Element>(self, target: E) -> f64 {
        let u = target.to_arith().to_f64().abs();
        let absolute = self.absolute.unwrap_or(f64::INFINITY);
        let relative = self.relative.map_or(f64::INFINITY, |most| most * u);
        (absolute.min(relative) / last_place(target)).floor() + 0.5
    }
}

/// |r - u| <= most, exactly.
#[inline(always)]
fn is_within(r: f64, u: f64, most: f64) -> bool {
    let difference = r - u;
    if difference.abs() != most {
        return difference.abs() < most;
    }
    // What was rounded away, by Knuth's sum of two numbers: if anything was, the entry counts as one beyond.
    let of_u = difference - r;
    let of_r = difference - of_u;
    (r - of_r) + (-u - of_u) == 0.0
}

/// The distance from a finite element to its neighbours.
#[inline(always)]
pub fn last_place<E: Element>(element: E) -> f64 {
    let power = E::of_bits(u64::from(element.exponent_field().max(1)) << E::MANTISSA_BITS);
    power.to_arith().to_f64() / (1u64 << E::MANTISSA_BITS) as f64
}
