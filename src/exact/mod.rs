//! Exact coding of floats: a small class for the coarse part of an entry as the symbol, the rest as raw bits (format.md,
//! sections 5 and 7).

mod lanes;

pub use lanes::{Cuts, LaneCut, find_escapes, for_each_class, has_byte_fields, symbols_of};

use crate::float::Element;

/// The symbol of an entry whose class is outside the window of 14.
pub const ESCAPE: u8 = 15;

/// Classes with a symbol of their own: symbols 1..=14.
pub const WINDOW: u16 = 14;

/// One way to cut an entry into class and field.
pub trait Cut<E: Element>: Copy + Send + Sync + 'static {
    /// One more than the highest class.
    const CLASSES: usize;
    /// Whether elements with symbol 0 have a field where the coding does not pass over them.
    const ZEROS_HAVE_FIELDS: bool;

    /// The class, or `None` for symbol 0, and the field.
    fn cut(self, target: E, base: E) -> (Option<u16>, u64);
    fn field_width(self, class: u16) -> u32;
    /// The entry again; `None` where class and field cannot be one.
    fn join(self, class: u16, field: u64, base: E) -> Option<E>;
}

/// The exponent field as class; sign and mantissa as field. Symbol 0 is +0.0.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExponentClass;

/// The bit length of the difference of ordered bits as class; its other bits and its sign as field. Symbol 0 is no difference.
#[derive(Debug, Clone, Copy, Default)]
pub struct Difference;

impl<E: Element> Cut<E> for ExponentClass {
    const CLASSES: usize = 1 << E::EXPONENT_BITS;
    const ZEROS_HAVE_FIELDS: bool = true;

    #[inline(always)]
    fn cut(self, target: E, _base: E) -> (Option<u16>, u64) {
        let bits = target.bits();
        let mantissa = bits & ((1 << E::MANTISSA_BITS) - 1);
        let field = mantissa | u64::from(target.sign()) << E::MANTISSA_BITS;
        ((bits != 0).then_some(target.exponent_field() as u16), field)
    }

    #[inline(always)]
    fn field_width(self, _class: u16) -> u32 {
        E::MANTISSA_BITS + 1
    }

    #[inline(always)]
    fn join(self, class: u16, field: u64, _base: E) -> Option<E> {
        let mantissa = field & ((1 << E::MANTISSA_BITS) - 1);
        let sign = field >> E::MANTISSA_BITS;
        let valid = usize::from(class) < <Self as Cut<E>>::CLASSES;
        valid.then(|| E::of_bits(sign << (E::BITS - 1) | u64::from(class) << E::MANTISSA_BITS | mantissa))
    }
}

impl<E: Element> Cut<E> for Difference {
    const CLASSES: usize = E::BITS as usize + 1;
    const ZEROS_HAVE_FIELDS: bool = false;

    #[inline(always)]
    fn cut(self, target: E, base: E) -> (Option<u16>, u64) {
        let difference = wrap::<E>(target.ordered().wrapping_sub(base.ordered()));
        let magnitude = difference.unsigned_abs();
        let length = 64 - magnitude.leading_zeros();
        if length == 0 {
            return (None, 0);
        }
        let low = magnitude ^ 1 << (length - 1);
        (Some(length as u16), low | u64::from(difference < 0) << (length - 1))
    }

    #[inline(always)]
    fn field_width(self, class: u16) -> u32 {
        u32::from(class)
    }

    #[inline(always)]
    fn join(self, class: u16, field: u64, base: E) -> Option<E> {
        let length = u32::from(class);
        if length == 0 || length > E::BITS {
            return None;
        }
        let top = 1u64 << (length - 1);
        let magnitude = top | field & (top - 1);
        let negative = field & top != 0;
        if length == E::BITS && (!negative || magnitude != top) {
            return None;
        }
        let difference = if negative { (magnitude as i64).wrapping_neg() } else { magnitude as i64 };
        Some(E::of_ordered(wrap::<E>(base.ordered().wrapping_add(difference))))
    }
}

/// `value` in the element's width, as a signed integer.
#[inline(always)]
fn wrap<E: Element>(value: i64) -> i64 {
    value << (64 - E::BITS) >> (64 - E::BITS)
}

/// The window of classes that symbols 1..=14 stand for: `top`, `top - 1` ..
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub top: u16,
}

impl Window {
    /// The window that holds the most of the counted entries; of equals the highest.
    pub fn choose(counts: &[u64]) -> Self {
        let mut best = (0, 0u16);
        let mut held = 0u64;
        for (top, count) in counts.iter().enumerate() {
            held += count;
            if let Some(out) = top.checked_sub(usize::from(WINDOW)) {
                held -= counts[out];
            }
            if *count > 0 && held >= best.0 {
                best = (held, top as u16);
            }
        }
        Window { top: best.1 }
    }

    #[inline(always)]
    pub fn symbol(self, class: Option<u16>) -> u8 {
        let Some(class) = class else { return 0 };
        let below = self.top.wrapping_sub(class);
        if below < WINDOW { below as u8 + 1 } else { ESCAPE }
    }

    /// The class of a symbol 1..=14; `None` where there is no such class.
    #[inline(always)]
    pub fn class(self, symbol: u8) -> Option<u16> {
        self.top.checked_sub(u16::from(symbol) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};
    use proptest::prelude::*;

    fn comes_back<E: Element, C: Cut<E>>(cut: C, target: u64, base: u64) {
        let (target, base) = (E::of_bits(target), E::of_bits(base));
        let (class, field) = cut.cut(target, base);
        if let Some(class) = class {
            assert!(usize::from(class) < C::CLASSES);
            let width = cut.field_width(class);
            assert!(width == 64 || field >> width == 0);
            assert_eq!(cut.join(class, field, base).map(E::bits), Some(target.bits()));
        }
    }

    fn all_types(target: u64, base: u64) {
        comes_back::<f64, _>(ExponentClass, target, base);
        comes_back::<f64, _>(Difference, target, base);
        comes_back::<f32, _>(ExponentClass, target & 0xffff_ffff, base & 0xffff_ffff);
        comes_back::<f32, _>(Difference, target & 0xffff_ffff, base & 0xffff_ffff);
        comes_back::<f16, _>(ExponentClass, target & 0xffff, base & 0xffff);
        comes_back::<f16, _>(Difference, target & 0xffff, base & 0xffff);
        comes_back::<bf16, _>(ExponentClass, target & 0xffff, base & 0xffff);
        comes_back::<bf16, _>(Difference, target & 0xffff, base & 0xffff);
    }

    proptest! {
        #[test]
        fn every_entry_comes_back(target: u64, base: u64, near in -9i64..9) {
            all_types(target, base);
            all_types(target, target.wrapping_add_signed(near));
        }

        #[test]
        fn hostile_fields_never_panic(class: u16, field: u64, base: u64) {
            let _ = Cut::<f64>::join(Difference, class, field, f64::from_bits(base));
            let _ = Cut::<f16>::join(Difference, class, field, f16::from_bits(base as u16));
            let _ = Cut::<f32>::join(ExponentClass, class, field & 0xff_ffff, 0.0);
        }
    }

    #[test]
    fn the_extremes() {
        for (target, base) in [(0x8000, 0x7fff), (0x7fff, 0x8000), (0xffff, 0), (0, 0xffff), (0x3fff, 0xbfff)] {
            comes_back::<bf16, _>(Difference, target, base);
        }
    }

    #[test]
    fn the_window_covers_the_most() {
        let mut counts = [0u64; 64];
        counts[60] = 1;
        counts[20] = 5;
        counts[33] = 5;
        assert_eq!(Window::choose(&counts).top, 33);
        let window = Window { top: 33 };
        assert_eq!((window.symbol(Some(33)), window.symbol(Some(20)), window.symbol(Some(60))), (1, 14, ESCAPE));
        assert_eq!((window.symbol(Some(19)), window.symbol(None), window.class(14)), (ESCAPE, 0, Some(20)));
        assert_eq!(Window { top: 3 }.class(5), None);
    }
}
