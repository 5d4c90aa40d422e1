//! Stored bytes -> elements.

mod any;
mod exact;
mod lossy;

pub use any::AnyDecoder;

use super::Scratch;
use crate::bytes;
use crate::checksum::content_sum;
use crate::coding::{Coding, Decoding};
use crate::delta::{Ordered, Value};
use crate::error::Parsed;
use crate::exact::{Difference, ExponentClass, Window};
use crate::float::Element;
use crate::header::{Base, Kind, LossyDomain, RecordHeader};
use crate::simd::ahead::Ahead;
use crate::wire::Reader;
use exact::apply_exact;
use lossy::LossyDecoder;

/// A record of floats made ready to decode its chunks.
pub struct ChunkDecoder<E: Element> {
    rule: Rule<E>,
    decoding: Option<Decoding>,
    from_zero: bool,
    exceptions: bool,
}

enum Rule<E: Element> {
    Value(LossyDecoder<E, Value>),
    Ordered(LossyDecoder<E, Ordered<false>>),
    NonNegative(LossyDecoder<E, Ordered<true>>),
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
                    LossyDomain::Value => Rule::Value(LossyDecoder::of_values(meaning, refinement)),
                    LossyDomain::Ordered => Rule::Ordered(LossyDecoder::of_integers(meaning, refinement)),
                    LossyDomain::OrderedNonNegative => {
                        Rule::NonNegative(LossyDecoder::of_integers(meaning, refinement))
                    }
                };
                (rule, Some(Decoding::new(coding.clone(), meaning.symbols())))
            }
        };
        // In a record of classes the base serves unchanged chunks only.
        let from_zero = header.base == Base::Zero || matches!(rule, Rule::Classes(_));
        ChunkDecoder { rule, decoding, from_zero, exceptions: header.exceptions }
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
        if self.from_zero && !self.writes_all() {
            base.fill(E::ZERO);
        }
        scratch.exceptions.clear();
        if self.exceptions {
            read_exceptions::<E>(&mut input, base.len(), scratch)?;
        }
        let mut taken = None;
        if let Some(decoding) = &self.decoding {
            let (first, second) = base.split_at(base.len() / 2);
            scratch.coding.ahead = Ahead::of(first, second);
            // A sum is taken of all entries, which is quickest as symbols are applied.
            if !sum && self.add_few(decoding, &mut input, base, scratch)? {
                return all_read(&input).map(|()| None);
            }
            scratch.symbols.resize(base.len(), 0);
            decoding.decode(&mut input, &mut scratch.symbols, &mut scratch.coding)?;
            if scratch.exceptions.iter().any(|position| scratch.symbols[*position as usize] != 0) {
                return Err(input.flaw("an exception has a symbol"));
            }
            // Before the symbols are applied, which changes nothing where there is none, so that the sum can be taken there.
            place_exceptions(scratch, base);
            taken = self.apply(decoding.coding(), &mut input, base, sum, scratch)?;
        }
        all_read(&input)?;
        Ok(taken)
    }

    /// Adds what a chunk's symbols stand for where they are, if it tells so of few, and reads them all; otherwise reads nothing.
    fn add_few(
        &self,
        decoding: &Decoding,
        input: &mut Reader<'_>,
        base: &mut [E],
        scratch: &mut Scratch,
    ) -> Parsed<bool> {
        let most = self.most_added(base.len());
        // That exceptions have no symbol is seen where all entries have one.
        if most == 0 || !scratch.exceptions.is_empty() {
            return Ok(false);
        }
        let Some((runs, found)) = decoding.read_few(input, base.len(), most, &mut scratch.coding)? else {
            return Ok(false);
        };
        match &self.rule {
            Rule::Value(decoder) => decoder.add(runs, found, base),
            Rule::Ordered(decoder) => decoder.add(runs, found, base),
            Rule::NonNegative(decoder) => decoder.add(runs, found, base),
            Rule::Classes(_) | Rule::Difference(_) | Rule::Bytes(_) | Rule::Nothing => {}
        }
        Ok(true)
    }

    /// Of so many entries, how many may have a symbol where it is quicker to look at these alone.
    fn most_added(&self, entries: usize) -> usize {
        match &self.rule {
            Rule::Value(decoder) => decoder.most_added(entries),
            Rule::Ordered(decoder) => decoder.most_added(entries),
            Rule::NonNegative(decoder) => decoder.most_added(entries),
            Rule::Classes(_) | Rule::Difference(_) | Rule::Bytes(_) | Rule::Nothing => 0,
        }
    }

    /// Whether every element is written whatever was there.
    fn writes_all(&self) -> bool {
        let zeros_too = self.decoding.as_ref().is_some_and(|decoding| !decoding.coding().skips_zeros());
        matches!(self.rule, Rule::Classes(_)) && zeros_too
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
            Rule::Value(decoder) => decoder.apply(input, base, sum, scratch),
            Rule::Ordered(decoder) => decoder.apply(input, base, sum, scratch),
            Rule::NonNegative(decoder) => decoder.apply(input, base, sum, scratch),
            Rule::Classes(window) => apply_exact(ExponentClass, *window, coding, input, base, sum, scratch),
            Rule::Difference(window) => apply_exact(Difference, *window, coding, input, base, sum, scratch),
            Rule::Bytes(_) | Rule::Nothing => Ok(None),
        }
    }
}

fn all_read(input: &Reader<'_>) -> Parsed<()> {
    if input.remaining() > 0 {
        return Err(input.flaw("bytes are left over at the end of a chunk"));
    }
    Ok(())
}

fn place_exceptions<E: Element>(scratch: &Scratch, base: &mut [E]) {
    for (&position, value) in scratch.exceptions.iter().zip(scratch.values.chunks_exact(size_of::<E>())) {
        base[position as usize] = bytemuck::pod_read_unaligned(value);
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

#[cfg(test)]
mod tests;
