//! 16-bit floats to f32, which they are computed in, and back, for the fast loops over f32.

use crate::float::{Arith, Element, ElementType};
use crate::simd::wide;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Whether these are 16-bit floats.
pub fn are_halves<E: Element>() -> bool {
    matches!(E::TYPE, ElementType::F16 | ElementType::BF16)
}

/// 16-bit floats as f32: all of them are.
pub fn widen<E: Element>(from: &[E], to: &mut [f32]) {
    match E::TYPE {
        ElementType::BF16 => widen_bf16(bytemuck::cast_slice(from), to),
        _ => bytemuck::cast_slice::<E, f16>(from).convert_to_f32_slice(to),
    }
}

/// Elements that are widened in one go.
pub const BLOCK: usize = 1024;

/// The elements with a symbol become these values, rounded once to nearest even; the others keep their bits. At most [`BLOCK`].
pub fn narrow<E: Element>(from: &[f32], symbols: &[u8], to: &mut [E]) {
    let rounded = &mut [E::ZERO; BLOCK][..to.len()];
    match E::TYPE {
        ElementType::BF16 => narrow_bf16(from, bytemuck::cast_slice_mut(rounded)),
        _ => bytemuck::cast_slice_mut::<E, f16>(rounded).convert_from_f32_slice(from),
    }
    choose(bytemuck::cast_slice_mut(to), bytemuck::cast_slice(rounded), symbols);
}

/// Whether all are so small that no reconstruction can be too large for an element: it is off the base by less than twice the delta.
pub fn are_small<E: Element>(target: &[f32], base: &[f32]) -> bool {
    let largest = E::of_ordered(E::LARGEST).to_arith().to_f64() as f32;
    largest_of(target).max(largest_of(base)) < (largest / 8.0).to_bits()
}

wide! {
    /// The bits of the largest size; more than those of all numbers for a NaN.
    fn largest_of[](values: &[f32]) -> u32 {
        values.iter().fold(0, |largest, value| largest.max(value.to_bits() << 1 >> 1))
    }
}

wide! {
    fn widen_bf16[](from: &[bf16], to: &mut [f32]) -> () {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = f32::from_bits(u32::from(from.to_bits()) << 16));
    }
}

wide! {
    fn narrow_bf16[](from: &[f32], to: &mut [bf16]) -> () {
        for (to, from) in to.iter_mut().zip(from) {
            let bits = from.to_bits();
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            let nan = bits >> 16 | 0x40;
            *to = bf16::from_bits(if bits << 1 > 0xff00_0000 { nan } else { rounded } as u16);
        }
    }
}

wide! {
    /// Takes the second where the symbol is not 0.
    fn choose[](kept: &mut [u16], rounded: &[u16], symbols: &[u8]) -> () {
        for ((kept, rounded), symbol) in kept.iter_mut().zip(rounded).zip(symbols) {
            // By bits: chosen by a condition they would be stored under a mask, or one by one.
            *kept ^= (*kept ^ rounded) & u16::from(*symbol != 0).wrapping_neg();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<E: Element>() -> Vec<E> {
        (0..=u16::MAX).map(|bits| E::of_bits(u64::from(bits))).collect()
    }

    fn comes_back<E: Element<A = f32>>() {
        let elements = all::<E>();
        let mut values = vec![0.0; elements.len()];
        widen(&elements, &mut values);
        for (element, value) in elements.iter().zip(&values) {
            assert!(element.to_arith().to_bits() == value.to_bits() || value.is_nan() && element.to_arith().is_nan());
        }
        // Between neighbours, and halfway.
        for nudge in [0u32, 1, 0x7fff, 0x8000, 0x8001, 0x0fff, 0x1000, 0x1001] {
            for (chunk, elements) in values.as_chunks::<64>().0.iter().zip(elements.as_chunks::<64>().0) {
                let moved = chunk.map(|value| f32::from_bits(value.to_bits().wrapping_add(nudge)));
                let (mut kept, mut rounded) = (*elements, *elements);
                narrow(&moved, &[0; 64], &mut kept[..]);
                narrow(&moved, &[1; 64], &mut rounded[..]);
                for k in 0..64 {
                    assert_eq!(kept[k].bits(), elements[k].bits());
                    let expected = E::round(moved[k]);
                    assert!(rounded[k].bits() == expected.bits() || moved[k].is_nan() && !rounded[k].finite());
                }
            }
        }
    }

    #[test]
    fn halves_come_back() {
        comes_back::<f16>();
        comes_back::<bf16>();
    }
}
