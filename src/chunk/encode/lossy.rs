//! Lossy records: quantize against the base, then code the symbols.

use super::squares::{Measured, Segment, sum_of_squares, sum_of_squares_in};
use super::{EncodedChunk, Squares};
use crate::checksum::ContentSum;
#[cfg(target_arch = "x86_64")]
use crate::checksum::Lanes;
use crate::chunk::Scratch;
use crate::coding::{Coding, Fields, Histogram};
use crate::delta::Domain;
use crate::float::Element;
#[cfg(target_arch = "x86_64")]
use crate::halves::{self, BLOCK};
use crate::kernels::GROUP;
#[cfg(target_arch = "x86_64")]
use crate::kernels::{FastTable, ValueTable};
use crate::quantize::{Coded, Encoding};
#[cfg(target_arch = "x86_64")]
use crate::simd::{
    self,
    ahead::{Ahead, LINE},
};
use crate::sink::Sink;
use crate::statistics::Against;
use crate::wire::put_varint;

/// Everything that the chunks of a lossy record share.
pub struct LossyRecord<'a, E: Element, D: Domain<E>> {
    pub encoding: &'a Encoding<E, D>,
    pub coding: &'a Coding,
    /// The base is zero, not the previous reconstruction.
    pub from_zero: bool,
    /// Whether a chunk that equals its base is only marked as unchanged.
    pub leaves_unchanged: bool,
    pub exceptions: bool,
    pub measured: Measured,
}

/// What is told of a chunk that has been quantized.
pub(super) struct Quantized {
    /// Of the reconstruction.
    pub sum: u64,
    pub errors: Squares,
    /// Whether an entry of the target is not finite.
    pub not_finite: bool,
}

impl<E: Element, D: Domain<E>> LossyRecord<'_, E, D> {
    /// Appends a chunk; `base` goes in as the previous reconstruction and comes out as the new one.
    pub fn encode(&self, target: &[E], base: &mut [E], scratch: &mut Scratch, out: &mut dyn Sink) -> EncodedChunk {
        let start = out.length();
        let Quantized { sum, errors, not_finite } = self.quantize(target, base, scratch);
        let unchanged = scratch.exceptions.is_empty() && scratch.symbols.iter().all(|symbol| *symbol == 0);
        if unchanged && self.leaves_unchanged {
            return EncodedChunk { length: None, sum, errors, not_finite };
        }
        if self.exceptions {
            write_exceptions(base, &scratch.exceptions, out);
        }
        scratch.coding.unfit |= !self.exceptions && !scratch.exceptions.is_empty();
        self.coding.encode(&scratch.symbols, &mut scratch.coding, out);
        scratch.fields.write(out);
        EncodedChunk { length: Some(out.length() - start), sum, errors, not_finite }
    }

    /// Fills the symbols, fields and exceptions of the chunk and updates the base.
    pub(super) fn quantize(&self, target: &[E], base: &mut [E], scratch: &mut Scratch) -> Quantized {
        scratch.symbols.resize(target.len(), 0);
        let refined = self.encoding.quantizer.refinement() > 0;
        scratch.fields.restart(if refined { target.len() } else { 0 });
        scratch.exceptions.clear();
        let (mut sum, mut errors, mut not_finite) = (ContentSum::default(), Squares::default(), false);
        for Segment { entries, measured } in self.measured.segments(target.len()) {
            let (at, target, base) = (entries.start, &target[entries.clone()], &mut base[entries]);
            // While the segment is in cache.
            if measured {
                errors.delta += sum_of_squares(target, base);
            }
            if self.from_zero {
                base.fill(E::ZERO);
            }
            not_finite |= self.quantize_segment(at, target, base, scratch, &mut sum);
            if measured {
                errors.error += sum_of_squares(target, base);
            }
        }
        Quantized { sum: sum.value(), errors, not_finite }
    }

    /// `at`: the position of the first entry in its chunk. Tells whether an entry is not finite: no fast loop takes one.
    fn quantize_segment(
        &self,
        at: usize,
        target: &[E],
        base: &mut [E],
        scratch: &mut Scratch,
        sum: &mut ContentSum,
    ) -> bool {
        let Scratch { symbols, fields, exceptions, .. } = scratch;
        let symbols = &mut symbols[at..at + target.len()];
        let mut plain = PlainLoop { encoding: self.encoding, fields, exceptions, not_finite: false };
        let done = self.quantize_fast(at, target, base, symbols, &mut plain, sum);
        plain.run(at + done, &target[done..], &mut base[done..], &mut symbols[done..]);
        sum.update(bytemuck::cast_slice(&base[done..]));
        plain.not_finite
    }

    /// Does as many entries from the first on as the vector code can; tells how many.
    fn quantize_fast(
        &self,
        start: usize,
        target: &[E],
        base: &mut [E],
        symbols: &mut [u8],
        plain: &mut PlainLoop<'_, E, D>,
        sum: &mut ContentSum,
    ) -> usize {
        let done = target.len() / GROUP * GROUP;
        #[cfg(target_arch = "x86_64")]
        if let (Some(avx2), Some(table)) = (simd::avx2(), &self.encoding.fast_table)
            && done > 0
        {
            let (target, base, symbols) = (&target[..done], &mut base[..done], &mut symbols[..done]);
            match table {
                FastTable::Value(table) if halves::are_halves::<E>() => {
                    self.quantize_halves(avx2, table, (start, target), base, symbols, plain);
                    sum.update(bytemuck::cast_slice(base));
                    return done;
                }
                FastTable::Value(table) => {
                    let (target, base) = (bytemuck::cast_slice(target), bytemuck::cast_slice_mut(base));
                    avx2.quantize_values(table, target, base, symbols, &mut sum.lanes, |at, t, b, s| {
                        plain.group(start + at, t, b, s)
                    });
                }
                FastTable::Ordered(table) => {
                    let (target, base) = (bytemuck::cast_slice(target), bytemuck::cast_slice_mut(base));
                    avx2.quantize_ordered(table, target, base, symbols, &mut sum.lanes, |at, t, b, s| {
                        plain.group(start + at, t, b, s)
                    });
                }
            }
            sum.bytes += (done * size_of::<E>()) as u64;
            return done;
        }
        let _ = (start, base, symbols, plain, sum, done);
        0
    }

    /// The same for 16-bit floats, whole groups, by way of f32. `target`: with the position of its first entry.
    #[cfg(target_arch = "x86_64")]
    fn quantize_halves(
        &self,
        avx2: simd::Avx2,
        table: &ValueTable,
        (start, target): (usize, &[E]),
        base: &mut [E],
        symbols: &mut [u8],
        plain: &mut PlainLoop<'_, E, D>,
    ) {
        let (mut after, mut before) = ([0.0; BLOCK], [0.0; BLOCK]);
        // What is widened next is on its way meanwhile.
        let mut ahead = Ahead::of(target, base);
        ahead.step(BLOCK * size_of::<E>() / LINE);
        let blocks = target.chunks(BLOCK).zip(base.chunks_mut(BLOCK)).zip(symbols.chunks_mut(BLOCK));
        for (number, ((target, base), symbols)) in blocks.enumerate() {
            let at = start + number * BLOCK;
            ahead.step(size_of_val(target) / LINE);
            let (after, before) = (&mut after[..target.len()], &mut before[..target.len()]);
            halves::widen(target, after);
            halves::widen(base, before);
            if !halves::are_small::<E>(after, before) {
                plain.run(at, target, base, symbols);
                continue;
            }
            avx2.quantize_values(table, after, before, symbols, &mut Lanes::default(), |k, _, wide, symbols| {
                let base = &mut base[k..k + GROUP];
                plain.run(at + k, &target[k..k + GROUP], base, symbols);
                halves::widen(base, wide);
            });
            halves::narrow(before, symbols, base);
        }
    }
}

/// Entry by entry: the twin of every fast loop, and what does the rest.
pub(super) struct PlainLoop<'a, E: Element, D: Domain<E>> {
    pub encoding: &'a Encoding<E, D>,
    pub fields: &'a mut Fields,
    pub exceptions: &'a mut Vec<u32>,
    /// Whether an entry of a target was not finite.
    pub not_finite: bool,
}

impl<E: Element, D: Domain<E>> PlainLoop<'_, E, D> {
    /// A group that a fast loop hands over; `T` is as wide as an element.
    #[cfg(target_arch = "x86_64")]
    fn group<T: bytemuck::Pod>(&mut self, at: usize, target: &[T], base: &mut [T], symbols: &mut [u8]) {
        self.run(at, bytemuck::cast_slice(target), bytemuck::cast_slice_mut(base), symbols);
    }

    /// `at`: the position of the first entry in its chunk.
    pub fn run(&mut self, at: usize, target: &[E], base: &mut [E], symbols: &mut [u8]) {
        let quantizer = &self.encoding.quantizer;
        let refined = quantizer.refinement() > 0;
        for (i, ((&t, b), stored)) in target.iter().zip(base).zip(symbols).enumerate() {
            *stored = 0;
            self.not_finite |= !t.finite();
            match self.encoding.code(t, *b) {
                Coded::Kept => {}
                Coded::Symbol { symbol, field, element } => {
                    *stored = symbol;
                    *b = element;
                    if refined {
                        self.fields.push(field, quantizer.field_width(symbol));
                    }
                }
                Coded::Exception => {
                    *b = t;
                    self.exceptions.push((at + i) as u32);
                }
            }
        }
    }
}

fn write_exceptions<E: Element>(elements: &[E], positions: &[u32], out: &mut dyn Sink) {
    put_varint(out, positions.len() as u64);
    let mut next = 0;
    for &position in positions {
        put_varint(out, u64::from(position - next));
        next = position + 1;
    }
    for &position in positions {
        out.put(bytemuck::bytes_of(&elements[position as usize]));
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
    try_out(encoding, target, base, scratch, |_| ());
    counts.count(&scratch.symbols);
    scratch.exceptions.len() as u64
}

/// The sum of squares of target - reconstruction of a chunk, in domain `M`, without changing anything.
pub fn squared_error_of<E: Element, D: Domain<E>, M: Domain<E>>(
    encoding: &Encoding<E, D>,
    target: &[E],
    base: Against<'_, E>,
    scratch: &mut Scratch,
) -> f64 {
    try_out(encoding, target, base, scratch, |reconstruction| sum_of_squares_in(M::new(), target, reconstruction))
}

/// Quantizes a chunk; what it becomes is only shown to `look`.
fn try_out<E: Element, D: Domain<E>, R>(
    encoding: &Encoding<E, D>,
    target: &[E],
    base: Against<'_, E>,
    scratch: &mut Scratch,
    look: impl FnOnce(&[E]) -> R,
) -> R {
    let record = LossyRecord {
        encoding,
        coding: &Coding::Constant(0),
        from_zero: matches!(base, Against::Zero),
        leaves_unchanged: false,
        exceptions: true,
        measured: Measured::Nothing,
    };
    scratch.with_room(target.len(), |content, scratch| {
        if let Against::Base(base) = base {
            content.copy_from_slice(base);
        }
        record.quantize(target, content, scratch);
        look(content)
    })
}
