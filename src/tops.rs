//! The buckets with the largest exponents of float deltas: what is known of them by plain loops that are compiled wide. What
//! promotes the largest needs no others.

mod found;

use crate::delta::Bucket;
use crate::float::{Element, ElementType};
use crate::halves::widen;
use crate::simd::ahead::{Ahead, LINE};
use crate::simd::wide;
use found::range;
pub use found::{Extremes, Found, Sums};

/// Buckets that are not empty, largest exponent first, positive before negative.
#[derive(Debug)]
pub struct Tops<T> {
    pub found: Vec<(Bucket, T)>,
    /// All buckets with this exponent or a larger one are among them.
    pub floor: u16,
    /// Deltas that are not zero.
    pub changed: u64,
}

/// Exponents that are looked for in one pass.
const WINDOW: u32 = 4;

/// Entries whose deltas are kept in cache for all exponents of a window.
const BLOCK: usize = 512;

/// From this exponent field on, a delta or a reconstruction might not be finite.
const UNUSUAL: u32 = 254;

/// At least `most` buckets, as far as there are so many, of f32, bf16 or f16. `None` where an entry is so large or so unusual that
/// it might be an exception.
pub fn find<E: Element, F: Found>(target: &[E], base: &[E], most: usize) -> Option<Tops<F>> {
    debug_assert!(matches!(E::TYPE, ElementType::F32 | ElementType::BF16 | ElementType::F16));
    let mut window = Window::of(0);
    let all = find_highest(target, base, &mut window);
    if all.unusual {
        return None;
    }
    let mut tops = Tops { found: Vec::with_capacity(most + 1), floor: 0, changed: all.changed };
    let mut entries = 0;
    loop {
        entries += window.tell(&mut tops.found);
        // Where another thread changes the tensor, entries may be in none of all windows.
        let below = window.top.checked_sub(WINDOW).filter(|_| entries < all.changed);
        let Some(top) = below else { return Some(tops) };
        if tops.found.len() >= most {
            return Some(Tops { floor: top as u16 + 1, ..tops });
        }
        window = Window::of(top);
        search(target, base, &mut window);
    }
}

/// What is known of a chunk's deltas.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// Those that are not zero.
    changed: u64,
    unusual: bool,
}

wide! {
    /// Moves the window up to the largest exponent while its buckets are searched: those that are new in it were empty.
    fn find_highest[E: Element, F: Found](target: &[E], base: &[E], window: &mut Window<F>) -> Extent {
        let (mut highest, mut largest, mut changed) = (0, 0, 0);
        let (mut bits, mut rooms, mut ahead) = ([0; BLOCK], [[0.0; BLOCK]; 2], after_first(target, base));
        for (target, base) in target.chunks(BLOCK).zip(base.chunks(BLOCK)) {
            let (target, base) = widen_block(target, base, &mut rooms);
            let mut of_block = 0u32;
            for ((bits, t), b) in bits.iter_mut().zip(target).zip(base) {
                *bits = (t - b).to_bits();
                let size = *bits << 1;
                of_block += u32::from(size != 0);
                highest = size.max(highest);
                largest = (t.to_bits() << 1).max(b.to_bits() << 1).max(largest);
            }
            changed += u64::from(of_block);
            window.raise(highest >> 24);
            window.add(&mut bits, target.len(), &mut ahead, size_of::<E>());
        }
        Extent { changed, unusual: highest.max(largest) >> 24 >= UNUSUAL }
    }
}

wide! {
    fn search[E: Element, F: Found](target: &[E], base: &[E], window: &mut Window<F>) -> () {
        let (mut bits, mut rooms, mut ahead) = ([0; BLOCK], [[0.0; BLOCK]; 2], after_first(target, base));
        for (target, base) in target.chunks(BLOCK).zip(base.chunks(BLOCK)) {
            let (target, base) = widen_block(target, base, &mut rooms);
            for ((bits, t), b) in bits.iter_mut().zip(target).zip(base) {
                *bits = (t - b).to_bits();
            }
            window.add(&mut bits, target.len(), &mut ahead, size_of::<E>());
        }
    }
}

/// What comes after the first block.
#[inline(always)]
fn after_first<E>(target: &[E], base: &[E]) -> Ahead {
    Ahead::of(&target[BLOCK.min(target.len())..], &base[BLOCK.min(base.len())..])
}

#[inline(always)]
fn widen_block<'a, E: Element>(
    target: &'a [E],
    base: &'a [E],
    rooms: &'a mut [[f32; BLOCK]; 2],
) -> (&'a [f32], &'a [f32]) {
    if E::TYPE == ElementType::F32 {
        return (bytemuck::cast_slice(target), bytemuck::cast_slice(base));
    }
    let [wide_target, wide_base] = rooms;
    widen(target, &mut wide_target[..target.len()]);
    widen(base, &mut wide_base[..base.len()]);
    (&wide_target[..target.len()], &wide_base[..base.len()])
}

/// The buckets of exponents `top`, `top - 1` .. by sign.
#[derive(Debug)]
struct Window<F> {
    top: u32,
    found: [[F; 2]; WINDOW as usize],
}

impl<F: Found> Window<F> {
    fn of(top: u32) -> Self {
        Window { top, found: [[F::NONE; 2]; WINDOW as usize] }
    }

    /// Moves it up to `top`, if that is above it.
    fn raise(&mut self, top: u32) {
        let by = top.saturating_sub(self.top) as usize;
        self.top += by as u32;
        let by = by.min(self.found.len());
        self.found.rotate_right(by);
        self.found[..by].fill([F::NONE; 2]);
    }

    /// Adds the first `entries` deltas. `size`: bytes of an entry.
    #[inline(always)]
    fn add(&mut self, bits: &mut [u32; BLOCK], entries: usize, ahead: &mut Ahead, size: usize) {
        // Zeros are in no bucket.
        bits[entries..].fill(0);
        for (below, signs) in (0..=self.top).zip(&mut self.found) {
            for (negative, of_bucket) in [false, true].into_iter().zip(signs) {
                of_bucket.add(range(self.top - below, negative), bits);
                ahead.step(BLOCK * size / LINE / (2 * WINDOW as usize));
            }
        }
    }

    /// Appends the buckets that are not empty; returns how many entries they have.
    fn tell(&self, tops: &mut Vec<(Bucket, F)>) -> u64 {
        let mut entries = 0;
        for (below, signs) in (0..).zip(&self.found) {
            for (negative, found) in [false, true].into_iter().zip(signs) {
                if found.entries() > 0 {
                    entries += found.entries();
                    tops.push((Bucket { exponent: (self.top - below) as u16, negative }, *found));
                }
            }
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::{Domain, Value};
    use crate::statistics::{Against, Statistics};
    use half::{bf16, f16};
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = f32> {
        prop_oneof![
            4 => -2.0f32..2.0,
            1 => any::<u32>().prop_map(|bits| f32::from_bits(bits & 0x807f_ffff)),
            1 => (-126i32..100, -2.0f32..2.0).prop_map(|(e, x)| x * 2f32.powi(e)),
            1 => Just(0.0),
        ]
    }

    fn as_entry_by_entry<E: Element<A = f32>>(target: &[E], base: &[E], most: usize) {
        let mut expected = Statistics::<E, Value>::of_chunk(Value, target, Against::Base(base)).buckets;
        expected.sort_by_key(|(b, _)| (u16::MAX - b.exponent, b.negative));
        let tops = find::<E, Extremes>(target, base, most).expect("nothing unusual");
        let sums = find::<E, Sums>(target, base, most).expect("nothing unusual");
        assert!(tops.found.len() >= most.min(expected.len()));
        assert_eq!((tops.found.len(), tops.floor, tops.changed), (sums.found.len(), sums.floor, sums.changed));
        assert_eq!(tops.changed, expected.iter().map(|(_, statistics)| statistics.count).sum::<u64>());
        assert!(expected[tops.found.len()..].iter().all(|(bucket, _)| bucket.exponent < tops.floor));
        assert!(tops.found.iter().all(|(bucket, _)| bucket.exponent >= tops.floor));
        for (((bucket, ends), (same, sum)), (of, statistics)) in tops.found.iter().zip(&sums.found).zip(&expected) {
            assert_eq!((bucket, same, ends.entries(), sum.entries()), (of, of, statistics.count, statistics.count));
            let (exponent, negative) = (bucket.exponent.into(), bucket.negative);
            assert_eq!(ends.ends(exponent, negative), (statistics.least, statistics.greatest));
            let sum = sum.sum(exponent, negative);
            assert_eq!((sum / statistics.count as f64) as f32, statistics.mean());
            assert!(<Value as Domain<E>>::size(statistics.least).signum() == sum.signum());
        }
    }

    proptest! {
        #[test]
        fn tops_are_those_of_each_entry(pairs in prop::collection::vec((value(), value()), 0..3000), most in 1usize..16) {
            let (target, base): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            as_entry_by_entry(&target, &base, most);
            let halves = |of: &[f32]| of.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>();
            as_entry_by_entry(&halves(&target), &halves(&base), most);
            let halves = |of: &[f32]| of.iter().map(|x| f16::from_f32(x.clamp(-60_000.0, 60_000.0))).collect::<Vec<_>>();
            as_entry_by_entry(&halves(&target), &halves(&base), most);
        }
    }

    #[test]
    fn what_may_be_an_exception_is_left_to_others() {
        for unusual in [f32::NAN, f32::INFINITY, f32::MAX, -f32::MAX] {
            assert!(find::<f32, Extremes>(&[1.0, unusual], &[0.0, 0.0], 3).is_none());
            assert!(find::<f32, Sums>(&[1.0, 0.0], &[0.0, unusual], 3).is_none());
        }
        for unusual in [f16::INFINITY, f16::NAN] {
            assert!(find::<f16, Sums>(&[unusual], &[f16::ONE], 3).is_none());
        }
    }
}
