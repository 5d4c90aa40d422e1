//! f64 to 16-bit floats in one rounding, the same on every CPU.

use half::{bf16, f16};

/// Rounded to odd: a second rounding, to a shorter float, then gives what one rounding would have given.
fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    let back = f64::from(near);
    if back == value || value.is_nan() {
        return near;
    }
    // Toward zero, then odd.
    f32::from_bits((near.to_bits() - u32::from(back.abs() > value.abs())) | 1)
}

/// Rounded once, to nearest even.
pub fn narrow_f16(value: f64) -> f16 {
    f16::from_f32(to_odd(value))
}

/// Rounded once, to nearest even.
pub fn narrow_bf16(value: f64) -> bf16 {
    bf16::from_f32(to_odd(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every tie between two neighbours, and the numbers beside it.
    fn ties(largest: u16, value: fn(u16) -> f64, narrow: fn(f64) -> u16) {
        for low in 0..largest {
            let (below, above) = (value(low), value(low + 1));
            let tie = (below + above) / 2.0;
            for (sign, bit) in [(1.0, 0), (-1.0, 0x8000)] {
                assert_eq!(narrow(sign * tie), (low + (low & 1)) | bit, "{low:#x}");
                assert_eq!(narrow(sign * tie.next_down()), low | bit, "{low:#x}");
                assert_eq!(narrow(sign * tie.next_up()), (low + 1) | bit, "{low:#x}");
                assert_eq!(narrow(sign * below), low | bit, "{low:#x}");
            }
        }
    }

    #[test]
    fn ties_go_to_even_and_their_neighbours_do_not() {
        ties(0x7bff, |bits| f16::from_bits(bits).to_f64(), |value| narrow_f16(value).to_bits());
        ties(0x7f7f, |bits| bf16::from_bits(bits).to_f64(), |value| narrow_bf16(value).to_bits());
    }

    #[test]
    fn what_is_not_finite_stays_so() {
        assert_eq!(narrow_f16(65_520.0), f16::INFINITY);
        assert_eq!(narrow_f16(65_520f64.next_down()), f16::MAX);
        assert_eq!(narrow_bf16(f64::MAX), bf16::INFINITY);
        assert_eq!(narrow_bf16(f64::NEG_INFINITY), bf16::NEG_INFINITY);
        assert!(narrow_f16(f64::NAN).is_nan() && narrow_bf16(-f64::NAN).is_nan());
    }
}
