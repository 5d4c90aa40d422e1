//! Encoding the tensors of a snapshot in order, as many bytes at a time as the caller has room for.

use super::families::{Beside, Families, copy_of};
use super::large::Current;
use super::links::link_record;
use super::small::{Coded, encode_small, small_runs};
use super::{Pool, Tensor};
use crate::error::{Error, Result};
use crate::fenv;

/// Where a snapshot's encoding stands.
pub struct SnapshotEncoder {
    links: Vec<Option<u32>>,
    /// The record number of the first tensor.
    first: u32,
    families: Families,
    /// By record; how many are done, in the order of coding.
    headers: Vec<Vec<u8>>,
    coded: usize,
    summary: Summary,
    current: Option<Current>,
    /// Coded bytes that the caller had no room for, from this position on.
    spill: Vec<u8>,
    spilled: usize,
    /// Buffers for coded chunks.
    slots: Vec<Vec<u8>>,
}

/// What is true of a snapshot as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Whether any record is lossy.
    pub lossy: bool,
    /// Whether every entry of every float tensor is finite.
    pub finite: bool,
}

impl Summary {
    fn add(&mut self, other: Summary) {
        self.lossy |= other.lossy;
        self.finite &= other.finite;
    }
}

impl SnapshotEncoder {
    /// `links[i]`: the tensor that tensor i is a link to, as [`find_links`](super::find_links) tells. `first`: the
    /// record number of the first tensor, where a snapshot is encoded in several goes.
    pub fn new(links: Vec<Option<u32>>, first: u32) -> Self {
        Self::with_families(Families::none(links.len()), links, first)
    }

    /// The same where bases are predicted, as [`find_families`](super::find_families) tells.
    pub fn with_families(families: Families, links: Vec<Option<u32>>, first: u32) -> Self {
        SnapshotEncoder {
            headers: vec![Vec::new(); links.len()],
            coded: 0,
            links,
            first,
            families,
            summary: Summary { lossy: false, finite: true },
            current: None,
            spill: Vec::new(),
            spilled: 0,
            slots: Vec::new(),
        }
    }

    /// Whether any record's base is predicted.
    pub fn predicts(&self) -> bool {
        self.families.any()
    }

    /// Writes coded bytes to `out` and tells how many; none once everything is coded. `tensors` are the same at every call, and
    /// after an error nothing more can be had.
    pub fn fill(&mut self, tensors: &mut [Tensor<'_>], out: &mut [u8], pool: &Pool) -> Result<usize> {
        fenv::standard(|| self.fill_some(tensors, out, pool))
    }

    fn fill_some(&mut self, tensors: &mut [Tensor<'_>], out: &mut [u8], pool: &Pool) -> Result<usize> {
        let mut written = self.take_spill(out);
        while (written == 0 || written < out.len() / 2) && self.coded < tensors.len() {
            let batch = self.next_batch(tensors, pool)?;
            for slot in &batch {
                written += self.emit(slot, &mut out[written..]);
            }
            self.slots = batch;
        }
        Ok(written)
    }

    /// The record headers in order, once [`SnapshotEncoder::fill`] has written nothing more; completes the links.
    pub fn finish(mut self, tensors: &mut [Tensor<'_>]) -> Result<(Vec<u8>, Summary)> {
        if self.coded != tensors.len() || self.spilled < self.spill.len() {
            return Err(Error::Request("the snapshot is not yet encoded"));
        }
        fenv::standard(|| self.write_links(tensors))?;
        Ok((self.headers.concat(), self.summary))
    }

    fn write_links(&mut self, tensors: &mut [Tensor<'_>]) -> Result<()> {
        for target in 0..tensors.len() {
            if let Some(source) = self.links[target] {
                let header = link_record(tensors, target, source, self.first)?;
                header.write(tensors[target].element, &mut self.headers[target]);
            }
        }
        Ok(())
    }

    fn take_spill(&mut self, out: &mut [u8]) -> usize {
        let rest = &self.spill[self.spilled..];
        let taken = rest.len().min(out.len());
        out[..taken].copy_from_slice(&rest[..taken]);
        self.spilled += taken;
        if self.spilled == self.spill.len() {
            self.spill.clear();
            self.spilled = 0;
        }
        taken
    }

    fn emit(&mut self, bytes: &[u8], out: &mut [u8]) -> usize {
        let taken = bytes.len().min(out.len());
        out[..taken].copy_from_slice(&bytes[..taken]);
        self.spill.extend_from_slice(&bytes[taken..]);
        taken
    }

    /// Encodes some more chunks, into one slot each or one a tensor.
    fn next_batch(&mut self, tensors: &mut [Tensor<'_>], pool: &Pool) -> Result<Vec<Vec<u8>>> {
        let mut slots = std::mem::take(&mut self.slots);
        slots.iter_mut().for_each(Vec::clear);
        if self.current.is_none() {
            let runs = small_runs(self.coded, tensors, &self.links, &self.families);
            if !runs.is_empty() {
                let coded = encode_small(runs, tensors, &self.links, &mut self.families, &mut slots, pool)?;
                coded.into_iter().for_each(|coded| self.take(coded));
                return Ok(slots);
            }
        }
        let number = self.families.order[self.coded];
        let (tensor, others) = Others::of(tensors, number);
        if self.current.is_none() && self.families.keeps(number) {
            self.families.keep(number, copy_of(tensor.base.bytes().map_or(&[], |(base, _)| base)));
        }
        let mut family = self.families.of[number].take();
        let families = &self.families;
        let find = |wanted: usize| (others.get(wanted), families.kept(wanted));
        let siblings = Beside { find: &find }.of(family.as_ref());
        let mut current = match self.current.take() {
            Some(current) => current,
            None => Current::new(tensor, family.as_mut(), siblings, pool)?,
        };
        current.encode(tensor, siblings, &mut slots, pool)?;
        self.families.of[number] = family;
        if current.is_done() {
            let (header, summary) = current.finish(tensor.element);
            self.take(Coded { number, header, summary, before: None });
        } else {
            self.current = Some(current);
        }
        Ok(slots)
    }

    /// Notes what became of the next tensor.
    fn take(&mut self, coded: Coded) {
        let Coded { number, header, summary, before } = coded;
        if let Some(content) = before {
            self.families.keep(number, content);
        }
        self.families.coded(number);
        self.headers[number] = header;
        self.summary.add(summary);
        self.coded += 1;
    }
}

/// The tensors of a snapshot but one.
struct Others<'a, 't> {
    before: &'a [Tensor<'t>],
    after: &'a [Tensor<'t>],
}

impl<'a, 't> Others<'a, 't> {
    /// Tensor `number`, and the others.
    fn of(tensors: &'a mut [Tensor<'t>], number: usize) -> (&'a mut Tensor<'t>, Self) {
        let (before, rest) = tensors.split_at_mut(number);
        let (tensor, after) = rest.split_at_mut(1);
        (&mut tensor[0], Others { before, after })
    }

    fn get(&self, number: usize) -> Option<&'a Tensor<'t>> {
        let after = number.checked_sub(self.before.len() + 1);
        self.before.get(number).or_else(|| self.after.get(after?))
    }
}
