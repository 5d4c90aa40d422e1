//! Whole chunks cut and joined at once, for elements of at most 32 bits: without branches, so that the compiler makes vector
//! code of it. The twin, entry by entry, is [`Cut`].

mod blocks;

use super::{Cut, Difference, ESCAPE, ExponentClass, WINDOW, Window};
use crate::float::Element;
use crate::simd::marks::{for_each_mark, mark_from};
use crate::simd::wide;
use crate::statistics::Against;
use blocks::{classify_all, cut_all, cut_bytes, join_all, join_bytes};
use std::marker::PhantomData;

/// Whether all fields of classes of this type are a byte, as bfloat16's are: of mantissa and sign.
pub const fn has_byte_fields<E: Element>() -> bool {
    E::BITS == 16 && E::MANTISSA_BITS == 7
}

/// An entry in 32-bit integers. An entry without a class has class 0 and no field, whatever `field` and `width` say.
pub struct Lane {
    class: u32,
    field: u32,
    width: u32,
    none: bool,
}

/// A cut that does not branch.
pub trait LaneCut<E: Element>: Cut<E> + Default {
    fn cut_lane(target: E, base: E) -> Lane;
    /// The entry again. `raw` has the field in its low bits; other bits do not count. With all bits of `none` set it has no class,
    /// which is then 0, and is as its base: +0.0 where the base plays no part.
    fn join_lane(class: u32, raw: u32, base: E, none: u32) -> E;
    /// Width of the field of an entry with this class.
    fn width(class: u8) -> u8;
    /// One more than the highest class that [`LaneCut::join_lane`] takes; from 1 on, or from 0.
    const JOINED: std::ops::Range<u32>;
}

/// All bits of an element but the sign.
const fn magnitude_bits<E: Element>() -> u32 {
    (1 << (E::BITS - 1)) - 1
}

/// As [`Element::ordered`].
#[inline(always)]
fn ordered<E: Element>(element: E) -> i32 {
    let bits = element.signed_bits() as i32;
    bits ^ (bits >> 31) & magnitude_bits::<E>() as i32
}

/// The 32 bits as an integer of the element's width.
#[inline(always)]
fn wrap<E: Element>(value: i32) -> i32 {
    value << (32 - E::BITS) >> (32 - E::BITS)
}

impl<E: Element> LaneCut<E> for Difference {
    const JOINED: std::ops::Range<u32> = 1..E::BITS;

    #[inline(always)]
    fn cut_lane(target: E, base: E) -> Lane {
        let difference = wrap::<E>(ordered(target).wrapping_sub(ordered(base)));
        let magnitude = difference.unsigned_abs();
        // The exponent of a float tells the length; without the second bit nothing is rounded up.
        let rounded = (magnitude & !(magnitude >> 1)) as i32 as f32;
        let length = (rounded.to_bits() >> 23 & 0xff).max(126) - 126;
        let top = (1u32.wrapping_shl(length.wrapping_sub(1))) & magnitude;
        let sign = if difference < 0 { top } else { 0 };
        Lane { class: length, field: (magnitude ^ top) | sign, width: length, none: difference == 0 }
    }

    #[inline(always)]
    fn join_lane(class: u32, raw: u32, base: E, _none: u32) -> E {
        // With class 0 the difference is 0: nothing is chosen, for a store of only some entries is slow on many processors.
        let field = raw & (1u32.wrapping_shl(class)).wrapping_sub(1);
        let top = 1u32.wrapping_shl(class) >> 1;
        let magnitude = (field | top) as i32;
        let difference = if field & top != 0 { magnitude.wrapping_neg() } else { magnitude };
        let integer = wrap::<E>(ordered(base).wrapping_add(difference));
        let bits = integer ^ (integer >> 31) & magnitude_bits::<E>() as i32;
        E::of_bits(u64::from(bits as u32))
    }

    #[inline(always)]
    fn width(class: u8) -> u8 {
        class
    }
}

impl<E: Element> LaneCut<E> for ExponentClass {
    const JOINED: std::ops::Range<u32> = 0..1 << E::EXPONENT_BITS;

    #[inline(always)]
    fn cut_lane(target: E, _base: E) -> Lane {
        let bits = target.bits() as u32;
        let class = bits >> E::MANTISSA_BITS & ((1 << E::EXPONENT_BITS) - 1);
        let sign = bits >> (E::BITS - 1) << E::MANTISSA_BITS;
        let field = bits & ((1 << E::MANTISSA_BITS) - 1) | sign;
        Lane { class, field, width: E::MANTISSA_BITS + 1, none: bits == 0 }
    }

    #[inline(always)]
    fn join_lane(class: u32, raw: u32, _base: E, none: u32) -> E {
        let raw = raw & !none;
        let mantissa = raw & ((1 << E::MANTISSA_BITS) - 1);
        let sign = raw >> E::MANTISSA_BITS & 1;
        E::of_bits(u64::from(sign << (E::BITS - 1) | class << E::MANTISSA_BITS | mantissa))
    }

    #[inline(always)]
    fn width(_class: u8) -> u8 {
        E::MANTISSA_BITS as u8 + 1
    }
}

/// The entries of a chunk, cut or to be joined; kept from chunk to chunk.
#[derive(Default)]
pub struct Cuts {
    pub symbols: Vec<u8>,
    /// Width of each entry's field; 0 where it has none.
    pub widths: Vec<u8>,
    /// The fields; where they have been read, with other bits above them.
    pub fields: Vec<u32>,
    /// Where the symbols are escapes.
    pub escaped: Vec<u32>,
    pub marks: Vec<u64>,
    classes: Vec<u8>,
}

impl Cuts {
    /// Cuts all entries. `zeros_too`: entries without a class have a field. Classes outside the window go to `escapes`.
    pub fn cut<E: Element, C: LaneCut<E>>(
        &mut self,
        window: Window,
        target: &[E],
        base: Against<'_, E>,
        zeros_too: bool,
        escapes: &mut Vec<u16>,
    ) {
        let Cuts { symbols, widths, fields, escaped, marks, .. } = self;
        let (top, entries) = (u32::from(window.top), target.len());
        symbols.resize(entries, 0);
        widths.resize(entries, 0);
        fields.resize(entries, 0);
        cut_all(C::default(), (top, zeros_too), target, base, (symbols, widths, fields));
        find_escapes(symbols, marks, escaped);
        escapes.clear();
        let places = escaped.iter().map(|&i| i as usize);
        escapes.extend(places.map(|i| C::cut_lane(target[i], base.at(i)).class as u16));
    }

    /// The same by exponent classes where each entry has a field, of a byte ([`has_byte_fields`]): that is at `fields`.
    pub fn cut_bytes<E: Element>(&mut self, window: Window, target: &[E], fields: &mut [u8], escapes: &mut Vec<u16>) {
        let Cuts { symbols, escaped, marks, .. } = self;
        symbols.resize(target.len(), 0);
        cut_bytes(window.top, bytemuck::cast_slice(target), symbols, fields);
        find_escapes(symbols, marks, escaped);
        escapes.clear();
        escapes.extend(escaped.iter().map(|&i| target[i as usize].exponent_field() as u16));
    }

    /// Finds the classes and the widths of the fields of entries with these symbols. `false` where a class is none that
    /// [`LaneCut::join_lane`] takes. The symbols are at most 15; `escapes`: the classes of those in [`Cuts::escaped`].
    pub fn classify<E: Element, C: LaneCut<E>>(
        &mut self,
        window: Window,
        symbols: &[u8],
        zeros_too: bool,
        escapes: &[u16],
    ) -> bool {
        let Cuts { widths, classes, escaped, .. } = self;
        let joined = |class: u16| C::JOINED.contains(&u32::from(class));
        if !joined(window.top) || !escapes.iter().all(|class| joined(*class)) {
            return false;
        }
        // A low window holds fewer than 14 classes: no symbol may stand for one below them.
        let most = (u32::from(window.top) + 1 - C::JOINED.start).min(u32::from(WINDOW)) as u8;
        if most < WINDOW as u8 && has_between(symbols, most, ESCAPE) {
            return false;
        }
        widths.resize(symbols.len(), 0);
        classes.resize(symbols.len(), 0);
        let above = (window.top as u8).wrapping_add(1);
        let zero_width = if zeros_too { C::width(0) } else { 0 };
        classify_all(PhantomData::<E>, C::default(), (above, zero_width), symbols, classes, widths);
        for (&i, class) in escaped.iter().zip(escapes) {
            classes[i as usize] = *class as u8;
            widths[i as usize] = C::width(*class as u8);
        }
        true
    }

    /// Joins classes and fields; entries without a class are the base's. `false` if one of these has a field that is not 0.
    pub fn join<E: Element, C: LaneCut<E>>(&self, symbols: &[u8], zeros_too: bool, base: &mut [E]) -> bool {
        !join_all(C::default(), symbols, &self.classes, &self.fields, base) || !zeros_too
    }

    /// As [`Cuts::join`] of exponent classes where each entry has a field, of a byte.
    pub fn join_bytes<E: Element>(&self, symbols: &[u8], fields: &[u8], target: &mut [E]) -> bool {
        !join_bytes(symbols, &self.classes, fields, bytemuck::cast_slice_mut(target))
    }
}

/// Entries whose classes are found at once.
const FOUND: usize = 256;

/// Calls `found` with one more than the class of each entry, 0 for those without, some at a time.
pub fn for_each_class<E: Element, C: LaneCut<E>>(target: &[E], base: Against<'_, E>, mut found: impl FnMut(&[u16])) {
    let (mut classes, zeros) = ([0; FOUND], [E::ZERO; FOUND]);
    for (number, target) in target.chunks(FOUND).enumerate() {
        let classes = &mut classes[..target.len()];
        let base = match base.part(FOUND * number, target.len()) {
            Against::Base(base) => base,
            Against::Zero => &zeros[..target.len()],
        };
        find_classes(C::default(), target, base, classes);
        found(classes);
    }
}

wide! {
    fn find_classes[E: Element, C: LaneCut<E>](cut: C, target: &[E], base: &[E], classes: &mut [u16]) -> () {
        let _ = cut;
        for ((&t, &b), class) in target.iter().zip(base).zip(classes) {
            let lane = C::cut_lane(t, b);
            *class = if lane.none { 0 } else { lane.class as u16 + 1 };
        }
    }
}

wide! {
    /// As [`Window::symbol`], of one more than each class, or 0.
    pub fn symbols_of[](window: Window, classes: &[u16], symbols: &mut [u8]) -> () {
        let above = window.top.wrapping_add(1);
        for (&class, symbol) in classes.iter().zip(symbols) {
            let below = above.wrapping_sub(class).min(WINDOW) as u8 + 1;
            *symbol = if class == 0 { 0 } else { below };
        }
    }
}

wide! {
    /// Whether there is a symbol above one and below another.
    fn has_between[](symbols: &[u8], low: u8, high: u8) -> bool {
        // Without a way out, or it is done symbol by symbol.
        symbols.iter().fold(false, |found, &symbol| found | (symbol > low && symbol < high))
    }
}

/// Where the symbol is an escape, the highest of all.
pub fn find_escapes(symbols: &[u8], marks: &mut Vec<u64>, positions: &mut Vec<u32>) {
    positions.clear();
    mark_from(symbols, ESCAPE, marks);
    for_each_mark(marks, |place| positions.push(place as u32));
}

#[cfg(test)]
mod tests;
