//! Symbols added where they are against symbols of all entries applied.

use super::lossy::LossyDecoder;
use super::{ChunkDecoder, Rule};
use crate::checksum::content_sum;
use crate::chunk::Scratch;
use crate::coding::{Coding, CodingChoice, Decoding, FieldBits, Histogram};
use crate::float::Element;
use crate::header::Meaning;
use half::{bf16, f16};
use proptest::prelude::*;
use proptest::sample::Index;

/// Symbols of chunks from dense ones to ones with hardly any, now and then longer than places are numbered.
fn symbols(highest: u8) -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![9 => 1usize..3000, 1 => 65_530usize..65_540, 1 => Just(70_000)];
    (length, 1u32..600, any::<u64>()).prop_map(move |(length, rarity, seed)| {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        };
        let mut symbol = || if next() % rarity == 0 { 1 + (next() % u32::from(highest)) as u8 } else { 0 };
        (0..length).map(|_| symbol()).collect()
    })
}

/// With a content sum all entries are looked at, without only those that have a symbol. `damage`: a place and bits to flip.
fn both_ways_alike<E: Element>(rule: Rule<E>, highest: u8, symbols: &[u8], damage: (Index, u8)) {
    let mut counts = Histogram::with_pairs();
    counts.count(symbols);
    let coding = Coding::choose(&counts, highest, FieldBits::default(), CodingChoice::Tokens).coding;
    // No exceptions, in a record that may have some.
    let (mut stored, mut scratch) = (vec![0], Scratch::default());
    coding.encode(symbols, &mut scratch.coding, &mut stored);
    assert!(!scratch.coding.unfit);
    let decoding = Some(Decoding::new(coding, highest));
    let decoder = ChunkDecoder { rule, decoding, from_zero: false, exceptions: true };
    // Any bits, so NaN, infinities and zeros of both signs too.
    let word = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - E::BITS);
    let before: Vec<E> = (0..symbols.len() as u64).map(|i| E::of_bits(word(i))).collect();
    let mut decode = |stored: &[u8], sum| {
        let mut elements = before.clone();
        let told = decoder.decode(stored, &mut elements, sum, &mut scratch);
        (told, elements)
    };
    let bits = |elements: &[E]| elements.iter().map(|e| e.bits()).collect::<Vec<_>>();
    let ((sum, all), (none, few)) = (decode(&stored, true), decode(&stored, false));
    assert_eq!((sum, none), (Ok(content_sum(bytemuck::cast_slice(&few))), Ok(0)));
    assert_eq!(bits(&few), bits(&all));

    let mut damaged = stored.clone();
    damaged[damage.0.index(stored.len())] ^= damage.1;
    for bytes in [&damaged[..], &stored[..stored.len() - 1]] {
        let ((told_all, all), (told_few, few)) = (decode(bytes, true), decode(bytes, false));
        assert_eq!(told_all.map(|_| ()), told_few.map(|_| ()));
        assert!(told_few.is_err() || bits(&few) == bits(&all));
    }
}

proptest! {
    #[test]
    fn few_symbols_are_added_as_all_are_applied(
        (highest, symbols) in (1u8..=15).prop_flat_map(|highest| (Just(highest), symbols(highest))),
        scale in -20i32..20, at: Index, flip in 1u8..,
    ) {
        let steps = (0..highest).map(|k| (f64::from(k) - 2.5) * 2f64.powi(scale)).collect();
        let values = Meaning::Values(steps);
        let integers = Meaning::Integers((0..i128::from(highest)).map(|k| (3 * k * k * k + 1) * (1 - k % 2 * 2)).collect());
        let damage = (at, flip);
        both_ways_alike::<f32>(Rule::Value(LossyDecoder::of_values(&values, 0)), highest, &symbols, damage);
        both_ways_alike::<f64>(Rule::Value(LossyDecoder::of_values(&values, 0)), highest, &symbols, damage);
        both_ways_alike::<f16>(Rule::Value(LossyDecoder::of_values(&values, 0)), highest, &symbols, damage);
        both_ways_alike::<bf16>(Rule::Value(LossyDecoder::of_values(&values, 0)), highest, &symbols, damage);
        both_ways_alike::<f32>(Rule::Ordered(LossyDecoder::of_integers(&integers, 0)), highest, &symbols, damage);
        both_ways_alike::<f32>(Rule::NonNegative(LossyDecoder::of_integers(&integers, 0)), highest, &symbols, damage);
        both_ways_alike::<bf16>(Rule::Ordered(LossyDecoder::of_integers(&integers, 0)), highest, &symbols, damage);
    }
}
