//! Elements, their bits and their order.

use super::*;
use proptest::prelude::*;

fn order_follows_value<E: Element>(a: u64, b: u64) {
    let mask = u64::MAX >> (64 - E::BITS);
    let (a, b) = (E::of_bits(a & mask), E::of_bits(b & mask));
    assert_eq!(E::of_ordered(a.ordered()).bits(), a.bits());
    assert!(a.ordered() >= E::minimum() && a.ordered() <= -(E::minimum() + 1));
    let (x, y) = (a.to_arith(), b.to_arith());
    if x < y {
        assert!(a.ordered() < b.ordered());
    }
    assert!(!x.finite() || E::round(x).bits() == a.bits());
    assert_eq!(a.finite(), x.finite());
}

proptest! {
    #[test]
    fn the_logarithm_is_close(x in 1.0f64..1e12) {
        prop_assert!((log2(x) - x.log2()).abs() < 1e-7);
    }

    #[test]
    fn ordered_bits_rise_with_the_value(a: u64, b: u64) {
        order_follows_value::<f16>(a, b);
        order_follows_value::<bf16>(a, b);
        order_follows_value::<f32>(a, b);
        order_follows_value::<f64>(a, b);
    }
}

#[test]
fn ordered_bits_of_the_landmarks() {
    assert_eq!((0.0f32).ordered(), 0);
    assert_eq!((-0.0f32).ordered(), -1);
    assert_eq!(f32::MAX.ordered(), <f32 as Element>::LARGEST);
    assert_eq!(f64::MAX.ordered(), <f64 as Element>::LARGEST);
    assert_eq!(f16::MAX.ordered(), <f16 as Element>::LARGEST);
    assert_eq!(bf16::MAX.ordered(), <bf16 as Element>::LARGEST);
}
