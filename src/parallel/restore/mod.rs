//! Restoring tensors from a chain: every layer is applied to a chunk while it is in cache.
//!
//! A [`Chain`] is cut into [`Window`]s of bounded size; each names the stored bytes that it needs ([`Segment`]s). Tensors that
//! need each other (links, predicted bases) form a group and are restored together, unit by unit.

mod group;
mod unit;
mod window;

pub use window::{Output, Segment, Selection, Window};

use crate::error::{Error, Flaw, Part, Result};
use crate::float::ElementType;
use crate::header::{Kind, RecordHeader};
use crate::predict::payload_order;
use crate::wire::Reader;
use group::Group;

/// Elements of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub element: ElementType,
    pub elements: usize,
}

/// One snapshot of a chain (or a residual): its record headers.
pub struct Layer {
    headers: Vec<RecordHeader>,
    /// Tensor of the chain that each record is of.
    tensors: Vec<usize>,
    /// Record of each tensor of the chain.
    records: Vec<Option<usize>>,
    /// Where each chunk of each record starts in the payload.
    offsets: Vec<Vec<u64>>,
    payload_bytes: u64,
}

/// What went wrong, and in which record.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    pub layer: usize,
    pub tensor: usize,
    pub error: Error,
}

impl Layer {
    /// Reads the headers of a snapshot whose record i is of tensor `tensors[i]` of a chain with these `shapes`.
    pub fn parse(bytes: &[u8], tensors: Vec<usize>, shapes: &[Shape]) -> Result<Self> {
        let mut input = Reader::new(bytes);
        let mut headers = Vec::new();
        let mut records = vec![None; shapes.len()];
        for (number, &tensor) in tensors.iter().enumerate() {
            let shape = shapes.get(tensor).ok_or(Error::Request("a record of no tensor of the chain"))?;
            let header = RecordHeader::parse(&mut input, shape.element, shape.elements);
            let header = header.map_err(|flaw| flaw.within(Part::Header))?;
            if records[tensor].replace(number).is_some() {
                return Err(Error::Request("two records of one tensor in a snapshot"));
            }
            headers.push(header);
        }
        if input.remaining() > 0 {
            return Err(input.flaw("bytes are left over after the record headers").within(Part::Header));
        }
        let mut layer = Layer { headers, tensors, records, offsets: Vec::new(), payload_bytes: 0 };
        layer.check_siblings(shapes)?;
        layer.place_chunks()?;
        Ok(layer)
    }

    /// Finds where each chunk lies in the payload.
    fn place_chunks(&mut self) -> Result<()> {
        let circle = Flaw::new(0, "records that need each other in a circle").within(Part::Header);
        // A link has no chunks; its source comes early only where a prediction reads the link.
        let with_chunks = (0..self.headers.len()).filter(|&record| self.headers[record].source().is_none());
        let order = payload_order(self.headers.len(), with_chunks, |record| sibling_records(&self.headers[record]));
        self.offsets = self.headers.iter().map(|header| vec![0; header.index.len()]).collect();
        let mut end = 0u64;
        for record in order.ok_or(circle)? {
            let index = &self.headers[record].index;
            let mut starts = Vec::with_capacity(index.len());
            for entry in index {
                starts.push(end);
                end = end.saturating_add(entry.length.unwrap_or(0));
            }
            self.offsets[record] = starts;
        }
        self.payload_bytes = end;
        Ok(())
    }

    /// Bytes that the chunks of all records have.
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    pub fn headers(&self) -> &[RecordHeader] {
        &self.headers
    }

    /// Whether any record's base is predicted.
    pub fn predicts(&self) -> bool {
        self.headers.iter().any(|header| !header.siblings().is_empty())
    }

    fn header(&self, tensor: usize) -> Option<&RecordHeader> {
        self.records[tensor].map(|record| &self.headers[record])
    }

    /// Records of this snapshot that `header` needs, as tensors.
    fn siblings<'a>(&'a self, header: &'a RecordHeader) -> impl Iterator<Item = usize> + 'a {
        sibling_records(header).iter().map(|&record| self.tensors[record as usize])
    }

    fn check_siblings(&self, shapes: &[Shape]) -> Result<()> {
        let flaw = |what| Flaw::new(0, what).within(Part::Header);
        for (header, &tensor) in self.headers.iter().zip(&self.tensors) {
            for &record in sibling_records(header) {
                let source = self.tensors.get(record as usize).ok_or(flaw("a sibling that is not there"))?;
                let (of, from) = (shapes[tensor], shapes[*source]);
                let rounds = matches!(from.element, ElementType::F32 | ElementType::F64)
                    && matches!(of.element, ElementType::F16 | ElementType::BF16);
                let is_link = matches!(header.kind, Kind::Link(_));
                if of.elements != from.elements || (of.element != from.element && !(is_link && rounds)) {
                    return Err(flaw("a sibling of another type or length"));
                }
                if is_link && matches!(self.headers[record as usize].kind, Kind::Link(_)) {
                    return Err(flaw("a link to a link"));
                }
            }
        }
        Ok(())
    }
}

/// Records of the same snapshot that a record needs, by number.
fn sibling_records(header: &RecordHeader) -> &[u32] {
    if let Kind::Link(source) = &header.kind { std::slice::from_ref(source) } else { header.siblings() }
}

/// The layers that lead to a snapshot, oldest (a full one) first.
pub struct Chain {
    shapes: Vec<Shape>,
    layers: Vec<Layer>,
    groups: Vec<Group>,
    group_of: Vec<usize>,
}

impl Chain {
    /// `shapes`: every tensor that any of the layers has a record of.
    pub fn new(shapes: Vec<Shape>, layers: Vec<Layer>) -> Result<Self, Failure> {
        let groups = Group::all(&shapes, &layers)?;
        let mut group_of = vec![0; shapes.len()];
        for (number, group) in groups.iter().enumerate() {
            group.members.iter().for_each(|&tensor| group_of[tensor] = number);
        }
        Ok(Chain { shapes, layers, groups, group_of })
    }

    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    pub fn shapes(&self) -> &[Shape] {
        &self.shapes
    }

    /// Where a chunk starts in its layer's payload.
    pub fn chunk_offset(&self, layer: usize, tensor: usize, chunk: usize) -> Option<u64> {
        let layer = self.layers.get(layer)?;
        let record = (*layer.records.get(tensor)?)?;
        layer.offsets[record].get(chunk).copied()
    }
}
