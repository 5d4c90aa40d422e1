//! The encoder against the rule; and the strategies that others' tests use too.

use super::*;
use crate::delta::Value;
use crate::header::{Base, Kind};
use crate::statistics::{Against, Statistics};
use crate::{Encoder, Spec};
use half::{bf16, f16};
use proptest::prelude::*;

pub fn pairs() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let entry = (any::<u64>(), 1u32..40, 0u8..12).prop_map(|(bits, shift, kind)| match kind {
        0..=7 => (bits, bits ^ (bits.rotate_left(19) >> shift)),
        8 => (bits, bits),
        9 => (bits, 0),
        _ => (bits, bits.rotate_left(29)),
    });
    prop::collection::vec(entry, 0..200)
}

pub fn lossy() -> impl Strategy<Value = (Lossy, bool)> {
    let rule = (0u8..4, 1u8..=7, prop_oneof![Just(0u8), 1u8..=23]);
    (rule, any::<[bool; 4]>()).prop_map(|((domain, levels, refinement), [mean, zero, buckets, positive])| {
        let promotion = if buckets { Promotion::Buckets { bits: 1 + levels % 4 } } else { Promotion::Levels(levels) };
        let lossy = Lossy {
            domain: [DomainChoice::Auto, DomainChoice::Value, DomainChoice::Ordered, DomainChoice::Auto]
                [usize::from(domain)],
            promotion,
            non_negative: Promotion::Levels(levels.min(2)),
            representative: if mean { Representative::Mean } else { Representative::Midrange },
            refinement,
            base: if zero { BaseChoice::Auto } else { BaseChoice::Previous },
            exact_fallback: false,
            least_elements: 0,
            ..Spec::lossy(3).lossy.expect("lossy")
        };
        (lossy, positive)
    })
}

fn agrees<E: Element>(lossy: &Lossy, pairs: &[(u64, u64)], positive: bool, chunk_log2: u8) {
    let mask = (u64::MAX >> (64 - E::BITS)) >> u32::from(positive);
    let (target, before): (Vec<E>, Vec<E>) =
        pairs.iter().map(|&(t, b)| (E::of_bits(t & mask), E::of_bits(b & mask))).unzip();
    let spec = Spec { lossy: Some(*lossy), links: false, predict: false, chunk_log2 };
    let mut base = before.clone();
    let header = Encoder::new(spec).expect("valid").encode(&target, &mut base, &mut Vec::new()).expect("encodes");
    if header.kind == Kind::Same {
        assert_eq!(bits(&target), bits(&before));
        return;
    }
    let allowed = reconstruct(lossy, &target, &before, 1 << chunk_log2);
    let which = usize::from(header.base == Base::Zero);
    assert_eq!(bits(&base), bits(&allowed[which]), "{header:?}");
}

fn bits<E: Element>(elements: &[E]) -> Vec<u64> {
    elements.iter().map(|e| e.bits()).collect()
}

proptest! {
    #[test]
    fn the_encoder_follows_the_rule((lossy, positive) in lossy(), pairs in pairs(), chunk_log2 in 6u8..8) {
        agrees::<f32>(&lossy, &pairs, positive, chunk_log2);
        agrees::<f64>(&lossy, &pairs, positive, chunk_log2);
        agrees::<f16>(&lossy, &pairs, positive, chunk_log2);
        agrees::<bf16>(&lossy, &pairs, positive, chunk_log2);
    }

    #[test]
    fn statistics_count_the_buckets(pairs in pairs()) {
        let (target, base): (Vec<f32>, Vec<f32>) =
            pairs.iter().map(|&(t, b)| (f32::from_bits(t as u32), f32::from_bits(b as u32))).unzip();
        let statistics = Statistics::<f32, Value>::of_chunk(Value, &target, Against::Base(&base));
        let mut found: Vec<(u32, bool, u64)> =
            statistics.buckets.iter().map(|(b, s)| (u32::from(b.exponent), b.negative, s.count)).collect();
        found.sort_by_key(|&(exponent, negative, _)| (std::cmp::Reverse(exponent), negative));
        prop_assert_eq!(found, bucket_counts(&target, &base));
    }
}
