//! Deltas of both domains: their cells, and that they lead from base to target.

use super::ordered::divide_half_even;
use super::*;
use half::{bf16, f16};
use proptest::prelude::*;

#[test]
fn ties_go_to_even() {
    let rounded: Vec<i128> = [-7, -5, -3, -1, 1, 3, 5, 7].map(|x| divide_half_even(x, 2)).to_vec();
    assert_eq!(rounded, [-4, -2, -2, 0, 0, 2, 2, 4]);
}

/// The cell of a delta's field has its bucket, and lies within half a cell of the delta. Subnormal deltas share one bucket,
/// as wide as the least normal ones.
fn cell_is_close<E: Element, D: Domain<E>>(target: u64, base: u64, r: u32)
where
    D::Delta: Into<f64>,
{
    let (target, base) = (E::of_bits(target), E::of_bits(base));
    let domain = D::new();
    let Some(delta) = domain.delta(target, base) else { return };
    let Some(bucket) = domain.bucket(delta) else { return };
    let field = domain.field(delta, r);
    let width = domain.field_width(bucket, r);
    assert!(field < 1 << width);
    let cell = domain.cell(bucket, r, field);
    assert_eq!(domain.bucket(cell), Some(bucket));
    assert_eq!(domain.field(cell, r), field);
    let (delta, cell): (f64, f64) = (delta.into(), cell.into());
    let size = delta.abs().max(f64::from(f32::MIN_POSITIVE));
    assert!((delta - cell).abs() <= size / f64::from(1u32 << width));
}

proptest! {
    #[test]
    fn refined_values_are_close(t: u32, b: u32, r in 1u32..=23) {
        cell_is_close::<f16, Value>(u64::from(t & 0xffff), u64::from(b & 0xffff), r);
        cell_is_close::<bf16, Value>(u64::from(t & 0xffff), u64::from(b & 0xffff), r);
    }

    #[test]
    fn an_ordered_delta_leads_from_base_to_target(t: u64, b: u64) {
        let (t, b) = (f64::from_bits(t), f64::from_bits(b));
        let domain = Ordered::<false>;
        if let Some(delta) = domain.delta(t, b) {
            prop_assert_eq!(domain.apply(b, delta).to_bits(), t.to_bits());
            if let Some(bucket) = Domain::<f64>::bucket(domain, delta) {
                prop_assert!(bucket.index() < <Ordered<false> as Domain<f64>>::BUCKETS);
                let field = Domain::<f64>::field(domain, delta, 23);
                let cell = Domain::<f64>::cell(domain, bucket, 23, field);
                prop_assert_eq!(Domain::<f64>::bucket(domain, cell), Some(bucket));
            }
        }
    }

    #[test]
    fn non_negative_stays_non_negative(b in 0u32..0x7f80_0000, delta: i32) {
        let element = Domain::<f32>::apply(Ordered::<true>, f32::from_bits(b), i64::from(delta) * 2);
        prop_assert!(element.is_finite() && element.is_sign_positive());
    }
}
