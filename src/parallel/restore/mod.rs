//! Restoring tensors from a chain: every layer is applied to a chunk while it is in cache.
//!
//! A [`Chain`] is cut into [`Window`]s of bounded size; each names the stored bytes that it needs ([`Segment`]s). Tensors that
//! need each other (links, predicted bases) form a group and are restored together, unit by unit.

mod group;
mod merged;
mod needs;
mod stored;
mod unit;
mod window;

pub use merged::{pieces, place};
use needs::available;
pub use needs::needed;
pub use stored::Source;
pub use window::{Output, Segment, Selection, Window};

use crate::coding::Coding;
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
#[derive(Clone)]
pub struct Layer {
    headers: Vec<RecordHeader>,
    /// Tensor of the chain that each record is of.
    tensors: Vec<usize>,
    /// Record of each tensor of the chain.
    records: Vec<Option<usize>>,
    /// Numbers of the records that have chunks, in the order in which these lie in the payload.
    order: Vec<usize>,
    /// Where each chunk of each record starts in the payload of its file.
    offsets: Vec<Vec<u64>>,
    /// Records whose chunks are not in the file.
    absent: Vec<bool>,
    /// Records that the restore needs.
    needed: Vec<bool>,
    /// File that holds the payload.
    file: usize,
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
        let (absent, needed) = (vec![false; headers.len()], vec![true; headers.len()]);
        let offsets = headers.iter().map(|header| vec![0; header.index.len()]).collect();
        let mut layer = Layer { headers, tensors, records, order: Vec::new(), offsets, absent, needed, file: 0 };
        layer.check_siblings(shapes)?;
        layer.find_order()?;
        Ok(layer)
    }

    /// Takes records as ones whose chunks are not in the file.
    pub fn leave_out(&mut self, records: &[u32]) -> Result<()> {
        for &record in records {
            let flaw = Flaw::new(0, "a record left out that there is not").within(Part::Header);
            *self.absent.get_mut(record as usize).ok_or(flaw)? = true;
        }
        Ok(())
    }

    /// Finds the order of the records that have chunks.
    fn find_order(&mut self) -> Result<()> {
        let circle = Flaw::new(0, "records that need each other in a circle").within(Part::Header);
        // A link has no chunks; its source comes early only where a prediction reads the link.
        let with_chunks = (0..self.headers.len()).filter(|&record| self.headers[record].source().is_none());
        let order = payload_order(self.headers.len(), with_chunks, |record| sibling_records(&self.headers[record]));
        self.order = order.ok_or(circle)?;
        Ok(())
    }

    /// Which records have all their bytes in the file.
    fn present(&self) -> Vec<bool> {
        let has_bytes = |header: &RecordHeader| header.index.iter().any(|entry| entry.length.is_some_and(|n| n > 0));
        self.headers.iter().zip(&self.absent).map(|(header, absent)| !(*absent && has_bytes(header))).collect()
    }

    /// Records that are neither needed nor empty, by number.
    pub fn useless(&self, needed: &[bool]) -> Vec<u32> {
        let bytes = self.headers.iter().map(|header| header.payload_bytes());
        let useless = bytes.zip(needed).enumerate().filter(|(_, (bytes, needed))| *bytes > 0 && !**needed);
        useless.map(|(record, _)| record as u32).collect()
    }

    pub fn headers(&self) -> &[RecordHeader] {
        &self.headers
    }

    /// Whether any record's base is predicted.
    pub fn predicts(&self) -> bool {
        self.headers.iter().any(|header| !header.siblings().is_empty())
    }

    /// Whether any record is coded in pairs of symbols.
    pub fn has_pairs(&self) -> bool {
        self.headers.iter().any(|header| matches!(header.coding(), Some(Coding::Pairs(_))))
    }

    /// The record of a tensor, if the restore needs it.
    fn record(&self, tensor: usize) -> Option<usize> {
        self.records[tensor].filter(|&record| self.needed[record])
    }

    fn header(&self, tensor: usize) -> Option<&RecordHeader> {
        self.record(tensor).map(|record| &self.headers[record])
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
    payload_bytes: Vec<u64>,
}

impl Chain {
    /// A chain of snapshots that have a file each. `shapes`: every tensor that any of the layers has a record of.
    pub fn new(shapes: Vec<Shape>, layers: Vec<Layer>) -> Result<Self, Failure> {
        let path: Vec<_> = (0..layers.len()).map(|file| (file, 0)).collect();
        Chain::of_files(shapes, layers.into_iter().map(|layer| vec![layer]).collect(), &path, false)
    }

    /// A chain of snapshots (file and number) in files that hold others as well. `every_layer`: all that the layers hold is
    /// needed, not only what the last one is made of.
    pub fn of_files(
        shapes: Vec<Shape>,
        mut files: Vec<Vec<Layer>>,
        path: &[(usize, usize)],
        every_layer: bool,
    ) -> Result<Self, Failure> {
        let payload_bytes = files.iter_mut().map(|layers| merged::place(layers)).collect();
        let mut files: Vec<Vec<Option<Layer>>> =
            files.into_iter().map(|layers| layers.into_iter().map(Some).collect()).collect();
        let mut layers = Vec::with_capacity(path.len());
        for (position, &(file, number)) in path.iter().enumerate() {
            let missing = Failure { layer: position, tensor: 0, error: Error::Request("a layer of no file") };
            let found = files.get_mut(file).and_then(|layers| layers.get_mut(number)?.take());
            let mut layer = found.ok_or(missing)?;
            layer.file = file;
            layers.push(layer);
        }
        find_needed(&mut layers, every_layer)?;
        let groups = Group::all(&shapes, &layers)?;
        let mut group_of = vec![0; shapes.len()];
        for (number, group) in groups.iter().enumerate() {
            group.members.iter().for_each(|&tensor| group_of[tensor] = number);
        }
        Ok(Chain { shapes, layers, groups, group_of, payload_bytes })
    }

    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    pub fn shapes(&self) -> &[Shape] {
        &self.shapes
    }

    /// The length of each file's payload.
    pub fn payload_bytes(&self) -> &[u64] {
        &self.payload_bytes
    }

    /// Where a chunk starts in the payload of its layer's file.
    pub fn chunk_offset(&self, layer: usize, tensor: usize, chunk: usize) -> Option<u64> {
        let layer = self.layers.get(layer)?;
        let record = (*layer.records.get(tensor)?)?;
        layer.offsets[record].get(chunk).copied()
    }
}

/// Marks the records that a restore needs. What it needs must be there.
fn find_needed(layers: &mut [Layer], every_layer: bool) -> Result<(), Failure> {
    let last = layers.len().saturating_sub(1);
    let parents: Vec<_> = (0..layers.len()).map(|number| number.checked_sub(1)).collect();
    let present: Vec<_> = layers.iter().map(Layer::present).collect();
    let mut wanted = if every_layer { available(layers, &present) } else { Vec::new() };
    wanted.resize_with(layers.len(), Vec::new);
    for (number, wanted) in wanted.iter_mut().enumerate() {
        if number == last || !every_layer {
            *wanted = vec![number == last; layers[number].headers.len()];
        }
    }
    for (number, needed) in needed(layers, &parents, wanted).into_iter().enumerate() {
        if let Some(record) = (0..needed.len()).find(|&record| needed[record] && !present[number][record]) {
            let error = Flaw::new(0, "its chunks have been left out of the file").within(Part::Header);
            return Err(Failure { layer: number, tensor: layers[number].tensors[record], error });
        }
        layers[number].needed = needed;
    }
    Ok(())
}
