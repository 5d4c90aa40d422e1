//! Symbols added where they are against symbols of all entries applied.

use super::lossy::LossyDecoder;
use super::{ChunkDecoder, Rule};
use crate::checksum::content_sum;
use crate::chunk::Scratch;
use crate::coding::{Coding, CodingChoice, Decoding, FieldBits, Histogram};
use crate::float::Element;
use crate::header::Meaning;
use proptest::prelude::*;

const HIGHEST: u8 = 5;

/// Symbols of chunks from dense ones to ones with hardly any, now and then longer than places are numbered.
fn symbols() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![9 => 1usize..3000, 1 => 65_530usize..65_540, 1 => Just(70_000)];
    (length, 1u32..600, any::<u64>()).prop_map(|(length, rarity, seed)| {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        };
        let mut symbol = || if next() % rarity == 0 { 1 + (next() % u32::from(HIGHEST)) as u8 } else { 0 };
        (0..length).map(|_| symbol()).collect()
    })
}

/// With a content sum all entries are looked at, without only those that have a symbol.
fn both_ways_alike<E: Element>(rule: Rule<E>, symbols: &[u8], word: impl Fn(u64) -> u64) {
    let mut counts = Histogram::with_pairs();
    counts.count(symbols);
    let coding = Coding::choose(&counts, HIGHEST, FieldBits::default(), CodingChoice::Tokens).coding;
    let (mut stored, mut scratch) = (Vec::new(), Scratch::default());
    coding.encode(symbols, &mut scratch.coding, &mut stored);
    assert!(!scratch.coding.unfit);
    let decoding = Some(Decoding::new(coding, HIGHEST));
    let decoder = ChunkDecoder { rule, decoding, from_zero: false, exceptions: false };
    let before: Vec<E> =
        (0..symbols.len() as u64).map(|i| E::of_bits(word(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)))).collect();
    let (mut all, mut few) = (before.clone(), before);
    let sum = decoder.decode(&stored, &mut all, true, &mut scratch).expect("own output");
    assert_eq!(decoder.decode(&stored, &mut few, false, &mut scratch), Ok(0));
    let bits = |elements: &[E]| elements.iter().map(|e| e.bits()).collect::<Vec<_>>();
    assert_eq!(bits(&few), bits(&all));
    assert_eq!(sum, content_sum(bytemuck::cast_slice(&few)));
    // Cut off, it is refused either way; of one symbol alone nothing is stored.
    if let Some((_, cut)) = stored.split_last() {
        for sum in [true, false] {
            assert!(decoder.decode(cut, &mut few, sum, &mut scratch).is_err());
        }
    }
}

proptest! {
    #[test]
    fn few_symbols_are_added_as_all_are_applied(symbols in symbols(), scale in -20i32..20) {
        let steps = (0..HIGHEST).map(|k| f64::from(k as i8 - 2) * 2f64.powi(scale)).collect();
        let values = Meaning::Values(steps);
        let integers = Meaning::Integers(vec![-70_000, -3, 1, 900, 1 << 20]);
        // Any bits, so NaN, infinities and zeros of both signs too.
        both_ways_alike::<f32>(Rule::Value(LossyDecoder::of_values(&values, 0)), &symbols, |word| word >> 32);
        both_ways_alike::<f64>(Rule::Value(LossyDecoder::of_values(&values, 0)), &symbols, |word| word);
        both_ways_alike::<half::bf16>(Rule::Value(LossyDecoder::of_values(&values, 0)), &symbols, |word| word >> 48);
        both_ways_alike::<f32>(Rule::Ordered(LossyDecoder::of_integers(&integers, 0)), &symbols, |word| word >> 32);
        both_ways_alike::<f32>(Rule::NonNegative(LossyDecoder::of_integers(&integers, 0)), &symbols, |word| word >> 33);
    }
}
