//! Exact records: classes and fields, or bytes.

use crate::bytes;
use crate::chunk::Scratch;
use crate::coding::{Coding, Histogram};
use crate::exact::{Cut, ESCAPE, Window};
use crate::float::{Element, ElementType};
use crate::quantize::Against;

/// Everything that the chunks of an exact record of floats share.
pub struct ExactRecord<'a, C> {
    pub cut: C,
    pub window: Window,
    pub coding: &'a Coding,
}

impl<C> ExactRecord<'_, C> {
    /// Appends a chunk.
    pub fn encode<E: Element>(&self, target: &[E], base: Against<'_, E>, scratch: &mut Scratch, out: &mut Vec<u8>)
    where
        C: Cut<E>,
    {
        let Scratch { symbols, fields, escapes, .. } = scratch;
        symbols.clear();
        fields.clear();
        escapes.clear();
        let zeros_too = C::ZEROS_HAVE_FIELDS && !self.coding.skips_zeros();
        for (i, &t) in target.iter().enumerate() {
            let (class, field) = self.cut.cut(t, base.at(i));
            let symbol = self.window.symbol(class);
            symbols.push(symbol);
            if symbol == ESCAPE {
                escapes.extend(class);
            }
            if let Some(class) = class {
                fields.push(field, self.cut.field_width(class));
            } else if zeros_too {
                fields.push(field, self.cut.field_width(0));
            }
        }
        self.coding.encode(symbols, &mut scratch.coding, out);
        write_escapes(E::TYPE, escapes, out);
        fields.write(out);
    }
}

fn write_escapes(element: ElementType, escapes: &[u16], out: &mut Vec<u8>) {
    if element == ElementType::F64 {
        escapes.iter().for_each(|class| out.extend_from_slice(&class.to_le_bytes()));
    } else {
        out.extend(escapes.iter().map(|&class| class as u8));
    }
}

/// Counts the classes of a chunk: `counts[class]`, and last the entries that have none.
pub fn count_classes<E: Element, C: Cut<E>>(cut: C, target: &[E], base: Against<'_, E>, counts: &mut [u64]) {
    let none = counts.len() - 1;
    for (i, &t) in target.iter().enumerate() {
        counts[cut.cut(t, base.at(i)).0.map_or(none, usize::from)] += 1;
    }
}

/// Counts the symbols of a chunk of an exact record.
pub fn count_exact<E: Element, C: Cut<E>>(
    cut: C,
    window: Window,
    target: &[E],
    base: Against<'_, E>,
    scratch: &mut Scratch,
    counts: &mut Histogram,
) {
    let symbols = &mut scratch.symbols;
    symbols.clear();
    symbols.extend(target.iter().enumerate().map(|(i, &t)| window.symbol(cut.cut(t, base.at(i)).0)));
    counts.count(symbols);
}

/// Appends a chunk of a record of bytes.
pub fn encode_bytes(target: &[u8], planes: u8, scratch: &mut Scratch, out: &mut Vec<u8>) {
    bytes::encode(target, planes, &mut scratch.bytes, out);
}
