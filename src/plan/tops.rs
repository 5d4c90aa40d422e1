//! The paper's plan of f32 values from the largest buckets alone, in one pass over target and base.

use super::chunk_of;
use super::lossy::{Job, LossyPlan, Rule};
use super::sample::SAMPLED_FROM;
use crate::coding::{Coding, CodingChoice, FieldBits, Histogram};
use crate::delta::{Bucket, Domain, Value};
use crate::float::{Element, ElementType};
use crate::plan::Workers;
use crate::promote::{Promotion, Representative};
use crate::quantize::Encoding;
use crate::spec::BaseChoice;
use crate::statistics::{BucketStatistics, Statistics};
use crate::tops;
use std::any::TypeId;

impl<E: Element, W: Workers> Job<'_, E, W> {
    /// `None` where the plan needs more than this can tell.
    pub(super) fn plan_by_tops<D: Domain<E>>(
        &self,
        promotion: Promotion,
        rule: fn(Encoding<E, D>) -> Rule<E>,
    ) -> Option<LossyPlan<E>> {
        let Promotion::Buckets { bits } = promotion else { return None };
        let lossy = self.lossy;
        let plain = lossy.coding == CodingChoice::Plain && lossy.representative == Representative::Midrange;
        if !plain
            || self.predicted
            || lossy.base != BaseChoice::Previous
            || lossy.refinement > 0
            || lossy.bound.is_some()
        {
            return None;
        }
        let chunks = self.tops_of_chunks::<D>((1 << bits) - 1)?;
        let mut statistics = Statistics::default();
        chunks.iter().for_each(|chunk| statistics.append(chunk.clone()));
        let kept = promotion.choose(&statistics);
        let encoding = self.encoding(&statistics, &kept, self.refinement());
        let counts = count_symbols(&chunks, &kept);
        let coded = Coding::choose(&counts, encoding.quantizer.symbols(), FieldBits::default(), lossy.coding);
        Some(LossyPlan {
            rule: rule(encoding),
            chunk_log2: self.chunk_log2,
            from_zero: false,
            prediction: None,
            within: false,
            exceptions: 0,
            coarse: false,
            sampled: self.target.len() > SAMPLED_FROM,
            coded,
        })
    }

    fn tops_of_chunks<D: Domain<E>>(&self, most: usize) -> Option<Vec<Statistics<E, D>>> {
        let mut chunks = Vec::with_capacity(self.chunks());
        let of_chunk = |number| {
            let of = |elements| chunk_of(elements, self.chunk_log2, number);
            tops_of_chunk(of(self.target), of(self.base), most)
        };
        self.workers.in_order(self.chunks(), of_chunk, |chunk| chunks.extend(chunk));
        (chunks.len() == self.chunks()).then_some(chunks)
    }
}

fn tops_of_chunk<E: Element, D: Domain<E>>(target: &[E], base: &[E], most: usize) -> Option<Statistics<E, D>> {
    if E::TYPE != ElementType::F32 || TypeId::of::<D>() != TypeId::of::<Value>() {
        return None;
    }
    let tops = tops::find(bytemuck::cast_slice(target), bytemuck::cast_slice(base), most)?;
    // As a delta from zero is itself.
    let delta = |value: f32| D::new().delta(E::of_bits(value.to_bits().into()), E::ZERO);
    let of_top = |top: &tops::Top| {
        let statistics = BucketStatistics::of_extremes(top.count, delta(top.least)?, delta(top.greatest)?);
        Some((top.bucket, statistics))
    };
    let mut buckets: Vec<_> = tops.iter().map(of_top).collect::<Option<_>>()?;
    buckets.sort_unstable_by_key(|(bucket, _)| bucket.index());
    Some(Statistics { buckets, entries: target.len() as u64 })
}

/// Counts of the symbols of the chunks that are written: those with a promoted entry.
fn count_symbols<E: Element, D: Domain<E>>(chunks: &[Statistics<E, D>], kept: &[Bucket]) -> Histogram {
    let mut counts = Histogram::default();
    for chunk in chunks {
        let mut marked = 0;
        for (bucket, statistics) in &chunk.buckets {
            if let Some(at) = kept.iter().position(|promoted| promoted == bucket) {
                counts.symbols[at + 1] += statistics.count;
                marked += statistics.count;
            }
        }
        if marked > 0 {
            counts.symbols[0] += chunk.entries - marked;
            counts.elements += chunk.entries;
        }
    }
    counts
}
