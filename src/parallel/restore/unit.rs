//! One unit: some thousand elements of the members of a group, taken through every layer.

use super::group::Group;
use super::needs::earlier_sibling;
use super::stored::Stored;
use super::{Chain, Failure, Layer};
use crate::checksum::content_sum;
use crate::chunk::decode::AnyDecoder;
use crate::error::{Error, Part};
use crate::header::{Base, Kind, RecordHeader};
use crate::parallel::links::round_into;
use crate::predict::Siblings;
use std::ops::Range;

/// The decoders of a group's records, by layer (from the group's first on) and member; made once for several units.
pub struct Decoders(Vec<Vec<Option<AnyDecoder>>>);

impl Decoders {
    pub fn new(chain: &Chain, group: &Group) -> Self {
        let of_layer = |layer: &Layer| {
            let of_member = |&tensor: &usize| {
                layer.header(tensor).map(|header| AnyDecoder::new(header, chain.shapes[tensor].element))
            };
            group.members.iter().map(of_member).collect()
        };
        Decoders(chain.layers[group.start..].iter().map(of_layer).collect())
    }
}

/// The elements of one member in this unit: the caller's memory, or our own.
enum Buffer<'a> {
    Output(&'a mut [u8]),
    Own { words: Vec<u64>, bytes: usize },
}

impl Buffer<'_> {
    fn own(bytes: usize) -> Self {
        Buffer::Own { words: vec![0; bytes.div_ceil(8)], bytes }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Buffer::Output(bytes) => bytes,
            Buffer::Own { words, bytes } => &bytemuck::cast_slice(words)[..*bytes],
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Buffer::Output(bytes) => bytes,
            Buffer::Own { words, bytes } => &mut bytemuck::cast_slice_mut(words)[..*bytes],
        }
    }
}

/// A content sum that elements must have in the end.
struct Expected {
    elements: Range<usize>,
    sum: u64,
    layer: usize,
    chunk: usize,
}

/// A unit of a group, with the outputs that want some of it.
pub struct UnitJob<'a> {
    chain: &'a Chain,
    group: &'a Group,
    elements: Range<usize>,
    decoders: Option<&'a Decoders>,
    outputs: Vec<(usize, Range<usize>, &'a mut [u8])>,
}

impl<'a> UnitJob<'a> {
    pub fn new(chain: &'a Chain, group: &'a Group, elements: Range<usize>, decoders: Option<&'a Decoders>) -> Self {
        UnitJob { chain, group, elements, decoders, outputs: Vec::new() }
    }

    pub fn elements(&self) -> Range<usize> {
        self.elements.clone()
    }

    pub fn add_output(&mut self, tensor: usize, elements: Range<usize>, bytes: &'a mut [u8]) {
        if let Some(position) = self.group.position(tensor) {
            self.outputs.push((position, elements, bytes));
        }
    }

    /// Restores the unit and fills its outputs. `check_each`: checks every record, not only the last.
    pub fn run(self, stored: &Stored<'_>, check_each: bool) -> Result<(), Failure> {
        let UnitJob { chain, group, elements, decoders, outputs } = self;
        let mut buffers: Vec<Option<Buffer<'_>>> = group.members.iter().map(|_| None).collect();
        let mut copies = Vec::new();
        for (position, covered, bytes) in outputs {
            if covered == elements && buffers[position].is_none() {
                buffers[position] = Some(Buffer::Output(bytes));
            } else {
                copies.push((position, covered, bytes));
            }
        }
        let size = |position: usize| chain.shapes[group.members[position]].element.size();
        let place = buffers.into_iter().enumerate();
        let buffers = place.map(|(p, b)| b.unwrap_or_else(|| Buffer::own(elements.len() * size(p)))).collect();
        let mut unit = Unit::new(chain, group, elements.clone(), decoders, buffers);
        if let Err(failure) = unit.run(stored, check_each) {
            return Err(blame(chain, group, elements, stored).unwrap_or(failure));
        }
        for (position, covered, bytes) in copies {
            let start = (covered.start - elements.start) * size(position);
            bytes.copy_from_slice(&unit.buffers[position].bytes()[start..start + bytes.len()]);
        }
        Ok(())
    }
}

/// The first record of a bad unit that does not give the content it should.
fn blame(chain: &Chain, group: &Group, elements: Range<usize>, stored: &Stored<'_>) -> Option<Failure> {
    let size = |&tensor: &usize| chain.shapes[tensor].element.size();
    let buffers = group.members.iter().map(|tensor| Buffer::own(elements.len() * size(tensor))).collect();
    Unit::new(chain, group, elements, None, buffers).run(stored, true).err()
}

struct Unit<'a> {
    chain: &'a Chain,
    group: &'a Group,
    elements: Range<usize>,
    decoders: Option<&'a Decoders>,
    buffers: Vec<Buffer<'a>>,
    expected: Vec<Vec<Expected>>,
}

impl<'a> Unit<'a> {
    fn new(
        chain: &'a Chain,
        group: &'a Group,
        elements: Range<usize>,
        decoders: Option<&'a Decoders>,
        buffers: Vec<Buffer<'a>>,
    ) -> Self {
        let expected = group.members.iter().map(|_| Vec::new()).collect();
        Unit { chain, group, elements, decoders, buffers, expected }
    }

    /// Applies all layers, checking content sums at the end, or after each record.
    fn run(&mut self, stored: &Stored<'_>, check_each: bool) -> Result<(), Failure> {
        let group = self.group;
        for (order, layer) in group.orders.iter().zip(group.start..) {
            let before = self.contents_before(layer);
            for &position in order {
                let fail = |error| Failure { layer, tensor: group.members[position], error };
                self.apply(layer, position, &before, stored).map_err(fail)?;
                if check_each {
                    self.check(position)?;
                }
            }
        }
        (0..group.members.len()).try_for_each(|position| self.check(position))
    }

    fn header(&self, layer: usize, position: usize) -> Option<&'a RecordHeader> {
        self.chain.layers[layer].header(self.group.members[position])
    }

    /// Copies of the members whose content before this layer a prediction needs.
    fn contents_before(&self, layer: usize) -> Vec<(usize, Vec<u64>)> {
        let mut copies = Vec::new();
        for header in (0..self.buffers.len()).filter_map(|position| self.header(layer, position)) {
            let sibling = earlier_sibling(&self.chain.layers[layer], header);
            if let Some(position) = sibling.and_then(|tensor| self.group.position(tensor)) {
                let bytes = self.buffers[position].bytes();
                let mut words = vec![0u64; bytes.len().div_ceil(8)];
                bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
                copies.push((position, words));
            }
        }
        copies
    }

    fn apply(
        &mut self,
        layer: usize,
        position: usize,
        before: &[(usize, Vec<u64>)],
        stored: &Stored<'_>,
    ) -> Result<(), Error> {
        let Some(header) = self.header(layer, position) else { return Ok(()) };
        if header.kind == Kind::Same {
            return Ok(());
        }
        let mut buffer = std::mem::replace(&mut self.buffers[position], Buffer::own(0));
        let element = self.chain.shapes[self.group.members[position]].element;
        let siblings: Vec<usize> =
            self.chain.layers[layer].siblings(header).filter_map(|tensor| self.group.position(tensor)).collect();
        if let (Kind::Link(_), [source]) = (&header.kind, &siblings[..]) {
            let from = self.chain.shapes[self.group.members[*source]].element;
            round_into(from, self.buffers[*source].bytes(), element, buffer.bytes_mut())?;
        } else if let Base::Predicted(prediction) = &header.base {
            let contents: Vec<&[u8]> = siblings.iter().map(|&sibling| self.buffers[sibling].bytes()).collect();
            let of_first = before.iter().find(|(p, _)| Some(p) == siblings.first());
            let target = buffer.bytes_mut();
            let before = of_first.map_or(&[][..], |(_, words)| &bytemuck::cast_slice(words)[..target.len()]);
            let sibling = |k: usize| contents.get(k).copied().unwrap_or(&[]);
            prediction.predict_bytes(element, target, Siblings { s: sibling(0), t: sibling(1), before })?;
        }
        let decoded = self.decode_chunks(layer, position, header, &mut buffer, stored);
        self.buffers[position] = buffer;
        decoded
    }

    fn decode_chunks(
        &mut self,
        layer: usize,
        position: usize,
        header: &RecordHeader,
        buffer: &mut Buffer<'_>,
        stored: &Stored<'_>,
    ) -> Result<(), Error> {
        let element = self.chain.shapes[self.group.members[position]].element;
        let own;
        let decoder = match self.decoders {
            Some(decoders) => decoders.0[layer - self.group.start][position].as_ref(),
            None => {
                own = AnyDecoder::new(header, element);
                Some(&own)
            }
        };
        let tensor = self.group.members[position];
        let Some(record) = self.chain.layers[layer].record(tensor) else { return Ok(()) };
        for chunk in header.chunks_of(&self.elements) {
            let entry = header.index[chunk];
            let Some(length) = entry.length else { continue };
            let start = chunk << header.chunk_log2;
            let elements = start..(start + header.chunk_elements()).min(self.elements.end);
            let part = Part::Chunk(chunk);
            let at = self.chain.layers[layer].offsets[record][chunk];
            let local = elements.start - self.elements.start..elements.end - self.elements.start;
            let target = &mut buffer.bytes_mut()[local.start * element.size()..local.end * element.size()];
            stored.with(self.chain.layers[layer].file, at..at.saturating_add(length), part, |bytes| {
                if let (Some(decoder), false) = (decoder, matches!(header.kind, Kind::Link(_))) {
                    decoder.decode(bytes, target, false).map_err(|flaw| flaw.within(part))?;
                }
                Ok(())
            })?;
            self.expect(position, Expected { elements, sum: entry.sum, layer, chunk });
        }
        Ok(())
    }

    /// Notes what the elements must sum to; what was expected of them before no longer is.
    fn expect(&mut self, position: usize, expected: Expected) {
        let all = &mut self.expected[position];
        let touches =
            |old: &Expected| old.elements.start < expected.elements.end && expected.elements.start < old.elements.end;
        all.retain(|old| !touches(old));
        all.push(expected);
    }

    fn check(&self, position: usize) -> Result<(), Failure> {
        let tensor = self.group.members[position];
        let size = self.chain.shapes[tensor].element.size();
        let bytes = self.buffers[position].bytes();
        for expected in &self.expected[position] {
            let start = expected.elements.start - self.elements.start;
            let end = expected.elements.end - self.elements.start;
            if content_sum(&bytes[start * size..end * size]) != expected.sum {
                let error = Error::Content { part: Part::Chunk(expected.chunk) };
                return Err(Failure { layer: expected.layer, tensor, error });
            }
        }
        Ok(())
    }
}
