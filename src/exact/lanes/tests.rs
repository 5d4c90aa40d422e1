//! Chunks in lanes against their twin, entry by entry.

use super::*;
use half::{bf16, f16};
use proptest::prelude::*;

/// Cuts and joins a chunk both ways.
fn as_entry_by_entry<E: Element, C: LaneCut<E>>(pairs: &[(u64, u64)], top: u16, skip_zeros: bool) {
    let (cut, window) = (C::default(), Window { top });
    let element = |bits: u64| E::of_bits(bits & (u64::MAX >> (64 - E::BITS)));
    let target: Vec<E> = pairs.iter().map(|pair| element(pair.0)).collect();
    let base: Vec<E> = pairs.iter().map(|pair| element(pair.1)).collect();
    let zeros_too = C::ZEROS_HAVE_FIELDS && !skip_zeros;
    let (mut cuts, mut escapes) = (Cuts::default(), Vec::new());
    cuts.cut::<E, C>(window, &target, Against::Base(&base), zeros_too, &mut escapes);
    let (mut classes, mut symbols) = (Vec::new(), vec![9; target.len()]);
    for_each_class::<E, C>(&target, Against::Base(&base), |some| classes.extend_from_slice(some));
    symbols_of(window, &classes, &mut symbols);
    assert_eq!(symbols, cuts.symbols);
    let mut escaped = escapes.iter();
    for i in 0..target.len() {
        assert_eq!(classes[i], cut.cut(target[i], base[i]).0.map_or(0, |class| class + 1));
        let (class, field) = cut.cut(target[i], base[i]);
        let width = class.map_or(if zeros_too { cut.field_width(0) } else { 0 }, |class| cut.field_width(class));
        assert_eq!(cuts.symbols[i], window.symbol(class));
        assert_eq!(u32::from(cuts.widths[i]), width);
        if width > 0 {
            assert_eq!(u64::from(cuts.fields[i]), field);
        }
        if cuts.symbols[i] == ESCAPE {
            assert_eq!(escaped.next().copied(), class);
        }
    }
    assert_eq!(escaped.next(), None);
    let symbols = cuts.symbols.clone();
    if cuts.classify::<E, C>(window, &symbols, zeros_too, &escapes) {
        // Bits above a field do not count, and an entry without a class is the base's.
        cuts.fields.iter_mut().zip(&cuts.widths).for_each(|(f, &w)| *f |= (!0u64 << w) as u32);
        let mut found = base.clone();
        assert!(cuts.join::<E, C>(&symbols, zeros_too, &mut found));
        for i in 0..target.len() {
            let expected = if symbols[i] == 0 { base[i] } else { target[i] };
            assert_eq!(found[i].bits(), expected.bits());
        }
    }
}

fn pair() -> impl Strategy<Value = (u64, u64)> {
    prop_oneof![
        any::<(u64, u64)>(),
        any::<(u64, u16)>().prop_map(|(bits, near)| (bits.wrapping_add(near.into()), bits)),
        any::<u64>().prop_map(|bits| (bits, bits)),
        any::<u64>().prop_map(|bits| (0, bits)),
    ]
}

proptest! {
    #[test]
    fn lanes_are_as_entry_by_entry(pairs in prop::collection::vec(pair(), 0..600), top in 0u16..256, skip: bool) {
        let length = top % 33;
        as_entry_by_entry::<f32, Difference>(&pairs, length, skip);
        as_entry_by_entry::<f16, Difference>(&pairs, length, skip);
        as_entry_by_entry::<bf16, Difference>(&pairs, length, skip);
        // Of classes the base plays no part: what has none is zero.
        let pairs: Vec<(u64, u64)> = pairs.into_iter().map(|(target, _)| (target, 0)).collect();
        as_entry_by_entry::<f32, ExponentClass>(&pairs, top, skip);
        as_entry_by_entry::<f16, ExponentClass>(&pairs, top % 32, skip);
        as_entry_by_entry::<bf16, ExponentClass>(&pairs, top, skip);
    }

    #[test]
    fn fields_of_a_byte_are_those_of_32_bits(
        bits in prop::collection::vec(prop_oneof![4 => any::<u16>(), 1 => Just(0)], 0..600), top in 0u16..256, bad in any::<usize>(),
    ) {
        let (window, target) = (Window { top }, bits.iter().map(|&bits| bf16::from_bits(bits)).collect::<Vec<_>>());
        let (mut wide, mut narrow, mut fields) = (Cuts::default(), Cuts::default(), vec![9; target.len()]);
        let (mut escapes, mut found) = (Vec::new(), vec![7]);
        wide.cut::<bf16, ExponentClass>(window, &target, Against::Zero, true, &mut escapes);
        narrow.cut_bytes(window, &target, &mut fields, &mut found);
        prop_assert_eq!((&narrow.symbols, &narrow.escaped, &found), (&wide.symbols, &wide.escaped, &escapes));
        prop_assert!(fields.iter().zip(&wide.fields).all(|(byte, field)| u32::from(*byte) == *field));
        let symbols = wide.symbols.clone();
        prop_assert!(narrow.classify::<bf16, ExponentClass>(window, &symbols, true, &escapes));
        let mut joined = vec![bf16::NAN; target.len()];
        prop_assert!(narrow.join_bytes(&symbols, &fields, &mut joined));
        prop_assert!(joined.iter().zip(&bits).all(|(joined, bits)| joined.to_bits() == *bits));
        // A zero with bits.
        let zeros: Vec<usize> = (0..symbols.len()).filter(|&i| symbols[i] == 0).collect();
        if let Some(&at) = zeros.get(bad % zeros.len().max(1)) {
            fields[at] = 1 << (bad % 8);
            prop_assert!(!narrow.join_bytes(&symbols, &fields, &mut joined));
        }
    }

    #[test]
    fn symbols_between_are_found(symbols in prop::collection::vec(0u8..=15, 0..300), low in 0u8..=15) {
        let expected = symbols.iter().any(|&symbol| symbol > low && symbol < ESCAPE);
        prop_assert_eq!(has_between(&symbols, low, ESCAPE), expected);
    }
}
