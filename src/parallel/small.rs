//! Tensors of one chunk at most: many at once, but each after its siblings.

use super::encode::Summary;
use super::families::{Beside, Families, Family, copy_of};
use super::large::encode_one;
use super::{Pool, Tensor, TensorBase};
use crate::checksum::TensorSum;
use crate::error::Result;
use crate::header::chunk_count;
use crate::sink::Buffer;
use std::ops::Range;

/// Original bytes that are worked on at once, at most.
const BATCH_BYTES: usize = 16 << 20;

/// What became of a tensor.
pub struct Coded {
    pub number: usize,
    pub header: Vec<u8>,
    pub summary: Summary,
    /// The sum of its target, if that is watched.
    pub seen: TensorSum,
    /// What it was before, if that is kept.
    pub before: Option<Vec<u64>>,
}

/// Places in the coding order from `start` on that hold tensors of one chunk at most, or links, within a batch: in runs that
/// do not depend on each other.
pub fn small_runs(
    start: usize,
    tensors: &[Tensor<'_>],
    links: &[Option<u32>],
    families: &Families,
) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for place in start..families.order.len() {
        let number = families.order[place];
        let tensor = &tensors[number];
        let places = families.siblings(number).iter().map(|&sibling| families.place[sibling as usize]);
        let first = places.filter(|place| *place >= start).min().unwrap_or(place);
        if links[number].is_none() {
            bytes += tensor.target.len();
            // Siblings have one length, and so are in one batch.
            let fits = bytes <= BATCH_BYTES || place == start || first < place;
            if chunk_count(tensor.elements(), tensor.spec.chunk_log2) > 1 || !fits {
                break;
            }
        }
        while runs.last().is_some_and(|run| run.end > first) {
            runs.pop();
        }
        let run_start = runs.last().map_or(start, |run| run.end);
        runs.push(run_start..place + 1);
    }
    runs
}

/// A tensor of a run.
struct Member<'a, 't> {
    number: usize,
    tensor: &'a mut Tensor<'t>,
    family: Option<&'a mut Family>,
    keeps: bool,
    is_link: bool,
    slot: &'a mut Buffer,
}

/// Encodes runs of small tensors, each tensor into a slot of its own; links are passed over.
pub fn encode_small(
    runs: Vec<Range<usize>>,
    tensors: &mut [Tensor<'_>],
    links: &[Option<u32>],
    families: &mut Families,
    slots: &mut Vec<Buffer>,
    watched: bool,
    pool: &Pool,
) -> Result<Vec<Coded>> {
    let places = runs.first().map_or(0, |run| run.start)..runs.last().map_or(0, |run| run.end);
    slots.resize_with(places.len(), Buffer::default);
    let numbers: Vec<usize> = families.order[places].to_vec();
    let mut own: Vec<Option<Family>> = numbers.iter().map(|&number| families.of[number].take()).collect();
    let mut all: Vec<Option<&mut Tensor<'_>>> = tensors.iter_mut().map(Some).collect();
    let keeps = |number: usize| families.keeps(number);
    let members = numbers.iter().zip(own.iter_mut()).zip(slots.iter_mut()).filter_map(|((&number, family), slot)| {
        let tensor = all[number].take()?;
        let (keeps, is_link) = (keeps(number), links[number].is_some());
        Some(Member { number, tensor, family: family.as_mut(), keeps, is_link, slot })
    });
    let mut members: Vec<Member<'_, '_>> = members.collect();
    let lengths: Vec<usize> = runs.iter().map(Range::len).collect();
    let mut work = Vec::with_capacity(lengths.len());
    for length in lengths.into_iter().rev() {
        work.push(members.split_off(members.len() - length));
    }
    work.reverse();
    let encode = |run: Vec<Member<'_, '_>>| encode_run(run, &all, families, watched);
    let coded: Result<Vec<Vec<Coded>>> = pool.map(work, encode).into_iter().collect();
    let coded = coded?.into_iter().flatten().collect();
    numbers.into_iter().zip(own).for_each(|(number, family)| families.of[number] = family);
    Ok(coded)
}

fn encode_run(
    mut run: Vec<Member<'_, '_>>,
    others: &[Option<&mut Tensor<'_>>],
    families: &Families,
    watched: bool,
) -> Result<Vec<Coded>> {
    let mut coded: Vec<Coded> = Vec::with_capacity(run.len());
    for at in 0..run.len() {
        let (done, rest) = run.split_at_mut(at);
        let Member { number, tensor, family, keeps, is_link, slot } = &mut rest[0];
        let number = *number;
        if *is_link {
            // Its source tells whether it is finite.
            let summary = Summary { lossy: false, finite: true };
            coded.push(Coded { number, header: Vec::new(), summary, seen: TensorSum::default(), before: None });
            continue;
        }
        let before = match &tensor.base {
            TensorBase::Previous(base) if *keeps => Some(copy_of(base)),
            _ => None,
        };
        let find = |wanted: usize| {
            let here = done.iter().position(|member| member.number == wanted);
            let tensor = match here {
                Some(at) => Some(&*done[at].tensor),
                None => others[wanted].as_deref(),
            };
            let kept = here.and_then(|at| coded[at].before.as_deref()).or(families.kept(wanted));
            (tensor, kept)
        };
        let family = family.as_deref_mut();
        let one = encode_one((number, tensor), family, &Beside { find: &find }, *slot, watched)?;
        coded.push(Coded { before, ..one });
    }
    Ok(coded)
}
