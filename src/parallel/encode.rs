//! Encoding the tensors of a snapshot in order, as many bytes at a time as the caller has room for.

use super::families::{Beside, Families, copy_of};
use super::large::{Current, plan_of, plans_alone};
use super::links::link_record;
use super::outgoing::Outgoing;
use super::small::{Coded, encode_small, small_runs};
use super::{Pool, Tensor, watch};
use crate::checksum::{Crc, TensorSum};
use crate::error::{Error, Result};
use crate::fenv;
use crate::plan::{AnyPlan, Serial};
use crate::sink::{Buffer, Spilling};

/// Tensors that are planned at once, for each thread, and among how many these are looked for.
const PLANS_A_THREAD: usize = 2;
const LOOK_AHEAD: usize = 64;

/// Where a snapshot's encoding stands.
pub struct SnapshotEncoder {
    links: Vec<Option<u32>>,
    /// The record number of the first tensor.
    first: u32,
    families: Families,
    /// By record; how many are done, in the order of coding.
    headers: Vec<Vec<u8>>,
    /// By record: sums of the targets, if these are watched.
    seen: Vec<TensorSum>,
    watched: bool,
    coded: usize,
    summary: Summary,
    current: Option<Current>,
    /// Plans of tensors to come, by number.
    planned: Vec<(usize, AnyPlan)>,
    /// Coded bytes that the caller had no room for, from this position on.
    spill: Vec<u8>,
    spilled: usize,
    /// Buffers for coded chunks.
    slots: Vec<Buffer>,
}

/// What is true of a snapshot as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Whether any record is lossy.
    pub lossy: bool,
    /// Whether every entry of every float tensor is finite.
    pub finite: bool,
}

/// What is left to be stored of a snapshot once its chunks are.
pub struct Finished {
    pub headers: Vec<u8>,
    pub summary: Summary,
    /// Of the targets, if they are watched.
    pub sums: Vec<u64>,
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
            seen: vec![TensorSum::default(); links.len()],
            watched: false,
            coded: 0,
            links,
            first,
            families,
            summary: Summary { lossy: false, finite: true },
            current: None,
            planned: Vec::new(),
            spill: Vec::new(),
            spilled: 0,
            slots: Vec::new(),
        }
    }

    /// The same, with sums taken of the targets, which tell whether these are changed from a snapshot to its residual.
    pub fn watching(self, watched: bool) -> Self {
        SnapshotEncoder { watched, ..self }
    }

    /// Whether any record's base is predicted.
    pub fn predicts(&self) -> bool {
        self.families.any()
    }

    /// Writes coded bytes to `out` and tells how many; none once everything is coded. `tensors` are the same at every call, and
    /// after an error nothing more can be had. `crc` is of all coded bytes once everything is written: of what `out` had no room
    /// for already before that.
    pub fn fill(&mut self, tensors: &mut [Tensor<'_>], out: &mut [u8], crc: &mut Crc, pool: &Pool) -> Result<usize> {
        fenv::standard(|| self.fill_some(tensors, out, crc, pool))
    }

    fn fill_some(&mut self, tensors: &mut [Tensor<'_>], out: &mut [u8], crc: &mut Crc, pool: &Pool) -> Result<usize> {
        let written = self.take_spill(out);
        let enough = out.len() / 2;
        let mut outgoing = Outgoing::new(Spilling::after(written, out, std::mem::take(&mut self.spill)), crc);
        while (outgoing.taken() == 0 || outgoing.taken() < enough) && self.coded < tensors.len() {
            self.encode_some(tensors, &mut outgoing, pool)?;
        }
        let written = outgoing.taken();
        self.spill = outgoing.into_spill();
        Ok(written)
    }

    /// The record headers in order, once [`SnapshotEncoder::fill`] has written nothing more, and the sums of the targets if they are
    /// watched; completes the links.
    pub fn finish(mut self, tensors: &mut [Tensor<'_>]) -> Result<Finished> {
        if self.coded != tensors.len() || self.spilled < self.spill.len() {
            return Err(Error::Request("the snapshot is not yet encoded"));
        }
        fenv::standard(|| self.write_links(tensors))?;
        let sums = if self.watched { self.seen.into_iter().map(TensorSum::value).collect() } else { Vec::new() };
        Ok(Finished { headers: self.headers.concat(), summary: self.summary, sums })
    }

    fn write_links(&mut self, tensors: &mut [Tensor<'_>]) -> Result<()> {
        for target in 0..tensors.len() {
            if let Some(source) = self.links[target] {
                let header = if self.watched {
                    let (header, seen) = watch::link(tensors, (target, source), self.first)?;
                    self.seen[target] = seen;
                    header
                } else {
                    link_record(tensors, target, source, self.first)?
                };
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

    /// Encodes some more chunks, of one large tensor or of several small ones.
    fn encode_some(&mut self, tensors: &mut [Tensor<'_>], outgoing: &mut Outgoing<'_>, pool: &Pool) -> Result<()> {
        if self.current.is_none() {
            let runs = small_runs(self.coded, tensors, &self.links, &self.families);
            if !runs.is_empty() {
                let mut slots = std::mem::take(&mut self.slots);
                slots.iter_mut().for_each(Buffer::clear);
                let coded =
                    encode_small(runs, tensors, &self.links, &mut self.families, &mut slots, self.watched, pool)?;
                slots.iter().for_each(|slot| outgoing.emit(slot.bytes()));
                self.slots = slots;
                coded.into_iter().for_each(|coded| self.take(coded));
                return Ok(());
            }
        }
        self.plan_ahead(tensors, pool)?;
        self.encode_large(tensors, outgoing, pool)
    }

    /// Plans the next large tensors at once: of one alone most of a plan is one thread's work.
    fn plan_ahead(&mut self, tensors: &[Tensor<'_>], pool: &Pool) -> Result<()> {
        if pool.threads() == 1 || self.current.is_some() || !self.planned.is_empty() {
            return Ok(());
        }
        // Of what is as its base, and watched, there will be no plan.
        let alone = |number: &usize| {
            let same = self.watched && watch::may_be_same(&tensors[*number]);
            self.links[*number].is_none() && self.families.of[*number].is_none() && !same
        };
        let next = self.families.order[self.coded..].iter().copied().take(LOOK_AHEAD).filter(alone);
        let next: Vec<usize> =
            next.filter(|&number| plans_alone(&tensors[number])).take(PLANS_A_THREAD * pool.threads()).collect();
        if next.len() > 1 {
            let plan = |number: usize| Ok((number, plan_of(&tensors[number], &Serial)?));
            self.planned = pool.map(next, plan).into_iter().collect::<Result<_>>()?;
        }
        Ok(())
    }

    fn planned(&mut self, number: usize) -> Option<AnyPlan> {
        let at = self.planned.iter().position(|(planned, _)| *planned == number)?;
        Some(self.planned.swap_remove(at).1)
    }

    fn encode_large(&mut self, tensors: &mut [Tensor<'_>], outgoing: &mut Outgoing<'_>, pool: &Pool) -> Result<()> {
        let number = self.families.order[self.coded];
        let (tensor, others) = Others::of(tensors, number);
        if self.current.is_none() && self.families.keeps(number) {
            self.families.keep(number, copy_of(tensor.base.bytes().map_or(&[], |(base, _)| base)));
        }
        let planned = self.planned(number);
        let mut family = self.families.of[number].take();
        let families = &self.families;
        let find = |wanted: usize| (others.get(wanted), families.kept(wanted));
        let siblings = Beside { find: &find }.of(family.as_ref());
        let mut current = match self.current.take() {
            Some(current) => current,
            None => Current::new(tensor, planned, family.as_mut(), siblings, self.watched, pool)?,
        };
        current.encode(tensor, siblings, &mut self.slots, pool, outgoing)?;
        self.families.of[number] = family;
        if current.is_done() {
            self.take(current.finish(number, tensor.element));
        } else {
            self.current = Some(current);
        }
        Ok(())
    }

    /// Notes what became of the next tensor.
    fn take(&mut self, coded: Coded) {
        let Coded { number, header, summary, seen, before } = coded;
        if let Some(content) = before {
            self.families.keep(number, content);
        }
        self.families.coded(number);
        self.headers[number] = header;
        self.seen[number] = seen;
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
