//! Which records matter: content that a later layer makes anew needs nothing of what came before.

use super::{Layer, sibling_records};
use crate::header::{Base, RecordHeader};
use crate::predict::{Formula, Prediction};

/// For each layer and record, whether the content of a wanted record depends on it.
///
/// `parents`: the layer that each is on top of, which has a lower number. `wanted`: by layer and record.
pub fn needed(layers: &[Layer], parents: &[Option<usize>], mut wanted: Vec<Vec<bool>>) -> Vec<Vec<bool>> {
    // Tensors whose content after a layer those on top of it need.
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); layers.len()];
    for (number, layer) in layers.iter().enumerate().rev() {
        let mut todo = std::mem::take(&mut after[number]);
        let records = layer.tensors.iter().zip(&wanted[number]);
        todo.extend(records.filter(|(_, wanted)| **wanted).map(|(&tensor, _)| tensor));
        let before = spread(layer, todo, &mut wanted[number]);
        if let Some(parent) = parents[number] {
            after[parent].extend(before);
        }
    }
    wanted
}

/// Marks the records that the content of some tensors after a layer depends on; returns the tensors it depends on before the layer.
fn spread(layer: &Layer, mut todo: Vec<usize>, needed: &mut [bool]) -> Vec<usize> {
    let mut seen = vec![false; layer.records.len()];
    let mut before = Vec::new();
    while let Some(tensor) = todo.pop() {
        if std::mem::replace(&mut seen[tensor], true) {
            continue;
        }
        let Some(record) = layer.records[tensor] else {
            before.push(tensor);
            continue;
        };
        needed[record] = true;
        let header = &layer.headers[record];
        if header.needs_base() {
            before.push(tensor);
        }
        before.extend(earlier_sibling(layer, header));
        todo.extend(layer.siblings(header));
    }
    before
}

/// For each layer and record, whether all that its content depends on is in the files: `present` says which records are.
pub fn available(layers: &[Layer], present: &[Vec<bool>]) -> Vec<Vec<bool>> {
    let mut there = vec![true; layers.first().map_or(0, |layer| layer.records.len())];
    let mut found = Vec::with_capacity(layers.len());
    for (layer, present) in layers.iter().zip(present) {
        let records = || layer.headers.iter().zip(&layer.tensors).enumerate();
        let mut good = present.clone();
        for (record, (header, &tensor)) in records() {
            good[record] &= there[tensor] || !header.needs_base();
            good[record] &= earlier_sibling(layer, header).is_none_or(|sibling| there[sibling]);
        }
        // What is not there makes those that need it so, and those that need these.
        let mut before = usize::MAX;
        while before != good.iter().filter(|good| **good).count() {
            before = good.iter().filter(|good| **good).count();
            for (record, (header, _)) in records() {
                good[record] &= sibling_records(header).iter().all(|&sibling| good[sibling as usize]);
            }
        }
        records().for_each(|(record, (_, &tensor))| there[tensor] = good[record]);
        found.push(good);
    }
    found
}

/// The sibling of which a prediction takes the content before this layer as well.
pub fn earlier_sibling(layer: &Layer, header: &RecordHeader) -> Option<usize> {
    match &header.base {
        Base::Predicted(Prediction { formula: Formula::SecondMoment, .. }) => layer.siblings(header).next(),
        _ => None,
    }
}
