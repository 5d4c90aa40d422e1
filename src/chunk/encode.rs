//! Elements -> stored bytes, the base becoming the reconstruction on the way.

use super::Scratch;
use crate::bytes;
use crate::checksum::content_sum;
use crate::coding::{Coding, Histogram};
use crate::delta::Domain;
use crate::exact::{Cut, ESCAPE, Window};
use crate::float::{Arith, Element, ElementType};
use crate::quantize::{Against, Coded, Encoding};
use crate::wire::put_varint;

/// What became of a chunk.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EncodedChunk {
    /// Bytes appended; `None`: the chunk is unchanged from the base.
    pub length: Option<usize>,
    /// Content sum of the reconstruction.
    pub sum: u64,
    pub errors: Squares,
}

/// Sums of squares over finite entries, for the error of a record.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Squares {
    /// Of reconstruction - target.
    pub error: f64,
    /// Of target - previous reconstruction.
    pub delta: f64,
}

impl Squares {
    pub fn add(&mut self, next: Squares) {
        self.error += next.error;
        self.delta += next.delta;
    }

    /// The error of the record: 0/0 is 0, and what cannot be told is infinite.
    pub fn error_of_record(self) -> f32 {
        if self.error == 0.0 {
            return 0.0;
        }
        let ratio = (self.error / self.delta).sqrt() as f32;
        if ratio.is_nan() { f32::INFINITY } else { ratio }
    }
}

/// Sums squares of differences in eight lanes, entry i in lane i mod 8.
#[derive(Default)]
struct Lanes([f64; 8]);

impl Lanes {
    #[inline(always)]
    fn add(&mut self, i: usize, a: f64, b: f64) {
        let difference = a - b;
        if difference.is_finite() {
            self.0[i % 8] += difference * difference;
        }
    }

    fn total(&self) -> f64 {
        let l = self.0;
        ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
    }
}

fn sum_of_squares<E: Element>(target: &[E], other: &[E]) -> f64 {
    let mut lanes = Lanes::default();
    for (i, (t, o)) in target.iter().zip(other).enumerate() {
        lanes.add(i, t.to_arith().to_f64(), o.to_arith().to_f64());
    }
    lanes.total()
}

/// Everything that the chunks of a lossy record share.
pub struct LossyRecord<'a, E: Element, D: Domain<E>> {
    pub encoding: &'a Encoding<E, D>,
    pub coding: &'a Coding,
    /// The base is zero, not the previous reconstruction.
    pub from_zero: bool,
    pub exceptions: bool,
}

impl<E: Element, D: Domain<E>> LossyRecord<'_, E, D> {
    /// Appends a chunk; `base` goes in as the previous reconstruction and comes out as the new one.
    pub fn encode(&self, target: &[E], base: &mut [E], scratch: &mut Scratch, out: &mut Vec<u8>) -> EncodedChunk {
        let start = out.len();
        let delta = sum_of_squares(target, base);
        if self.from_zero {
            base.fill(E::ZERO);
        }
        let changed = self.quantize(target, base, scratch);
        let errors = Squares { error: sum_of_squares(target, base), delta };
        let sum = content_sum(bytemuck::cast_slice(base));
        if !changed && !self.from_zero {
            return EncodedChunk { length: None, sum, errors };
        }
        if self.exceptions {
            write_exceptions(base, &scratch.exceptions, out);
        }
        self.coding.encode(&scratch.symbols, &mut scratch.coding, out);
        scratch.fields.write(out);
        EncodedChunk { length: Some(out.len() - start), sum, errors }
    }

    /// Fills the symbols, fields and exceptions of the chunk and updates the base. Tells whether anything has changed.
    fn quantize(&self, target: &[E], base: &mut [E], scratch: &mut Scratch) -> bool {
        let Scratch { symbols, fields, exceptions, .. } = scratch;
        symbols.clear();
        fields.clear();
        exceptions.clear();
        let refined = self.encoding.quantizer.refinement() > 0;
        let mut changed = false;
        for (i, (&t, b)) in target.iter().zip(base).enumerate() {
            let mut stored = 0;
            match self.encoding.code(t, *b) {
                Coded::Kept => {}
                Coded::Symbol { symbol, field, element } => {
                    stored = symbol;
                    changed = true;
                    *b = element;
                    if refined {
                        fields.push(field, self.encoding.quantizer.field_width(symbol));
                    }
                }
                Coded::Exception => {
                    changed = true;
                    *b = t;
                    exceptions.push(i as u32);
                }
            }
            symbols.push(stored);
        }
        changed
    }
}

fn write_exceptions<E: Element>(elements: &[E], positions: &[u32], out: &mut Vec<u8>) {
    put_varint(out, positions.len() as u64);
    let mut next = 0;
    for &position in positions {
        put_varint(out, u64::from(position - next));
        next = position + 1;
    }
    for &position in positions {
        out.extend_from_slice(bytemuck::bytes_of(&elements[position as usize]));
    }
}

/// Counts the symbols of a chunk without changing anything. Returns the exceptions.
pub fn count_lossy<E: Element, D: Domain<E>>(
    encoding: &Encoding<E, D>,
    target: &[E],
    base: Against<'_, E>,
    scratch: &mut Scratch,
    counts: &mut Histogram,
) -> u64 {
    let symbols = &mut scratch.symbols;
    symbols.clear();
    let mut exceptions = 0;
    for (i, &t) in target.iter().enumerate() {
        symbols.push(match encoding.code(t, base.at(i)) {
            Coded::Symbol { symbol, .. } => symbol,
            Coded::Kept => 0,
            Coded::Exception => {
                exceptions += 1;
                0
            }
        });
    }
    counts.count(symbols);
    exceptions
}

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
