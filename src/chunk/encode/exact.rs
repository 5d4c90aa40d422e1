//! Exact records: classes and fields, or bytes.

use crate::bytes;
#[cfg(target_arch = "x86_64")]
use crate::checksum::ContentSum;
use crate::checksum::content_sum;
use crate::chunk::Scratch;
use crate::coding::{Coding, Histogram, pack};
#[cfg(target_arch = "x86_64")]
use crate::exact::ExponentClass;
use crate::exact::{Cut, ESCAPE, LaneCut, Window, for_each_class, has_byte_fields, symbols_of};
use crate::float::{Element, ElementType};
#[cfg(target_arch = "x86_64")]
use crate::kernels::GROUP;
#[cfg(target_arch = "x86_64")]
use crate::simd;
use crate::sink::Sink;
use crate::statistics::Against;
use crate::tally::{Tally, tally, total};

/// Everything that the chunks of an exact record of floats share.
pub struct ExactRecord<'a, C> {
    pub cut: C,
    pub window: Window,
    pub coding: &'a Coding,
}

impl<C> ExactRecord<'_, C> {
    /// Appends a chunk; returns its content sum, which is taken after all else is read of the target.
    pub fn encode<E: Element>(
        &self,
        target: &[E],
        base: Against<'_, E>,
        scratch: &mut Scratch,
        out: &mut dyn Sink,
    ) -> u64
    where
        C: LaneCut<E>,
    {
        #[cfg(target_arch = "x86_64")]
        if let Some(sum) = self.encode_fast(target, scratch, out) {
            return sum;
        }
        if E::BITS <= 32 {
            return self.encode_lanes(target, base, scratch, out);
        }
        let Scratch { symbols, fields, escapes, .. } = scratch;
        symbols.clear();
        fields.restart(target.len());
        escapes.clear();
        let zeros_too = C::ZEROS_HAVE_FIELDS && !self.coding.skips_zeros();
        for (i, &t) in target.iter().enumerate() {
            let (class, field) = self.cut.cut(t, base.at(i));
            symbols.push(self.symbol(class, escapes));
            if let Some(class) = class {
                fields.push(field, self.cut.field_width(class));
            } else if zeros_too {
                fields.push(field, self.cut.field_width(0));
            }
        }
        self.coding.encode(symbols, &mut scratch.coding, out);
        write_escapes(E::TYPE, escapes, out);
        fields.write(out);
        content_sum(bytemuck::cast_slice(target))
    }

    /// The same for elements of at most 32 bits.
    fn encode_lanes<E: Element>(
        &self,
        target: &[E],
        base: Against<'_, E>,
        scratch: &mut Scratch,
        out: &mut dyn Sink,
    ) -> u64
    where
        C: LaneCut<E>,
    {
        let Scratch { cuts, escapes, .. } = scratch;
        let zeros_too = C::ZEROS_HAVE_FIELDS && !self.coding.skips_zeros();
        if zeros_too && has_byte_fields::<E>() {
            return self.encode_byte_fields(target, scratch, out);
        }
        cuts.cut::<E, C>(self.window, target, base, zeros_too, escapes);
        self.coding.encode(&cuts.symbols, &mut scratch.coding, out);
        write_escapes(E::TYPE, escapes, out);
        pack(&cuts.fields, &cuts.widths, out);
        content_sum(bytemuck::cast_slice(target))
    }

    /// The same for classes of bfloat16 where every element has a field.
    fn encode_byte_fields<E: Element>(&self, target: &[E], scratch: &mut Scratch, out: &mut dyn Sink) -> u64 {
        let Scratch { cuts, escapes, values, .. } = scratch;
        values.resize(target.len(), 0);
        cuts.cut_bytes(self.window, target, values, escapes);
        self.coding.encode(&cuts.symbols, &mut scratch.coding, out);
        write_escapes(E::TYPE, escapes, out);
        out.put(values);
        content_sum(bytemuck::cast_slice(target))
    }

    #[inline(always)]
    fn symbol(&self, class: Option<u16>, escapes: &mut Vec<u16>) -> u8 {
        let symbol = self.window.symbol(class);
        if symbol == ESCAPE {
            escapes.extend(class);
        }
        symbol
    }

    /// The same for classes of f32 where every element has a field of 24 bits; `None` for others.
    #[cfg(target_arch = "x86_64")]
    fn encode_fast<E: Element>(&self, target: &[E], scratch: &mut Scratch, out: &mut dyn Sink) -> Option<u64>
    where
        C: Cut<E>,
    {
        let fits = C::ZEROS_HAVE_FIELDS && E::TYPE == ElementType::F32 && !self.coding.skips_zeros();
        let avx2 = simd::avx2().filter(|_| fits)?;
        let target: &[f32] = bytemuck::cast_slice(target);
        let Scratch { symbols, escapes, .. } = scratch;
        symbols.resize(target.len(), 0);
        escapes.clear();
        let class = |t: &f32| Cut::<f32>::cut(ExponentClass, *t, 0.0).0;
        let done = target.len() / GROUP * GROUP;
        let top = u8::try_from(self.window.top).ok()?;
        avx2.class_symbols(top, &target[..done], &mut symbols[..done], |target, symbols| {
            target.iter().zip(symbols).for_each(|(t, symbol)| *symbol = self.symbol(class(t), escapes));
        });
        for (t, symbol) in target[done..].iter().zip(&mut symbols[done..]) {
            *symbol = self.symbol(class(t), escapes);
        }
        self.coding.encode(symbols, &mut scratch.coding, out);
        write_escapes(ElementType::F32, escapes, out);
        Some(write_fields(avx2, target, done, out))
    }
}

/// The 24-bit fields of f32, of whole groups up to `done` by vector code. Returns the content sum, taken with the last look at the
/// target.
#[cfg(target_arch = "x86_64")]
fn write_fields(avx2: simd::Avx2, target: &[f32], done: usize, out: &mut dyn Sink) -> u64 {
    let start = out.length();
    let mut sum = ContentSum { bytes: 4 * done as u64, ..ContentSum::default() };
    avx2.class_fields(&target[..done], out.stretch(3 * done + 8), &mut sum.lanes);
    out.cut(start + 3 * done);
    for t in &target[done..] {
        let field = Cut::<f32>::cut(ExponentClass, *t, 0.0).1;
        out.put(&field.to_le_bytes()[..3]);
    }
    sum.update(bytemuck::cast_slice(&target[done..]));
    sum.value()
}

fn write_escapes(element: ElementType, escapes: &[u16], out: &mut dyn Sink) {
    if element == ElementType::F64 {
        escapes.iter().for_each(|class| out.put(&class.to_le_bytes()));
    } else {
        escapes.iter().for_each(|&class| out.put(&[class as u8]));
    }
}

/// Counts the classes of a chunk: `counts[class]`, and last the entries that have none.
pub fn count_classes<E: Element, C: LaneCut<E>>(cut: C, target: &[E], base: Against<'_, E>, counts: &mut [u64]) {
    let none = counts.len() - 1;
    if E::BITS <= 32 {
        let mut tallies = vec![Tally::default(); counts.len()];
        for_each_class::<E, C>(target, base, |classes| tally(classes, &mut tallies));
        tallies.rotate_left(1);
        counts.iter_mut().zip(tallies).for_each(|(count, tally)| *count += total(tally));
        return;
    }
    for (i, &t) in target.iter().enumerate() {
        counts[cut.cut(t, base.at(i)).0.map_or(none, usize::from)] += 1;
    }
}

/// Counts the symbols of a chunk of an exact record.
pub fn count_exact<E: Element, C: LaneCut<E>>(
    cut: C,
    window: Window,
    target: &[E],
    base: Against<'_, E>,
    scratch: &mut Scratch,
    counts: &mut Histogram,
) {
    let symbols = &mut scratch.symbols;
    symbols.clear();
    if E::BITS <= 32 {
        for_each_class::<E, C>(target, base, |classes| {
            let start = symbols.len();
            symbols.resize(start + classes.len(), 0);
            symbols_of(window, classes, &mut symbols[start..]);
        });
    } else {
        symbols.extend(target.iter().enumerate().map(|(i, &t)| window.symbol(cut.cut(t, base.at(i)).0)));
    }
    counts.count(symbols);
}

/// Appends a chunk of a record of bytes.
pub fn encode_bytes(target: &[u8], planes: u8, scratch: &mut Scratch, out: &mut dyn Sink) {
    bytes::encode(target, planes, &mut scratch.bytes, out);
}
