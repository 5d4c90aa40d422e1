//! Links: tensors that equal another one of the snapshot, or its rounding to f16 or bf16.

use super::tensor::{Tensor, TensorBase};
use crate::checksum::content_sum;
use crate::error::{Error, Result};
use crate::fenv;
use crate::float::{Element, ElementType};
use crate::header::{Base, ChunkEntry, Kind, RecordHeader};
use crate::view::{elements, elements_mut, with_element_type};
use std::collections::HashMap;

/// Entries of a tensor that are looked at before it is compared whole.
const SAMPLES: usize = 16;

/// Number of elements, type, and the sampled bits.
type Signature = (usize, ElementType, [u64; SAMPLES]);

/// For each tensor the earlier equal one, or the one that it is the rounding of, if it may be a link to it: both are exact,
/// or the source is, or both follow the same rule. A tensor that equals its base is none.
pub fn find_links(tensors: &[Tensor<'_>]) -> Result<Vec<Option<u32>>> {
    fenv::standard(|| find_all(tensors))
}

fn find_all(tensors: &[Tensor<'_>]) -> Result<Vec<Option<u32>>> {
    let mut links: Vec<Option<u32>> = vec![None; tensors.len()];
    let mut equals: HashMap<Signature, Vec<u32>> = HashMap::new();
    let may_link = |t: &Tensor<'_>| t.spec.links && !t.target.is_empty();
    let is_narrow = |t: &Tensor<'_>| may_link(t) && matches!(t.element, ElementType::F16 | ElementType::BF16);
    let narrow_lengths: Vec<(usize, ElementType)> =
        tensors.iter().filter(|t| is_narrow(t)).map(|t| (t.elements(), t.element)).collect();
    for (number, tensor) in tensors.iter().enumerate().filter(|(_, t)| may_link(t)) {
        let signature = (tensor.elements(), tensor.element, sample(tensor)?);
        let known = equals.entry(signature).or_default();
        match source_of(tensors, number, known)? {
            Some(source) => links[number] = Some(source),
            None => known.push(number as u32),
        }
    }
    let mut roundings: HashMap<Signature, Vec<u32>> = HashMap::new();
    for (number, tensor) in tensors.iter().enumerate().filter(|(i, t)| may_link(t) && links[*i].is_none()) {
        if !matches!(tensor.element, ElementType::F32 | ElementType::F64) {
            continue;
        }
        for narrow in [ElementType::F16, ElementType::BF16] {
            if narrow_lengths.contains(&(tensor.elements(), narrow)) {
                let signature = (tensor.elements(), narrow, sample_rounded(tensor, narrow)?);
                roundings.entry(signature).or_default().push(number as u32);
            }
        }
    }
    for (number, tensor) in tensors.iter().enumerate().filter(|(_, t)| is_narrow(t)) {
        if links[number].is_none() {
            let signature = (tensor.elements(), tensor.element, sample(tensor)?);
            if let Some(known) = roundings.get(&signature) {
                links[number] = source_of(tensors, number, known)?;
            }
        }
    }
    // What others are linked to must stay a record of its own.
    let sources: Vec<u32> = links.iter().flatten().copied().collect();
    sources.iter().for_each(|&source| {
        if let Some(further) = links[source as usize] {
            links.iter_mut().filter(|link| **link == Some(source)).for_each(|link| *link = Some(further));
        }
    });
    Ok(links)
}

fn source_of(tensors: &[Tensor<'_>], number: usize, known: &[u32]) -> Result<Option<u32>> {
    let tensor = &tensors[number];
    for &candidate in known {
        let source = &tensors[candidate as usize];
        let same_rule = !source.may_be_lossy() || (tensor.may_be_lossy() && tensor.spec == source.spec);
        // Rounding what is within a bound may lead out of it.
        let bound = source.spec.lossy.and_then(|lossy| lossy.bound);
        let keeps = bound.is_none() || !source.may_be_lossy() || source.element == tensor.element;
        if same_rule && keeps && matches_rounded(source.element, source.target, tensor)? {
            let unchanged = match &tensor.base {
                TensorBase::None => false,
                TensorBase::Previous(base) => **base == *tensor.target,
                TensorBase::Own(base) => *base == tensor.target,
            };
            return Ok((!unchanged).then_some(candidate));
        }
    }
    Ok(None)
}

/// Positions spread without a pattern that could beat with a tensor's rows.
fn positions(elements: usize) -> [usize; SAMPLES] {
    std::array::from_fn(|k| {
        let hash = (k as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(hash) * elements as u128) >> 64) as usize
    })
}

fn sample(tensor: &Tensor<'_>) -> Result<[u64; SAMPLES]> {
    with_element_type!(tensor.element, E => {
        let target = elements::<E>(tensor.target)?;
        Ok(positions(target.len()).map(|at| target[at].bits()))
    }, size => {
        let size = usize::from(size);
        Ok(positions(tensor.elements()).map(|at| {
            tensor.target[at * size..(at + 1) * size].iter().take(8).fold(0, |bits, &byte| bits << 8 | u64::from(byte))
        }))
    })
}

fn sample_rounded(tensor: &Tensor<'_>, narrow: ElementType) -> Result<[u64; SAMPLES]> {
    with_element_type!(narrow, T => with_element_type!(tensor.element, F => {
        let target = elements::<F>(tensor.target)?;
        Ok(positions(target.len()).map(|at| rounded::<F, T>(target[at]).bits()))
    }, _size => not_floats()), _size => not_floats())
}

fn not_floats<T>() -> Result<T> {
    Err(Error::Request("a link between types that are not floats"))
}

/// Whether the target is this content of a source, rounded if the types differ.
pub(super) fn matches_rounded(from: ElementType, content: &[u8], linked: &Tensor<'_>) -> Result<bool> {
    if from == linked.element {
        return Ok(content == linked.target);
    }
    with_element_type!(linked.element, T => with_element_type!(from, F => {
        let mut pairs = elements::<F>(content)?.iter().zip(elements::<T>(linked.target)?);
        Ok(pairs.all(|(from, to)| rounded::<F, T>(*from).bits() == to.bits()))
    }, _size => not_floats()), _size => not_floats())
}

/// An element rounded once to another type.
fn rounded<F: Element, T: Element>(element: F) -> T {
    use crate::float::Arith;
    T::of_f64(element.to_arith().to_f64())
}

/// Copies elements of one type to the same, or rounds them to a narrower one.
pub fn round_into(from: ElementType, source: &[u8], to: ElementType, target: &mut [u8]) -> Result<()> {
    if source.len() * to.size() != target.len() * from.size() {
        return Err(Error::Request("a link to a tensor of another length"));
    }
    if from == to {
        target.copy_from_slice(source);
        return Ok(());
    }
    with_element_type!(to, T => with_element_type!(from, F => {
        let pairs = elements_mut::<T>(target)?.iter_mut().zip(elements::<F>(source)?);
        pairs.for_each(|(to, from)| *to = rounded::<F, T>(*from));
        Ok(())
    }, _size => not_floats()), _size => not_floats())
}

/// The header of the link from tensor `target` to `source`, whose own record is done; brings the link's base to what a
/// reader will have. `first`: the record number of the first tensor.
pub fn link_record(tensors: &mut [Tensor<'_>], target: usize, source: u32, first: u32) -> Result<RecordHeader> {
    let distinct = tensors.get_disjoint_mut([target, source as usize]);
    let [linked, source_tensor] = distinct.map_err(|_| Error::Request("a link to itself or to nothing"))?;
    if let TensorBase::Previous(base) = &mut linked.base {
        round_into(source_tensor.element, source_tensor.reconstruction(), linked.element, base)?;
    }
    let content: &[u8] = match &linked.base {
        TensorBase::Previous(base) => base,
        TensorBase::None | TensorBase::Own(_) => {
            // The source may have been changed since, and coded as it then was.
            if !matches_rounded(source_tensor.element, source_tensor.reconstruction(), linked)? {
                return Err(Error::Changed);
            }
            linked.target
        }
    };
    let chunks = content.chunks(linked.chunk_bytes());
    Ok(RecordHeader {
        base: Base::Zero,
        kind: Kind::Link(first + source),
        chunk_log2: linked.spec.chunk_log2,
        exceptions: false,
        index: chunks.map(|chunk| ChunkEntry { length: Some(0), sum: content_sum(chunk) }).collect(),
    })
}
