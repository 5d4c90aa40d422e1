//! Bounds in whole numbers: every float as so many times 2^-1074.

use crate::bound::Bound;
use crate::float::{Arith, Element};
use std::cmp::Ordering;

/// 32 bits a place, the lowest first; enough for two floats multiplied.
type Number = Vec<u64>;

const PLACES: usize = 140;

fn whole(x: f64) -> Number {
    let bits = x.abs().to_bits();
    let (field, fraction) = (bits >> 52, bits & ((1 << 52) - 1));
    let (mantissa, shift) = if field == 0 { (fraction, 0) } else { (fraction | 1 << 52, field - 1) };
    let mut number = vec![0; PLACES];
    for at in (0..53).filter(|k| mantissa >> k & 1 == 1).map(|k| (shift + k) as usize) {
        number[at / 32] |= 1 << (at % 32);
    }
    number
}

fn plus(a: &Number, b: &Number) -> Number {
    let mut carry = 0;
    let place = |(a, b): (&u64, &u64)| {
        let sum = a + b + carry;
        carry = sum >> 32;
        sum & 0xffff_ffff
    };
    a.iter().zip(b).map(place).collect()
}

/// `a` is no less than `b`.
fn minus(a: &Number, b: &Number) -> Number {
    let mut borrowed = 0;
    let place = |(a, b): (&u64, &u64)| {
        let rest = (1u64 << 32) + a - b - borrowed;
        borrowed = u64::from(rest >> 32 == 0);
        rest & 0xffff_ffff
    };
    a.iter().zip(b).map(place).collect()
}

fn times(a: &Number, b: &Number) -> Number {
    let mut product = vec![0; PLACES];
    for (i, x) in a.iter().enumerate().filter(|(_, x)| **x > 0) {
        let mut carry = 0;
        for j in 0..PLACES - i {
            let sum = product[i + j] + x * b[j] + carry;
            product[i + j] = sum & 0xffff_ffff;
            carry = sum >> 32;
        }
        assert_eq!(carry, 0);
    }
    product
}

fn compare(a: &Number, b: &Number) -> Ordering {
    a.iter().rev().cmp(b.iter().rev())
}

/// Whether r is as near to u as it must be.
pub fn holds(bound: Bound, u: f64, r: f64) -> bool {
    let (a, b) = (whole(u), whole(r));
    let distance = match (u.is_sign_negative() != r.is_sign_negative(), compare(&a, &b)) {
        (true, _) => plus(&a, &b),
        (false, Ordering::Less) => minus(&b, &a),
        (false, _) => minus(&a, &b),
    };
    let absolute = |most: f64| compare(&distance, &whole(most)) != Ordering::Greater;
    let relative = |most: f64| compare(&times(&distance, &whole(1.0)), &times(&whole(most), &a)) != Ordering::Greater;
    bound.absolute.is_none_or(absolute) && bound.relative.is_none_or(relative)
}

/// The first entry with a finite target that is farther from it than it may be.
pub fn beyond<E: Element>(bound: Bound, target: &[E], reconstruction: &[E]) -> Option<(E, E)> {
    let value = |element: E| element.to_arith().to_f64();
    let pairs = target.iter().copied().zip(reconstruction.iter().copied());
    let good = |&(u, r): &(E, E)| !u.finite() || r.finite() && holds(bound, value(u), value(r));
    pairs.filter(|pair| pair.0.bits() != pair.1.bits()).find(|pair| !good(pair))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{Kind, RecordHeader};
    use crate::naive::record::decode_record;
    use crate::naive::rule::tests::{lossy, pairs};
    use crate::spec::Lossy;
    use crate::{Encoder, Spec};
    use half::{bf16, f16};
    use proptest::prelude::*;

    #[test]
    fn whole_numbers_of_floats() {
        let most = |absolute| Bound { absolute: Some(absolute), relative: None };
        let of = |relative| Bound { absolute: None, relative: Some(relative) };
        assert!(holds(most(0.5), 1.0, 1.5) && !holds(most(0.5f64.next_down()), 1.0, 1.5));
        assert!(holds(most(3.0), -1.0, 2.0) && !holds(most(2.9), -1.0, 2.0));
        // 1e16 + 2 - 1 is no f64.
        assert!(!holds(most(1e16), -1.0, 1e16) && holds(most(1e16), 2.0, 1e16));
        assert!(holds(of(0.25), -4.0, -5.0) && !holds(of(0.25), -4.0, (-5.0f64).next_down()));
        assert!(holds(of(0.25), 0.0, -0.0) && !holds(of(1e300), 0.0, 5e-324));
    }

    fn agrees<E: Element>(u: E, r: E, absolute: f64, relative: f64) {
        if !u.finite() || !r.finite() {
            return;
        }
        let (value, other) = (u.to_arith().to_f64(), r.to_arith().to_f64());
        let distance = (value - other).abs();
        // Bounds that the entry is near to.
        let sized = |x: f64| if x > 0.0 && x.is_finite() { Some(x) } else { None };
        for (absolute, relative) in [
            (sized(distance), None),
            (sized(distance.next_down()), None),
            (sized(distance * absolute), None),
            (None, sized(distance / value.abs())),
            (None, sized((distance / value.abs()).next_down())),
            (None, sized(distance / value.abs() * relative)),
            (sized(distance * absolute), sized(distance / value.abs() * relative)),
        ] {
            let Some(bound) = Bound::of(absolute, relative) else { continue };
            let less = |x: Option<f64>| x.map(|x| x * (1.0 - 1e-15));
            let tighter = Bound { absolute: less(bound.absolute), relative: less(bound.relative) };
            let found = bound.holds(u, r);
            assert!(!found || holds(bound, value, other), "{bound:?} {u:?} {r:?}");
            assert!(found || !holds(tighter, value, other) || value.abs() < 1e-300, "{bound:?} {u:?} {r:?}");
        }
    }

    proptest! {
        #[test]
        fn what_seems_to_hold_does(a: u64, shift in 0u32..64, b: u64, absolute in 0.5f64..2.0, relative in 0.5f64..2.0) {
            let near = a ^ (b >> shift);
            agrees(f64::from_bits(a), f64::from_bits(near), absolute, relative);
            agrees(f64::from_bits(a), f64::from_bits(b), absolute, relative);
            agrees(f32::from_bits(a as u32), f32::from_bits(near as u32), absolute, relative);
            agrees(f16::from_bits(a as u16), f16::from_bits(near as u16), absolute, relative);
            agrees(bf16::from_bits(a as u16), bf16::from_bits(near as u16), absolute, relative);
        }
    }

    fn bounds() -> impl Strategy<Value = Bound> {
        let size = || prop_oneof![-45i32..40, -12i32..2].prop_map(|e| 10f64.powi(e) * 1.37);
        prop_oneof![
            size().prop_map(|x| Bound { absolute: Some(x), relative: None }),
            size().prop_map(|x| Bound { absolute: None, relative: Some(x) }),
            (size(), size()).prop_map(|(x, y)| Bound { absolute: Some(x), relative: Some(y) }),
        ]
    }

    fn keeps<E: Element>(lossy: &Lossy, pairs: &[(u64, u64)], positive: bool, chunk_log2: u8) {
        let bound = lossy.bound.expect("a bound");
        let mask = (u64::MAX >> (64 - E::BITS)) >> u32::from(positive);
        let (mut target, mut base): (Vec<E>, Vec<E>) =
            pairs.iter().map(|&(t, b)| (E::of_bits(t & mask), E::of_bits(b & mask))).unzip();
        let spec = Spec { lossy: Some(*lossy), links: false, predict: false, chunk_log2 };
        let encoder = Encoder::new(spec).expect("valid");
        for _ in 0..3 {
            let (before, mut payload) = (base.clone(), Vec::new());
            let header = encoder.encode(&target, &mut base, &mut payload).expect("encodes");
            assert_eq!(bits(&decode_record(&header, &payload, &before)), bits(&base));
            assert!(beyond(bound, &target, &base).is_none(), "{:?} {header:?}", beyond(bound, &target, &base));
            for (i, t) in target.iter_mut().enumerate().filter(|(i, _)| i % 3 > 0) {
                *t = E::of_bits((t.bits() ^ (0x5bd1_e995_4c95_7f2d_u64.rotate_left(i as u32) >> 40)) & mask);
            }
        }
    }

    fn bits<E: Element>(elements: &[E]) -> Vec<u64> {
        elements.iter().map(|e| e.bits()).collect()
    }

    proptest! {
        #[test]
        fn every_entry_keeps_to_its_bound(
            (lossy, positive) in lossy(), bound in bounds(), fallback: bool, pairs in pairs(), chunk_log2 in 6u8..8,
        ) {
            let lossy = Lossy { bound: Some(bound), exact_fallback: fallback, ..lossy };
            keeps::<f32>(&lossy, &pairs, positive, chunk_log2);
            keeps::<f64>(&lossy, &pairs, positive, chunk_log2);
            keeps::<f16>(&lossy, &pairs, positive, chunk_log2);
            keeps::<bf16>(&lossy, &pairs, positive, chunk_log2);
        }
    }

    /// Weights and their steps, as training makes them: of all sizes, few large.
    fn drift(n: usize) -> (Vec<f32>, Vec<f32>) {
        let mut state = 7u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        let normal = |next: &mut dyn FnMut() -> f32| next() + next() + next() + next();
        let base: Vec<f32> = (0..n).map(|_| 0.05 * normal(&mut next)).collect();
        let step = |b: &f32| b + 1e-3 * normal(&mut next) * normal(&mut next).abs();
        let target = base.iter().map(step).collect();
        (base, target)
    }

    fn coded(lossy: Lossy, base: &[f32], target: &[f32]) -> (usize, Vec<f32>, RecordHeader) {
        let (mut made, mut payload) = (base.to_vec(), Vec::new());
        let spec = Spec { lossy: Some(lossy), ..Spec::lossy(3) };
        let header = Encoder::new(spec).expect("valid").encode(target, &mut made, &mut payload).expect("encodes");
        let mut bytes = Vec::new();
        header.write(crate::float::ElementType::F32, &mut bytes);
        (bytes.len() + payload.len(), made, header)
    }

    /// Of all levels and refinement bits that keep every entry within a bound by themselves none takes clearly less.
    fn is_cheap(bound: Bound, base: &[f32], target: &[f32]) -> RecordHeader {
        let free = Spec::lossy(3).lossy.expect("lossy");
        let (bytes, made, header) = coded(Lossy { bound: Some(bound), ..free }, base, target);
        assert!(beyond(bound, target, &made).is_none());
        for (levels, refinement) in (3..=7).flat_map(|levels| (0..=9).map(move |r| (levels, r))) {
            let promotion = crate::promote::Promotion::Levels(levels);
            let (other, made, found) = coded(Lossy { promotion, refinement, ..free }, base, target);
            if found.is_lossy() && beyond(bound, target, &made).is_none() {
                assert!(bytes as f64 <= other as f64 * 1.03, "{bound:?} {levels} {refinement}: {bytes} {other}");
            }
        }
        header
    }

    #[test]
    fn levels_grow_then_refinement_bits_then_all_is_exact() {
        let (base, target) = drift(20_000);
        let dials = |header: RecordHeader| match header.kind {
            Kind::Lossy { refinement, meaning, .. } => Some((meaning.symbols(), refinement)),
            _ => None,
        };
        let of = |absolute| dials(is_cheap(Bound { absolute: Some(absolute), relative: None }, &base, &target));
        assert_eq!(of(1.0), Some((6, 0)));
        let (some, more, refined) = (of(2e-4), of(6e-5), of(2e-5));
        assert!(some.is_some_and(|(symbols, _)| symbols >= 6), "{some:?}");
        assert!(more.is_some_and(|(symbols, _)| symbols > 6), "{more:?}");
        assert!(refined.is_some_and(|(_, refinement)| refinement > 0), "{refined:?}");
        assert_eq!(of(1e-12), None);
        is_cheap(Bound { absolute: None, relative: Some(1e-2) }, &base, &target);
    }

    #[test]
    fn a_loose_bound_is_no_reason_to_code_more_coarsely() {
        let squares = |target: &[f32], made: &[f32]| {
            target.iter().zip(made).map(|(t, m)| (f64::from(*t) - f64::from(*m)).powi(2)).sum::<f64>()
        };
        let free = Spec::lossy(3).lossy.expect("lossy");
        let (base, target) = drift(20_000);
        let (_, small) = drift(10_000);
        // The second moves more than it is large, and is best coded from zero.
        for (base, target) in [(&base[..], &target[..]), (&target[..10_000], &small[..]), (&base[1..], &base[..19_999])]
        {
            let (_, expected, _) = coded(free, base, target);
            for (absolute, relative) in [(Some(1e6), None), (None, Some(1e6)), (Some(1e6), Some(1e6))] {
                let (_, made, _) = coded(Lossy { bound: Bound::of(absolute, relative), ..free }, base, target);
                assert!(squares(target, &made) <= squares(target, &expected) * (1.0 + 1e-12));
                assert!(relative.is_some() || bits(&made) == bits(&expected));
            }
        }
    }

    #[test]
    fn a_sample_that_misses_what_is_far_off_does_no_harm() {
        let (base, mut target) = drift(300_000);
        // No sample holds these.
        target[70_001] = 3e4;
        target[200_002] = f32::NAN;
        target[250_003] = -1e-41;
        let free = Spec::lossy(3).lossy.expect("lossy");
        for bound in [
            Bound { absolute: Some(1e-4), relative: None },
            Bound { absolute: None, relative: Some(1e-3) },
            Bound { absolute: Some(1e-4), relative: Some(0.1) },
        ] {
            let (bytes, made, header) = coded(Lossy { bound: Some(bound), ..free }, &base, &target);
            assert!(beyond(bound, &target, &made).is_none());
            assert!(header.exceptions || !header.is_lossy());
            assert!(bytes < 4 * 300_000);
        }
    }
}
