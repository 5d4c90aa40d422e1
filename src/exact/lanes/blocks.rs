//! The loops over a chunk's entries, block by block.

use super::LaneCut;
use crate::exact::WINDOW;
use crate::float::Element;
use crate::simd::wide;
use crate::statistics::Against;
use std::marker::PhantomData;

/// Entries that are cut or joined together.
const BLOCK: usize = 32;

wide! {
    pub(super) fn cut_all[E: Element, C: LaneCut<E>](
        cut: C,
        rule: (u32, bool),
        target: &[E],
        base: Against<'_, E>,
        to: (&mut [u8], &mut [u8], &mut [u32]),
    ) -> () {
        let _ = cut;
        let ((top, zeros_too), (symbols, widths, fields)) = (rule, to);
        let bases = match base {
            Against::Base(base) => base.as_chunks().0,
            Against::Zero => &[],
        };
        let zeros = [E::ZERO; BLOCK];
        let (blocks, rest) = target.as_chunks();
        let outputs = symbols.as_chunks_mut().0.iter_mut().zip(widths.as_chunks_mut().0).zip(fields.as_chunks_mut().0);
        for (number, (target, ((symbols, widths), fields))) in blocks.iter().zip(outputs).enumerate() {
            let base = bases.get(number).unwrap_or(&zeros);
            cut_block::<E, C, BLOCK>(top, zeros_too, target, base, (symbols, widths, fields));
        }
        for (k, &t) in rest.iter().enumerate() {
            let i = BLOCK * blocks.len() + k;
            let to = (std::array::from_mut(&mut symbols[i]), std::array::from_mut(&mut widths[i]), std::array::from_mut(&mut fields[i]));
            cut_block::<E, C, 1>(top, zeros_too, &[t], &[base.at(i)], to);
        }
    }
}

wide! {
    /// Symbols and fields of bfloat16: of 16-bit integers alone.
    pub(super) fn cut_bytes[](top: u16, target: &[u16], symbols: &mut [u8], fields: &mut [u8]) -> () {
        for ((&bits, symbol), field) in target.iter().zip(symbols).zip(fields) {
            let below = top.wrapping_sub(bits >> 7 & 0xff).min(WINDOW) as u8 + 1;
            *symbol = if bits == 0 { 0 } else { below };
            *field = (bits & 0x7f | bits >> 8 & 0x80) as u8;
        }
    }
}

wide! {
    /// The same, joined. Whether an entry without a class has a field that is not 0.
    pub(super) fn join_bytes[](symbols: &[u8], classes: &[u8], fields: &[u8], target: &mut [u16]) -> bool {
        let mut dirty = 0;
        for (((&symbol, &class), &field), bits) in symbols.iter().zip(classes).zip(fields).zip(target) {
            let sign = u16::from(field & 0x80) << 8;
            *bits = sign | u16::from(class) << 7 | u16::from(field & 0x7f);
            dirty |= if symbol == 0 { field } else { 0 };
        }
        dirty != 0
    }
}

wide! {
    pub(super) fn classify_all[E: Element, C: LaneCut<E>](
        element: PhantomData<E>,
        cut: C,
        rule: (u8, u8),
        symbols: &[u8],
        classes: &mut [u8],
        widths: &mut [u8],
    ) -> () {
        let _ = (element, cut);
        let (above, zero_width) = rule;
        for ((&symbol, class), width) in symbols.iter().zip(classes).zip(widths) {
            *class = if symbol == 0 { 0 } else { above.wrapping_sub(symbol) };
            *width = if symbol == 0 { zero_width } else { C::width(*class) };
        }
    }
}

wide! {
    /// Whether an entry without a class has a field that is not 0.
    pub(super) fn join_all[E: Element, C: LaneCut<E>](
        cut: C,
        symbols: &[u8],
        classes: &[u8],
        fields: &[u32],
        base: &mut [E],
    ) -> bool {
        let _ = cut;
        let zero_field = ((1u64 << C::width(0)) - 1) as u32;
        let mut dirty = 0;
        let (blocks, rest) = base.as_chunks_mut::<BLOCK>();
        let done = BLOCK * blocks.len();
        let inputs = symbols.as_chunks().0.iter().zip(classes.as_chunks().0).zip(fields.as_chunks().0);
        for (((symbols, classes), fields), base) in inputs.zip(blocks) {
            dirty |= join_block::<E, C, BLOCK>(zero_field, symbols, classes, fields, base);
        }
        let inputs = symbols[done..].iter().zip(&classes[done..]).zip(&fields[done..]);
        for (((&symbol, &class), &field), b) in inputs.zip(rest) {
            let base = std::array::from_mut(b);
            dirty |= join_block::<E, C, 1>(zero_field, &[symbol], &[class], &[field], base);
        }
        dirty != 0
    }
}

/// Joins a block. Returns the bits of fields of entries without a class.
#[inline(always)]
fn join_block<E: Element, C: LaneCut<E>, const N: usize>(
    zero_field: u32,
    symbols: &[u8; N],
    classes: &[u8; N],
    fields: &[u32; N],
    base: &mut [E; N],
) -> u32 {
    let mut dirty = 0;
    for i in 0..N {
        let none = u32::from(symbols[i] == 0).wrapping_neg();
        base[i] = C::join_lane(u32::from(classes[i]), fields[i], base[i], none);
        dirty |= fields[i] & zero_field & none;
    }
    dirty
}

/// Symbols, widths and fields of a block.
#[inline(always)]
fn cut_block<E: Element, C: LaneCut<E>, const N: usize>(
    top: u32,
    zeros_too: bool,
    target: &[E; N],
    base: &[E; N],
    (symbols, widths, fields): (&mut [u8; N], &mut [u8; N], &mut [u32; N]),
) {
    // Arrays of their own, or the compiler makes no vectors of them.
    let (mut all_symbols, mut all_widths, mut all_fields) = ([0; N], [0; N], [0; N]);
    for i in 0..N {
        let lane = C::cut_lane(target[i], base[i]);
        let below = top.wrapping_sub(lane.class).min(u32::from(WINDOW)) + 1;
        all_symbols[i] = if lane.none { 0 } else { below as u8 };
        all_widths[i] = if lane.none && !zeros_too { 0 } else { lane.width as u8 };
        all_fields[i] = lane.field;
    }
    (*symbols, *widths, *fields) = (all_symbols, all_widths, all_fields);
}
