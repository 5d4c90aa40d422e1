//! The quantizer alone, for benchmarks of stages.

use super::lossy::LossyRecord;
use super::squares::Measured;
use crate::chunk::with_scratch;
use crate::coding::Coding;
use crate::delta::Value;
use crate::promote::Promotion;
use crate::quantize::{Encoding, Quantizer};
use crate::statistics::{Against, Counts, Statistics};

/// The product's rule with the buckets of some entries.
pub struct QuantizeStage {
    encoding: Encoding<f32, Value>,
}

impl QuantizeStage {
    pub fn new(levels: u8, target: &[f32], base: &[f32]) -> Self {
        let kept = Promotion::Levels(levels).choose(&Counts::of_chunk(Value, target, Against::Base(base)));
        let statistics = Statistics::<f32, Value>::of_buckets(Value, target, Against::Base(base), &kept, false);
        let mean = |bucket| statistics.buckets.iter().find(|(b, _)| *b == bucket).map(|(_, s)| s.mean());
        let representatives = kept.iter().filter_map(|&bucket| mean(bucket)).collect();
        QuantizeStage { encoding: Encoding::new(Quantizer::of_representatives(Value, representatives), &kept) }
    }

    /// Delta, bucket, symbol, reconstruction and content sum of every chunk.
    pub fn run(&self, target: &[f32], base: &mut [f32]) -> u64 {
        let record = LossyRecord {
            encoding: &self.encoding,
            coding: &Coding::Constant(0),
            from_zero: false,
            leaves_unchanged: true,
            exceptions: true,
            measured: Measured::Sample { chunk: 0 },
        };
        let chunks = target.chunks(1 << 16).zip(base.chunks_mut(1 << 16));
        chunks
            .map(|(target, base)| with_scratch(|scratch| record.quantize(target, base, scratch).sum))
            .fold(0, u64::wrapping_add)
    }
}
