//! The buckets with the largest exponents of f32 deltas: counts and extremes by plain loops that are compiled wide. The
//! paper's rule needs no others.

use crate::delta::Bucket;
use crate::simd::wide;

/// A bucket that is not empty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Top {
    pub bucket: Bucket,
    pub count: u64,
    pub least: f32,
    pub greatest: f32,
}

/// Exponents that are looked for in one pass.
const WINDOW: u32 = 4;

/// Entries whose deltas are kept in cache for all exponents of a window.
const BLOCK: usize = 1024;

/// From this exponent field on, a delta or a reconstruction might not be finite.
const UNUSUAL: u32 = 254;

/// At least `most` buckets with the largest exponents, as far as there are so many: largest exponent first, positive before
/// negative. `None` where an entry is so large or so unusual that it might be an exception.
pub fn find(target: &[f32], base: &[f32], most: usize) -> Option<Vec<Top>> {
    let all = extent(target, base);
    if all.unusual {
        return None;
    }
    let mut tops = Vec::new();
    let mut found = 0;
    let mut top = all.highest;
    while found < all.changed && tops.len() < most {
        let mut window = [[Found::NONE; 2]; WINDOW as usize];
        search(target, base, top, &mut window);
        for (below, signs) in (0..).zip(window) {
            for (negative, of_bucket) in [false, true].into_iter().zip(signs) {
                if of_bucket.count > 0 {
                    found += of_bucket.count;
                    tops.push(of_bucket.top(top - below, negative));
                }
            }
        }
        top = top.saturating_sub(WINDOW);
    }
    Some(tops)
}

/// What is known of a chunk's deltas before its buckets are.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// Exponent field of the largest.
    highest: u32,
    /// Deltas that are not zero.
    changed: u64,
    unusual: bool,
}

wide! {
    fn extent[](target: &[f32], base: &[f32]) -> Extent {
        let (mut highest, mut largest, mut changed) = (0, 0, 0);
        for (target, base) in target.chunks(BLOCK).zip(base.chunks(BLOCK)) {
            let mut of_block = 0u32;
            for (t, b) in target.iter().zip(base) {
                let delta = (t - b).to_bits() << 1;
                of_block += u32::from(delta != 0);
                highest = delta.max(highest);
                largest = (t.to_bits() << 1).max(b.to_bits() << 1).max(largest);
            }
            changed += u64::from(of_block);
        }
        Extent { highest: highest >> 24, changed, unusual: highest.max(largest) >> 24 >= UNUSUAL }
    }
}

/// A bucket's entries: how far the least is above the bucket's start, and the greatest below its end.
#[derive(Debug, Clone, Copy)]
struct Found {
    count: u64,
    least: u32,
    greatest: u32,
}

/// First and last bits of a bucket. A delta of zero is in none.
fn range(exponent: u32, negative: bool) -> (u32, u32) {
    let start = u32::from(negative) << 31 | exponent << 23;
    (start + u32::from(exponent == 0), start + ((1 << 23) - 1))
}

impl Found {
    const NONE: Found = Found { count: 0, least: u32::MAX, greatest: u32::MAX };

    /// Adds the deltas with these bits.
    #[inline(always)]
    fn add(&mut self, (first, last): (u32, u32), bits: &[u32; BLOCK]) {
        let (mut count, mut least, mut greatest) = (0u32, self.least, self.greatest);
        let width = last - first;
        for &x in bits {
            // Bits outside the range wrap to more than its width.
            let above = x.wrapping_sub(first);
            count += u32::from(above <= width);
            least = least.min(above);
            greatest = greatest.min(last.wrapping_sub(x));
        }
        *self = Found { count: self.count + u64::from(count), least, greatest };
    }

    fn top(self, exponent: u32, negative: bool) -> Top {
        let (first, last) = range(exponent, negative);
        let (nearest, farthest) = (f32::from_bits(first + self.least), f32::from_bits(last - self.greatest));
        let (least, greatest) = if negative { (farthest, nearest) } else { (nearest, farthest) };
        Top { bucket: Bucket { exponent: exponent as u16, negative }, count: self.count, least, greatest }
    }
}

wide! {
    /// Searches the buckets of exponents `top`, `top - 1` .. by sign.
    fn search[](target: &[f32], base: &[f32], top: u32, window: &mut [[Found; 2]; WINDOW as usize]) -> () {
        let mut bits = [0; BLOCK];
        for (target, base) in target.chunks(BLOCK).zip(base.chunks(BLOCK)) {
            for ((bits, t), b) in bits.iter_mut().zip(target).zip(base) {
                *bits = (t - b).to_bits();
            }
            // Zeros are in no bucket.
            bits[target.len()..].fill(0);
            for below in 0..WINDOW.min(top + 1) {
                for negative in [false, true] {
                    window[below as usize][usize::from(negative)].add(range(top - below, negative), &bits);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::Value;
    use crate::statistics::{Against, Statistics};
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = f32> {
        prop_oneof![
            4 => -2.0f32..2.0,
            1 => any::<u32>().prop_map(|bits| f32::from_bits(bits & 0x807f_ffff)),
            1 => (-126i32..100, -2.0f32..2.0).prop_map(|(e, x)| x * 2f32.powi(e)),
            1 => Just(0.0),
        ]
    }

    proptest! {
        #[test]
        fn as_entry_by_entry(pairs in prop::collection::vec((value(), value()), 0..3000), most in 1usize..16) {
            let (target, base): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            let plain = Statistics::<f32, Value>::of_chunk(Value, &target, Against::Base(&base));
            let mut expected = plain.buckets;
            expected.sort_by_key(|(b, _)| (u16::MAX - b.exponent, b.negative));
            let found = find(&target, &base, most).expect("nothing unusual");
            prop_assert!(found.len() >= most.min(expected.len()));
            for (top, (bucket, statistics)) in found.iter().zip(&expected) {
                prop_assert_eq!((top.bucket, top.count), (*bucket, statistics.count));
                prop_assert_eq!((top.least, top.greatest), (statistics.least, statistics.greatest));
            }
        }
    }

    #[test]
    fn what_may_be_an_exception_is_left_to_others() {
        for unusual in [f32::NAN, f32::INFINITY, f32::MAX, -f32::MAX] {
            assert!(find(&[1.0, unusual], &[0.0, 0.0], 3).is_none());
            assert!(find(&[1.0, 0.0], &[0.0, unusual], 3).is_none());
        }
    }
}
