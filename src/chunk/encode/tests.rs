//! The fast loops against the plain one, on entries as training makes them, with unusual ones among them.

use super::lossy::{LossyRecord, PlainLoop};
use super::squares::Measured;
use crate::checksum::content_sum;
use crate::chunk::Scratch;
use crate::coding::{Coding, Fields};
use crate::delta::{Domain, Ordered, Value};
use crate::float::Element;
use crate::promote::Promotion;
use crate::quantize::{Encoding, Quantizer};
use crate::statistics::{Against, Statistics};
use proptest::prelude::*;

/// Base and step, of sizes as they occur, and now and then anything.
fn entries() -> impl Strategy<Value = Vec<(f32, f32)>> {
    let usual = (-1f32..1.0, -20i32..-5, -1f32..1.0, -16i32..-8)
        .prop_map(|(base, e, step, s)| (base * 2f32.powi(e / 4), step * 2f32.powi(s)));
    let unusual = (any::<u32>(), any::<u32>()).prop_map(|(a, b)| (f32::from_bits(a), f32::from_bits(b)));
    let still = (-1f32..1.0).prop_map(|base| (base, 0.0));
    prop::collection::vec(prop_oneof![40 => usual, 1 => unusual, 20 => still], 0..400)
}

fn agrees<D: Domain<E>, E: Element>(target: &[E], before: &[E], promotion: Promotion) {
    let domain = D::new();
    let statistics = Statistics::<E, D>::of_chunk(domain, target, Against::Base(before));
    let kept = promotion.choose(&statistics);
    let of = |bucket| statistics.buckets.iter().find(|(b, _)| *b == bucket).map(|(_, s)| s.mean());
    let representatives = kept.iter().filter_map(|&bucket| of(bucket)).collect();
    let encoding = Encoding::new(Quantizer::of_representatives(domain, representatives), &kept);
    let (mut base, mut scratch) = (before.to_vec(), Scratch::default());
    let coding = Coding::Constant(0);
    let record = LossyRecord {
        encoding: &encoding,
        coding: &coding,
        from_zero: false,
        leaves_unchanged: true,
        exceptions: true,
        measured: Measured::All,
    };
    let quantized = record.quantize(target, &mut base, &mut scratch);
    let (mut plain_base, mut symbols, mut exceptions) = (before.to_vec(), vec![0; target.len()], Vec::new());
    let mut fields = Fields::default();
    let mut plain =
        PlainLoop { encoding: &encoding, fields: &mut fields, exceptions: &mut exceptions, not_finite: false };
    plain.run(0, target, &mut plain_base, &mut symbols);
    let bits = |elements: &[E]| elements.iter().map(|e| e.bits()).collect::<Vec<_>>();
    assert_eq!(bits(&base), bits(&plain_base));
    assert_eq!(scratch.symbols, symbols);
    assert_eq!(scratch.exceptions, exceptions);
    assert_eq!(quantized.not_finite, target.iter().any(|t| !t.finite()));
    assert_eq!(quantized.sum, content_sum(bytemuck::cast_slice(&plain_base)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Scaled so that exponents come to both ends of their range now and then.
    #[test]
    fn fast_quantizing_is_plain_quantizing(
        entries in entries(), levels in 1u8..=7, ones in any::<bool>(), scale in prop_oneof![3 => Just(0), 1 => -120i32..-90, 1 => 120i32..138],
    ) {
        let promotion = if ones { Promotion::Buckets { bits: 1 + levels % 4 } } else { Promotion::Levels(levels) };
        let scaled = |x: f32| (f64::from(x) * 2f64.powi(scale)) as f32;
        let (before, target): (Vec<f32>, Vec<f32>) = entries.iter().map(|&(b, s)| (scaled(b), scaled(b) + scaled(s))).unzip();
        agrees::<Value, f32>(&target, &before, promotion);
        let positive = |x: &[f32]| x.iter().map(|x| if x.to_bits() % 97 == 0 { *x } else { x.abs() }).collect::<Vec<_>>();
        agrees::<Ordered<true>, f32>(&positive(&target), &positive(&before), promotion);
    }

    /// Bits next to 0 and to the largest finite value, where steps are short and reconstructions are clamped.
    #[test]
    fn fast_quantizing_at_the_ends_of_the_ordered_bits(
        entries in prop::collection::vec((0u32..1 << 14, prop_oneof![9 => 0u32..40, 1 => 0u32..1 << 14]), 0..400),
        levels in 1u8..=7, from_below in any::<bool>(), least in prop_oneof![Just(0u32), Just(0x7f7f_ffff - (1 << 14))],
    ) {
        let end = least + (1 << 14);
        let near = |bits: u32| f32::from_bits(if from_below { least + bits } else { end - 1 - bits });
        let target: Vec<f32> = entries.iter().map(|&(_, b)| near(b)).collect();
        let before: Vec<f32> = entries.iter().map(|&(a, b)| near(if a % 3 == 0 { b } else { (a + b) / 300 })).collect();
        agrees::<Ordered<true>, f32>(&target, &before, Promotion::Levels(levels));
        agrees::<Ordered<true>, f32>(&before, &target, Promotion::Levels(levels));
    }

    /// 16-bit floats, by way of f32.
    #[test]
    fn fast_quantizing_of_halves(entries in entries(), levels in 1u8..=7, scale in prop_oneof![3 => Just(1.0f32), 1 => Just(60_000.0), 1 => Just(1e-6)]) {
        let (before, target): (Vec<f32>, Vec<f32>) = entries.iter().map(|&(b, s)| (scale * b, scale * (b + s))).unzip();
        let rounded = |x: &[f32]| x.iter().map(|x| half::f16::from_f32(*x)).collect::<Vec<_>>();
        agrees::<Value, _>(&rounded(&target), &rounded(&before), Promotion::Levels(levels));
        let rounded = |x: &[f32]| x.iter().map(|x| half::bf16::from_f32(*x)).collect::<Vec<_>>();
        agrees::<Value, _>(&rounded(&target), &rounded(&before), Promotion::Levels(levels));
    }
}
