//! Stored bytes -> elements.

use super::{Scratch, with_scratch};
use crate::bytes;
use crate::checksum::{ContentSum, content_sum};
use crate::coding::{Coding, Decoding};
use crate::delta::{Domain, Ordered, Value};
use crate::error::{Flaw, Parsed};
use crate::exact::{Cut, Difference, ESCAPE, ExponentClass, WINDOW, Window};
use crate::float::{Arith, Element, ElementType, Wide};
use crate::header::{Base, Kind, LossyDomain, Meaning, RecordHeader};
#[cfg(target_arch = "x86_64")]
use crate::kernels::GROUP;
use crate::quantize::Quantizer;
#[cfg(target_arch = "x86_64")]
use crate::simd;
use crate::view::elements_mut;
use crate::wire::Reader;

/// A record of floats made ready to decode its chunks.
pub struct ChunkDecoder<E: Element> {
    rule: Rule<E>,
    decoding: Option<Decoding>,
    from_zero: bool,
    exceptions: bool,
    /// Of lossy f32 values without refinement, by symbol; that of 0 is -0.0.
    representatives: Option<[f32; 16]>,
}

enum Rule<E: Element> {
    Value(Quantizer<E, Value>),
    Ordered(Quantizer<E, Ordered<false>>),
    NonNegative(Quantizer<E, Ordered<true>>),
    Classes(Window),
    Difference(Window),
    Bytes(u8),
    /// Nothing is decoded: same or link.
    Nothing,
}

impl<E: Element> ChunkDecoder<E> {
    pub fn new(header: &RecordHeader) -> Self {
        let (rule, decoding) = match &header.kind {
            Kind::Same | Kind::Link(_) => (Rule::Nothing, None),
            Kind::Bytes { planes } => (Rule::Bytes(*planes), None),
            Kind::Classes { highest, top, coding } => {
                (Rule::Classes(Window { top: *top }), Some(Decoding::new(coding.clone(), *highest)))
            }
            Kind::Difference { highest, top, coding } => {
                (Rule::Difference(Window { top: *top }), Some(Decoding::new(coding.clone(), *highest)))
            }
            Kind::Lossy { domain, refinement, meaning, coding, .. } => {
                let refinement = u32::from(*refinement);
                let rule = match domain {
                    LossyDomain::Value => Rule::Value(value_quantizer(meaning, refinement)),
                    LossyDomain::Ordered => Rule::Ordered(ordered_quantizer(meaning, refinement)),
                    LossyDomain::OrderedNonNegative => Rule::NonNegative(ordered_quantizer(meaning, refinement)),
                };
                (rule, Some(Decoding::new(coding.clone(), meaning.symbols())))
            }
        };
        // In a record of classes the base serves unchanged chunks only.
        let from_zero = header.base == Base::Zero || matches!(rule, Rule::Classes(_));
        let representatives = representatives_of(&rule);
        ChunkDecoder { rule, decoding, from_zero, exceptions: header.exceptions, representatives }
    }

    /// Turns `base` (previous, own or predicted, as the header says; anything if zero) into the reconstruction. If `sum` is
    /// asked for, returns the content sum.
    pub fn decode(&self, stored: &[u8], base: &mut [E], sum: bool, scratch: &mut Scratch) -> Parsed<u64> {
        let mut taken = None;
        if let Rule::Bytes(planes) = self.rule {
            bytes::decode(stored, planes, &mut scratch.bytes, bytemuck::cast_slice_mut(base))?;
        } else {
            taken = self.decode_symbols(stored, base, sum, scratch)?;
        }
        Ok(taken.unwrap_or_else(|| if sum { content_sum(bytemuck::cast_slice(base)) } else { 0 }))
    }

    /// The sum, if it could be taken on the way.
    fn decode_symbols(&self, stored: &[u8], base: &mut [E], sum: bool, scratch: &mut Scratch) -> Parsed<Option<u64>> {
        let mut input = Reader::new(stored);
        if self.from_zero {
            base.fill(E::ZERO);
        }
        scratch.exceptions.clear();
        if self.exceptions {
            read_exceptions::<E>(&mut input, base.len(), scratch)?;
        }
        scratch.symbols.resize(base.len(), 0);
        let mut taken = None;
        if let Some(decoding) = &self.decoding {
            decoding.decode(&mut input, &mut scratch.symbols, &mut scratch.coding)?;
            let sum = sum && scratch.exceptions.is_empty();
            taken = self.apply(decoding.coding(), &mut input, base, sum, scratch)?;
        }
        if input.remaining() > 0 {
            return Err(input.flaw("bytes are left over at the end of a chunk"));
        }
        for (&position, value) in scratch.exceptions.iter().zip(scratch.values.chunks_exact(size_of::<E>())) {
            base[position as usize] = bytemuck::pod_read_unaligned(value);
        }
        Ok(taken)
    }

    fn apply(
        &self,
        coding: &Coding,
        input: &mut Reader<'_>,
        base: &mut [E],
        sum: bool,
        scratch: &mut Scratch,
    ) -> Parsed<Option<u64>> {
        match &self.rule {
            Rule::Value(quantizer) => {
                if let Some(representatives) = &self.representatives {
                    return Ok(apply_fast(quantizer, representatives, base, sum, &scratch.symbols));
                }
                apply_lossy(quantizer, input, base, scratch)?;
            }
            Rule::Ordered(quantizer) => apply_lossy(quantizer, input, base, scratch)?,
            Rule::NonNegative(quantizer) => apply_lossy(quantizer, input, base, scratch)?,
            Rule::Classes(window) => apply_exact(ExponentClass, *window, coding, input, base, scratch)?,
            Rule::Difference(window) => apply_exact(Difference, *window, coding, input, base, scratch)?,
            Rule::Bytes(_) | Rule::Nothing => {}
        }
        Ok(None)
    }
}

/// Lossy f32 values without refinement, whose representatives are `representatives` by symbol.
fn apply_fast<E: Element>(
    quantizer: &Quantizer<E, Value>,
    representatives: &[f32; 16],
    base: &mut [E],
    sum: bool,
    symbols: &[u8],
) -> Option<u64> {
    let mut taken = ContentSum::default();
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = simd::avx2() {
        done = base.len() / GROUP * GROUP;
        let sums = sum.then_some(&mut taken.lanes);
        avx2.apply_values(representatives, &symbols[..done], bytemuck::cast_slice_mut(&mut base[..done]), sums);
        taken.bytes = (done * size_of::<E>()) as u64;
    }
    let _ = representatives;
    for (b, &symbol) in base[done..].iter_mut().zip(&symbols[done..]) {
        if symbol != 0 {
            *b = quantizer.element(*b, symbol, 0);
        }
    }
    taken.update(bytemuck::cast_slice(&base[done..]));
    sum.then(|| taken.value())
}

fn representatives_of<E: Element>(rule: &Rule<E>) -> Option<[f32; 16]> {
    let Rule::Value(quantizer) = rule else { return None };
    let plain = E::TYPE == ElementType::F32 && quantizer.refinement() == 0;
    plain.then(|| {
        let mut by_symbol = [-0.0; 16];
        by_symbol[1..].iter_mut().zip(quantizer.representatives()).for_each(|(to, from)| *to = from.to_f64() as f32);
        by_symbol
    })
}

fn value_quantizer<E: Element>(meaning: &Meaning, refinement: u32) -> Quantizer<E, Value> {
    match meaning {
        Meaning::Buckets(buckets) => Quantizer::of_buckets(Value, refinement, buckets.clone()),
        Meaning::Values(values) => {
            Quantizer::of_representatives(Value, values.iter().map(|&value| E::A::of_f64(value)).collect())
        }
        Meaning::Integers(_) => Quantizer::of_representatives(Value, Vec::new()),
    }
}

fn ordered_quantizer<E: Element, const NON_NEGATIVE: bool>(
    meaning: &Meaning,
    refinement: u32,
) -> Quantizer<E, Ordered<NON_NEGATIVE>> {
    match meaning {
        Meaning::Buckets(buckets) => Quantizer::of_buckets(Ordered, refinement, buckets.clone()),
        Meaning::Integers(integers) => {
            Quantizer::of_representatives(Ordered, integers.iter().map(|&integer| E::Wide::of_i128(integer)).collect())
        }
        Meaning::Values(_) => Quantizer::of_representatives(Ordered, Vec::new()),
    }
}

fn read_exceptions<E: Element>(input: &mut Reader<'_>, elements: usize, scratch: &mut Scratch) -> Parsed<()> {
    let count = input.count()?;
    if count > elements {
        return Err(input.flaw("more exceptions than elements"));
    }
    let mut next = 0usize;
    for _ in 0..count {
        let position = next.saturating_add(input.count()?);
        if position >= elements {
            return Err(input.flaw("an exception lies past the end"));
        }
        scratch.exceptions.push(position as u32);
        next = position + 1;
    }
    scratch.values.clear();
    scratch.values.extend_from_slice(input.slice(count * size_of::<E>())?);
    Ok(())
}

fn apply_lossy<E: Element, D: Domain<E>>(
    quantizer: &Quantizer<E, D>,
    input: &mut Reader<'_>,
    base: &mut [E],
    scratch: &mut Scratch,
) -> Parsed<()> {
    let Scratch { symbols, fields, .. } = scratch;
    fields.clear();
    if quantizer.refinement() > 0 {
        symbols.iter().filter(|s| **s != 0).for_each(|&s| fields.expect(quantizer.field_width(s)));
        fields.read(input)?;
    }
    let mut values = fields.values().iter();
    for (b, &symbol) in base.iter_mut().zip(symbols.iter()) {
        if symbol != 0 {
            let field = values.next().copied().unwrap_or(0);
            *b = quantizer.element(*b, symbol, field);
        }
    }
    Ok(())
}

fn apply_exact<E: Element, C: Cut<E>>(
    cut: C,
    window: Window,
    coding: &Coding,
    input: &mut Reader<'_>,
    base: &mut [E],
    scratch: &mut Scratch,
) -> Parsed<()> {
    let Scratch { symbols, fields, escapes, .. } = scratch;
    read_escapes(E::TYPE, symbols, escapes, input)?;
    let mut classes = [None; WINDOW as usize + 1];
    for (symbol, class) in classes.iter_mut().enumerate().skip(1) {
        *class = window.class(symbol as u8);
    }
    let zeros_too = C::ZEROS_HAVE_FIELDS && !coding.skips_zeros();
    fields.clear();
    let mut escaped = escapes.iter();
    for &symbol in symbols.iter() {
        let class = if symbol == ESCAPE { escaped.next().copied() } else { classes[usize::from(symbol)] };
        match class {
            Some(class) if usize::from(class) < C::CLASSES => fields.expect(cut.field_width(class)),
            None if symbol == 0 => {
                if zeros_too {
                    fields.expect(cut.field_width(0));
                }
            }
            _ => return Err(input.flaw("a symbol without a class")),
        }
    }
    fields.read(input)?;
    let mut values = fields.values().iter();
    let mut escaped = escapes.iter();
    for (b, &symbol) in base.iter_mut().zip(symbols.iter()) {
        if symbol == 0 {
            if zeros_too && values.next().is_some_and(|&field| field != 0) {
                return Err(input.flaw("a zero with bits"));
            }
            continue;
        }
        let class = if symbol == ESCAPE { escaped.next().copied() } else { classes[usize::from(symbol)] };
        let field = values.next().copied().unwrap_or(0);
        let element = class.and_then(|class| cut.join(class, field, *b));
        *b = element.ok_or_else(|| input.flaw("a field that no element has"))?;
    }
    Ok(())
}

fn read_escapes(element: ElementType, symbols: &[u8], escapes: &mut Vec<u16>, input: &mut Reader<'_>) -> Parsed<()> {
    escapes.clear();
    let count = symbols.iter().filter(|symbol| **symbol == ESCAPE).count();
    if element == ElementType::F64 {
        let bytes = input.slice(2 * count)?;
        escapes.extend(bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])));
    } else {
        escapes.extend(input.slice(count)?.iter().map(|&byte| u16::from(byte)));
    }
    Ok(())
}

/// A decoder whose element type is known at run time.
pub enum AnyDecoder {
    F16(ChunkDecoder<half::f16>),
    BF16(ChunkDecoder<half::bf16>),
    F32(ChunkDecoder<f32>),
    F64(ChunkDecoder<f64>),
    Bytes(u8),
}

impl AnyDecoder {
    pub fn new(header: &RecordHeader, element: ElementType) -> Self {
        match element {
            ElementType::F16 => AnyDecoder::F16(ChunkDecoder::new(header)),
            ElementType::BF16 => AnyDecoder::BF16(ChunkDecoder::new(header)),
            ElementType::F32 => AnyDecoder::F32(ChunkDecoder::new(header)),
            ElementType::F64 => AnyDecoder::F64(ChunkDecoder::new(header)),
            ElementType::Bytes(_) => match header.kind {
                Kind::Bytes { planes } => AnyDecoder::Bytes(planes),
                _ => AnyDecoder::Bytes(0),
            },
        }
    }

    /// Turns `target` (the base) into the reconstruction; returns its content sum if asked.
    pub fn decode(&self, stored: &[u8], target: &mut [u8], sum: bool) -> Parsed<u64> {
        fn float<E: Element>(decoder: &ChunkDecoder<E>, stored: &[u8], target: &mut [u8], sum: bool) -> Parsed<u64> {
            let target = elements_mut(target).map_err(|_| Flaw::new(0, "the target is not aligned"))?;
            with_scratch(|scratch| decoder.decode(stored, target, sum, scratch))
        }
        match self {
            AnyDecoder::F16(decoder) => float(decoder, stored, target, sum),
            AnyDecoder::BF16(decoder) => float(decoder, stored, target, sum),
            AnyDecoder::F32(decoder) => float(decoder, stored, target, sum),
            AnyDecoder::F64(decoder) => float(decoder, stored, target, sum),
            AnyDecoder::Bytes(planes) => {
                with_scratch(|scratch| bytes::decode(stored, *planes, &mut scratch.bytes, target))?;
                Ok(if sum { content_sum(target) } else { 0 })
            }
        }
    }
}
