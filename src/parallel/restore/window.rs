//! Windows: pieces of a restore that are read, decoded and forgotten one after another.

use super::stored::{Source, Stored};
use super::unit::{Decoders, UnitJob};
use super::{Chain, Failure};
use crate::error::Error;
use crate::parallel::Pool;
use std::collections::HashMap;
use std::ops::Range;

/// Elements of a tensor that are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    pub tensor: usize,
    pub elements: Range<usize>,
}

/// Bytes of a file's payload that a window needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub file: usize,
    pub offset: u64,
    pub length: usize,
    /// How many chunks these are.
    pub chunks: usize,
}

/// Segments of so many bytes, with chunks of so many, are read by those who decode them, each chunk where it is decoded. Smaller
/// chunks are read together.
const READ_APART: usize = 1 << 18;
const CHUNK_APART: usize = 1 << 12;

impl Segment {
    /// Adds it to others, as one with the last where it follows that.
    pub fn append_to(self, segments: &mut Vec<Segment>) {
        match segments.last_mut() {
            Some(last) if last.file == self.file && last.offset + last.length as u64 == self.offset => {
                last.length += self.length;
                last.chunks += self.chunks;
            }
            _ => segments.push(self),
        }
    }

    /// Whether it is best given as a file.
    pub fn is_read_apart(&self) -> bool {
        self.length >= READ_APART && self.length >= self.chunks.saturating_mul(CHUNK_APART)
    }
}

/// Some units of some groups.
#[derive(Debug, Clone, Default)]
pub struct Window {
    parts: Vec<Part>,
    segments: Vec<Segment>,
}

#[derive(Debug, Clone)]
struct Part {
    group: usize,
    units: Range<usize>,
}

/// Where a selection's elements go: as many bytes as it has.
pub struct Output<'a> {
    pub selection: Selection,
    pub bytes: &'a mut [u8],
}

impl Window {
    /// What has to be read, in order of file and offset.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }
}

impl Chain {
    /// Cuts the restore of `selections` into windows of about `budget` bytes, stored and decoded.
    pub fn windows(&self, selections: &[Selection], budget: usize) -> Vec<Window> {
        let mut windows = Vec::new();
        let mut current = Window::default();
        let mut spent = 0usize;
        for (group, units) in self.wanted_units(selections) {
            for unit in units {
                let cost = self.cost(group, unit);
                if spent > 0 && spent.saturating_add(cost) > budget {
                    windows.push(self.with_segments(std::mem::take(&mut current)));
                    spent = 0;
                }
                spent = spent.saturating_add(cost);
                match current.parts.last_mut() {
                    Some(part) if part.group == group && part.units.end == unit => part.units.end += 1,
                    _ => current.parts.push(Part { group, units: unit..unit + 1 }),
                }
            }
        }
        if !current.parts.is_empty() {
            windows.push(self.with_segments(current));
        }
        windows
    }

    /// Groups in the order in which they are first selected, each with the units that cover what is selected of it.
    fn wanted_units(&self, selections: &[Selection]) -> Vec<(usize, Range<usize>)> {
        let mut wanted: Vec<(usize, Range<usize>)> = Vec::new();
        let mut places: HashMap<usize, usize> = HashMap::new();
        for selection in selections.iter().filter(|selection| !selection.elements.is_empty()) {
            let group = self.group_of[selection.tensor];
            let log2 = self.groups[group].unit_log2;
            let units = selection.elements.start >> log2..((selection.elements.end - 1) >> log2) + 1;
            let place = *places.entry(group).or_insert_with(|| {
                wanted.push((group, units.clone()));
                wanted.len() - 1
            });
            let all = &mut wanted[place].1;
            *all = all.start.min(units.start)..all.end.max(units.end);
        }
        wanted
    }

    /// Bytes of a unit: decoded, and stored in all layers.
    fn cost(&self, group: usize, unit: usize) -> usize {
        let elements = self.groups[group].unit(unit).len();
        let decoded: usize =
            self.groups[group].members.iter().map(|&tensor| elements * self.shapes[tensor].element.size()).sum();
        let stored: usize = self.stored(group, unit..unit + 1).iter().map(|segment| segment.length).sum();
        decoded.saturating_add(stored)
    }

    /// The stored bytes of some units, chunk by chunk.
    fn stored(&self, group: usize, units: Range<usize>) -> Vec<Segment> {
        let group = &self.groups[group];
        let elements = group.unit(units.start).start..group.unit(units.end - 1).end;
        let mut segments = Vec::new();
        for layer in self.layers.iter().skip(group.start) {
            for record in group.members.iter().filter_map(|&tensor| layer.record(tensor)) {
                let header = &layer.headers[record];
                let chunks = header.chunks_of(&elements);
                let starts = &layer.offsets[record][chunks.clone()];
                for (&offset, entry) in starts.iter().zip(&header.index[chunks]) {
                    let length = entry.length.unwrap_or(0) as usize;
                    if length > 0 {
                        segments.push(Segment { file: layer.file, offset, length, chunks: 1 });
                    }
                }
            }
        }
        segments
    }

    fn with_segments(&self, mut window: Window) -> Window {
        let mut segments: Vec<Segment> =
            window.parts.iter().flat_map(|part| self.stored(part.group, part.units.clone())).collect();
        segments.sort_unstable_by_key(|segment| (segment.file, segment.offset));
        segments.into_iter().for_each(|next| next.append_to(&mut window.segments));
        window
    }

    /// Decodes a window: `sources[i]` has the bytes of its segment i. Fills what it covers of `outputs` (which may be
    /// those of all selections). `check_each`: every record against its content sums, not only the last. After a failure the
    /// outputs' content means nothing.
    pub fn decode(
        &self,
        window: &Window,
        sources: &[Source<'_>],
        outputs: &mut [Output<'_>],
        check_each: bool,
        pool: &Pool,
    ) -> Result<(), Failure> {
        let request = |what| Failure { layer: 0, tensor: 0, error: Error::Request(what) };
        let fits = |(segment, source): (&Segment, &Source<'_>)| match source {
            Source::Bytes(bytes) => segment.length == bytes.len(),
            Source::File(..) => true,
        };
        if sources.len() != window.segments.len() || !window.segments.iter().zip(sources).all(fits) {
            return Err(request("a window was given other bytes than it asked for"));
        }
        let stored = Stored { segments: &window.segments, sources };
        let mut by_group: HashMap<usize, Vec<&mut Output<'_>>> = HashMap::new();
        for output in outputs {
            let size = self.shapes[output.selection.tensor].element.size();
            if output.bytes.len() != output.selection.elements.len() * size {
                return Err(request("an output has another size than its selection"));
            }
            by_group.entry(self.group_of[output.selection.tensor]).or_default().push(output);
        }
        let parts: Vec<_> = window.parts.iter().map(|p| (p, by_group.remove(&p.group).unwrap_or_default())).collect();
        let shared: Vec<Option<Decoders>> =
            pool.map(parts.iter().map(|(part, _)| *part).collect(), |part| self.shared_decoders(part));
        let jobs = parts
            .into_iter()
            .zip(&shared)
            .flat_map(|((part, outputs), decoders)| self.jobs(part, outputs, decoders.as_ref()));
        let results = pool.map(jobs.collect(), |job: UnitJob<'_>| job.run(&stored, check_each));
        results.into_iter().collect()
    }

    /// Decoders that the units of a part share, where it has several.
    fn shared_decoders(&self, part: &Part) -> Option<Decoders> {
        (part.units.len() > 1).then(|| Decoders::new(self, &self.groups[part.group]))
    }

    fn jobs<'a>(
        &'a self,
        part: &Part,
        outputs: Vec<&'a mut Output<'_>>,
        decoders: Option<&'a Decoders>,
    ) -> Vec<UnitJob<'a>> {
        let group = &self.groups[part.group];
        let new_job = |unit| UnitJob::new(self, group, group.unit(unit), decoders);
        let mut jobs: Vec<UnitJob<'a>> = part.units.clone().map(new_job).collect();
        for output in outputs {
            let Selection { tensor, elements } = output.selection.clone();
            let size = self.shapes[tensor].element.size();
            let mut rest = &mut *output.bytes;
            let mut at = elements.start;
            for job in &mut jobs {
                let covered = job.elements().start.clamp(at, elements.end)..job.elements().end.clamp(at, elements.end);
                let (_, after) = rest.split_at_mut((covered.start - at) * size);
                let (taken, after) = after.split_at_mut(covered.len() * size);
                rest = after;
                at = covered.end;
                if !covered.is_empty() {
                    job.add_output(tensor, covered, taken);
                }
            }
        }
        jobs
    }
}
