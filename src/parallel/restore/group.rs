//! Groups: tensors that have to be restored together.

use super::{Failure, Layer, Shape};
use crate::error::{Flaw, Part};
use crate::header::{Base, DEFAULT_CHUNK_LOG2, Kind};
use crate::predict::{Formula, Prediction};

/// Tensors of equal length that need each other in some layer.
pub struct Group {
    /// Tensors of the chain, rising.
    pub members: Vec<usize>,
    pub elements: usize,
    /// log2 of the elements that are restored at once: the largest chunk of any record.
    pub unit_log2: u8,
    /// Layers before this one add nothing.
    pub start: usize,
    /// For each layer from `start` on: members (as positions in `members`) in an order in which each follows its siblings.
    pub orders: Vec<Vec<usize>>,
}

impl Group {
    /// All groups of a chain; every tensor is in one.
    pub fn all(shapes: &[Shape], layers: &[Layer]) -> Result<Vec<Group>, Failure> {
        let mut roots: Vec<usize> = (0..shapes.len()).collect();
        for layer in layers {
            for &tensor in &layer.tensors {
                let Some(header) = layer.header(tensor) else { continue };
                for sibling in layer.siblings(header) {
                    let (a, b) = (root(&mut roots, tensor), root(&mut roots, sibling));
                    roots[a.max(b)] = a.min(b);
                }
            }
        }
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); shapes.len()];
        for tensor in 0..shapes.len() {
            let root = root(&mut roots, tensor);
            members[root].push(tensor);
        }
        members.into_iter().filter(|m| !m.is_empty()).map(|m| Group::new(m, shapes, layers)).collect()
    }

    fn new(members: Vec<usize>, shapes: &[Shape], layers: &[Layer]) -> Result<Group, Failure> {
        let mut group =
            Group { elements: shapes[members[0]].elements, unit_log2: 0, start: 0, orders: Vec::new(), members };
        group.find_start(layers)?;
        for (number, layer) in layers.iter().enumerate().skip(group.start) {
            let headers = group.members.iter().filter_map(|&tensor| layer.header(tensor));
            let chunked = headers.filter(|header| header.kind != Kind::Same).map(|header| header.chunk_log2);
            group.unit_log2 = chunked.fold(group.unit_log2, u8::max);
            let order = group.order(layer, number)?;
            group.orders.push(order);
        }
        if group.unit_log2 == 0 {
            group.unit_log2 = DEFAULT_CHUNK_LOG2;
        }
        Ok(group)
    }

    /// The first layer that has a record which is needed. Checks that there is a base to begin with.
    fn find_start(&mut self, layers: &[Layer]) -> Result<(), Failure> {
        for &tensor in &self.members {
            let mut records = layers.iter().enumerate().filter_map(|(number, l)| Some((number, l.records[tensor]?)));
            if let Some((layer, first)) = records.next()
                && layers[layer].headers[first].needs_base()
            {
                let error = Flaw::new(0, "a record needs a base that the chain does not have").within(Part::Header);
                return Err(Failure { layer, tensor, error });
            }
        }
        self.check_old_values(layers)?;
        let has_record = |layer: &Layer| self.members.iter().any(|&tensor| layer.record(tensor).is_some());
        self.start = layers.iter().position(has_record).unwrap_or(0);
        Ok(())
    }

    /// Checks that there are old values of the siblings whose old values a prediction needs.
    fn check_old_values(&self, layers: &[Layer]) -> Result<(), Failure> {
        for (number, layer) in layers.iter().enumerate() {
            for &tensor in &self.members {
                let Some(header) = layer.header(tensor) else { continue };
                let Base::Predicted(Prediction { formula: Formula::SecondMoment, .. }) = &header.base else { continue };
                let known = |sibling: usize| layers[..number].iter().any(|before| before.records[sibling].is_some());
                if !layer.siblings(header).all(known) {
                    let error = Flaw::new(0, "a prediction needs old values that the chain does not have");
                    return Err(Failure { layer: number, tensor, error: error.within(Part::Header) });
                }
            }
        }
        Ok(())
    }

    fn order(&self, layer: &Layer, number: usize) -> Result<Vec<usize>, Failure> {
        let mut order = Vec::with_capacity(self.members.len());
        let mut waiting: Vec<usize> = (0..self.members.len()).collect();
        let mut done = vec![false; self.members.len()];
        while !waiting.is_empty() {
            let before = waiting.len();
            waiting.retain(|&position| {
                let header = layer.header(self.members[position]);
                let ready = header.is_none_or(|header| {
                    layer.siblings(header).all(|sibling| self.position(sibling).is_some_and(|p| done[p]))
                });
                if ready {
                    done[position] = true;
                    order.push(position);
                }
                !ready
            });
            if waiting.len() == before {
                let error = Flaw::new(0, "records that need each other in a circle").within(Part::Header);
                return Err(Failure { layer: number, tensor: self.members[waiting[0]], error });
            }
        }
        Ok(order)
    }

    /// Where a tensor stands in `members`.
    pub fn position(&self, tensor: usize) -> Option<usize> {
        self.members.binary_search(&tensor).ok()
    }

    /// Elements of a unit.
    pub fn unit(&self, number: usize) -> std::ops::Range<usize> {
        let start = number << self.unit_log2;
        start..(start + (1 << self.unit_log2)).min(self.elements)
    }
}

fn root(roots: &mut [usize], mut tensor: usize) -> usize {
    while roots[tensor] != tensor {
        roots[tensor] = roots[roots[tensor]];
        tensor = roots[tensor];
    }
    tensor
}
