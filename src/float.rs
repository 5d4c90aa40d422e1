//! Floating-point elements: the four types that are coded as numbers, their bits, and their arithmetic (format.md,
//! section 8).

use crate::rounding::{narrow_bf16, narrow_f16};
use half::{bf16, f16};
use std::fmt::Debug;
use std::ops::Add;

/// How the stored elements of a tensor are read (format.md, section 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementType {
    F16,
    BF16,
    F32,
    F64,
    /// Opaque elements of this many bytes.
    Bytes(u8),
}

impl ElementType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            ElementType::F16 | ElementType::BF16 => 2,
            ElementType::F32 => 4,
            ElementType::F64 => 8,
            ElementType::Bytes(size) => usize::from(size),
        }
    }

    pub fn is_float(self) -> bool {
        !matches!(self, ElementType::Bytes(_))
    }
}

/// The type that arithmetic is done in: f32 or f64.
pub trait Arith: Copy + Default + PartialEq + PartialOrd + Send + Sync + Debug + 'static {
    const ZERO: Self;
    const MANTISSA_BITS: u32;
    const EXPONENT_BITS: u32;

    fn bits(self) -> u64;
    fn of_bits(bits: u64) -> Self;
    fn to_f64(self) -> f64;
    /// Rounds once, to nearest even.
    fn of_f64(value: f64) -> Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn over(self, other: Self) -> Self;
    fn root(self) -> Self;

    #[inline(always)]
    fn exponent_field(self) -> u32 {
        (self.bits() >> Self::MANTISSA_BITS) as u32 & ((1 << Self::EXPONENT_BITS) - 1)
    }

    #[inline(always)]
    fn sign(self) -> bool {
        self.bits() >> (Self::MANTISSA_BITS + Self::EXPONENT_BITS) != 0
    }

    #[inline(always)]
    fn finite(self) -> bool {
        self.exponent_field() != (1 << Self::EXPONENT_BITS) - 1
    }
}

macro_rules! arith {
    ($type:ty, $bits:ty, $mantissa:literal, $exponent:literal) => {
        impl Arith for $type {
            const ZERO: Self = 0.0;
            const MANTISSA_BITS: u32 = $mantissa;
            const EXPONENT_BITS: u32 = $exponent;

            #[inline(always)]
            fn bits(self) -> u64 {
                u64::from(self.to_bits())
            }
            #[inline(always)]
            fn of_bits(bits: u64) -> Self {
                <$type>::from_bits(bits as $bits)
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn of_f64(value: f64) -> Self {
                value as $type
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn over(self, other: Self) -> Self {
                self / other
            }
            #[inline(always)]
            fn root(self) -> Self {
                self.sqrt()
            }
        }
    };
}

arith!(f32, u32, 23, 8);
arith!(f64, u64, 52, 11);

/// A stored floating-point element.
pub trait Element: bytemuck::Pod + Send + Sync + Debug + 'static {
    /// What it is computed in: f32 for f16, bf16 and f32; f64 for f64.
    type A: Arith;
    /// An integer in which differences of [`Element::ordered`] cannot overflow.
    type Wide: Wide;
    const TYPE: ElementType;
    const ZERO: Self;
    const BITS: u32;
    const MANTISSA_BITS: u32;
    const EXPONENT_BITS: u32 = Self::BITS - 1 - Self::MANTISSA_BITS;
    /// Ordered bits of the largest finite value.
    const LARGEST: i64 = (((1i64 << Self::EXPONENT_BITS) - 1) << Self::MANTISSA_BITS) - 1;

    fn bits(self) -> u64;
    fn of_bits(bits: u64) -> Self;
    /// The bits as a signed integer of the element's width.
    fn signed_bits(self) -> i64;
    fn to_arith(self) -> Self::A;
    /// Rounds once, to nearest even.
    fn round(value: Self::A) -> Self;
    /// Rounds once, to nearest even; a NaN keeps its sign and the top of its mantissa.
    fn of_f64(value: f64) -> Self;

    #[inline(always)]
    fn exponent_field(self) -> u32 {
        (self.bits() >> Self::MANTISSA_BITS) as u32 & ((1 << Self::EXPONENT_BITS) - 1)
    }

    #[inline(always)]
    fn finite(self) -> bool {
        self.exponent_field() != (1 << Self::EXPONENT_BITS) - 1
    }

    #[inline(always)]
    fn sign(self) -> bool {
        self.signed_bits() < 0
    }

    /// Integers that rise with the value: +0.0 is 0, -0.0 is -1.
    #[inline(always)]
    fn ordered(self) -> i64 {
        let bits = self.signed_bits();
        if bits < 0 { Self::minimum().wrapping_sub(1).wrapping_sub(bits) } else { bits }
    }

    /// The inverse of [`Element::ordered`], for an integer in the element's width.
    #[inline(always)]
    fn of_ordered(integer: i64) -> Self {
        Self::of_bits(if integer < 0 {
            Self::minimum().wrapping_sub(1).wrapping_sub(integer) as u64
        } else {
            integer as u64
        })
    }

    /// The bits of the NaN that stands for all computed ones.
    #[inline(always)]
    fn quiet_nan() -> u64 {
        let exponent = ((1u64 << Self::EXPONENT_BITS) - 1) << Self::MANTISSA_BITS;
        exponent | 1 << (Self::MANTISSA_BITS - 1)
    }

    /// The smallest signed integer of the element's width.
    #[inline(always)]
    fn minimum() -> i64 {
        i64::MIN >> (64 - Self::BITS)
    }
}

macro_rules! element {
    ($type:ty, $bits:ty, $signed:ty, $arith:ty, $wide:ty, $name:ident, $mantissa:literal, $zero:expr,
     $to:expr, $round:expr, $narrow:expr) => {
        impl Element for $type {
            type A = $arith;
            type Wide = $wide;
            const TYPE: ElementType = ElementType::$name;
            const ZERO: Self = $zero;
            const BITS: u32 = <$bits>::BITS;
            const MANTISSA_BITS: u32 = $mantissa;

            #[inline(always)]
            fn bits(self) -> u64 {
                u64::from(self.to_bits())
            }
            #[inline(always)]
            fn of_bits(bits: u64) -> Self {
                <$type>::from_bits(bits as $bits)
            }
            #[inline(always)]
            fn signed_bits(self) -> i64 {
                i64::from(self.to_bits() as $signed)
            }
            #[inline(always)]
            fn to_arith(self) -> $arith {
                $to(self)
            }
            #[inline(always)]
            fn round(value: $arith) -> Self {
                $round(value)
            }
            #[inline(always)]
            fn of_f64(value: f64) -> Self {
                $narrow(value)
            }
        }
    };
}

element!(f16, u16, i16, f32, i64, F16, 10, f16::ZERO, f16::to_f32, f16::from_f32, narrow_f16);
element!(bf16, u16, i16, f32, i64, BF16, 7, bf16::ZERO, bf16::to_f32, bf16::from_f32, narrow_bf16);
element!(f32, u32, i32, f32, i64, F32, 23, 0.0, |x| x, |x| x, |x| x as f32);
element!(f64, u64, i64, f64, i128, F64, 52, 0.0, |x| x, |x| x, |x| x);

/// A signed integer wider than an element.
pub trait Wide: Copy + Default + Ord + Add<Output = Self> + Send + Sync + Debug + 'static {
    fn of_i128(value: i128) -> Self;
    fn to_i128(self) -> i128;
    fn difference(a: i64, b: i64) -> Self;
    /// `base + self`, no less than `low` and no more than `high`.
    fn add_to(self, base: i64, low: i64, high: i64) -> i64;
    /// Bits of the magnitude.
    fn bit_length(self) -> u32;
    fn to_f64(self) -> f64;
    /// With all bits of `mask` itself, without any 0.
    fn masked(self, mask: i64) -> Self;
}

macro_rules! wide {
    ($type:ty) => {
        impl Wide for $type {
            #[inline(always)]
            fn of_i128(value: i128) -> Self {
                value as $type
            }
            #[inline(always)]
            fn to_i128(self) -> i128 {
                self as i128
            }
            #[inline(always)]
            fn difference(a: i64, b: i64) -> Self {
                <$type>::from(a) - <$type>::from(b)
            }
            #[inline(always)]
            fn add_to(self, base: i64, low: i64, high: i64) -> i64 {
                let sum = <$type>::from(base).saturating_add(self);
                sum.clamp(<$type>::from(low), <$type>::from(high)) as i64
            }
            #[inline(always)]
            fn bit_length(self) -> u32 {
                <$type>::BITS - self.unsigned_abs().leading_zeros()
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn masked(self, mask: i64) -> Self {
                self & <$type>::from(mask)
            }
        }
    };
}

wide!(i64);
wide!(i128);

/// The binary logarithm of a positive normal number to about 1e-9, by basic operations alone: a mathematics library's own
/// may differ in the last bit from CPU to CPU, and with it the choice and the file.
pub const fn log2(x: f64) -> f64 {
    const EXPONENT: u64 = 0x7ff << 52;
    let exponent = (x.to_bits() >> 52) as i32 - 1023;
    let m = f64::from_bits(x.to_bits() & !EXPONENT | 1023 << 52);
    let z = (m - std::f64::consts::SQRT_2) / (m + std::f64::consts::SQRT_2);
    let z2 = z * z;
    let atanh = z * (1.0 + z2 * (1.0 / 3.0 + z2 * (1.0 / 5.0 + z2 * (1.0 / 7.0 + z2 / 9.0))));
    exponent as f64 + 0.5 + 2.0 * std::f64::consts::LOG2_E * atanh
}

#[cfg(test)]
mod tests;
