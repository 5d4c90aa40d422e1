//! The buckets with the largest exponents of f32 deltas: counts and extremes by plain loops that are compiled wide. The
//! paper's rule needs no others.

use crate::delta::Bucket;
use crate::simd::ahead::{Ahead, LINE};
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
const BLOCK: usize = 512;

const LANES: usize = 16;

/// From this exponent field on, a delta or a reconstruction might not be finite.
const UNUSUAL: u32 = 254;

/// At least `most` buckets with the largest exponents, as far as there are so many: largest exponent first, positive before
/// negative. `None` where an entry is so large or so unusual that it might be an exception.
pub fn find(target: &[f32], base: &[f32], most: usize) -> Option<Vec<Top>> {
    let mut window = Window::of(0);
    let all = find_highest(target, base, &mut window);
    if all.unusual {
        return None;
    }
    let (mut tops, mut found) = (Vec::new(), 0);
    loop {
        window.tell(&mut tops, &mut found);
        // Where another thread changes the tensor, entries may be in none of all windows.
        let below = window.top.checked_sub(WINDOW).filter(|_| found < all.changed && tops.len() < most);
        let Some(top) = below else { return Some(tops) };
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
    fn find_highest[](target: &[f32], base: &[f32], window: &mut Window) -> Extent {
        let (mut highest, mut largest, mut changed) = (0, 0, 0);
        let mut bits = [[0; LANES]; BLOCK / LANES];
        let mut ahead = Ahead::of(&target[BLOCK.min(target.len())..], &base[BLOCK.min(base.len())..]);
        for (target, base) in target.chunks(BLOCK).zip(base.chunks(BLOCK)) {
            let mut of_block = 0u32;
            for ((bits, t), b) in bits.as_flattened_mut().iter_mut().zip(target).zip(base) {
                *bits = (t - b).to_bits();
                let size = *bits << 1;
                of_block += u32::from(size != 0);
                highest = size.max(highest);
                largest = (t.to_bits() << 1).max(b.to_bits() << 1).max(largest);
            }
            changed += u64::from(of_block);
            window.raise(highest >> 24);
            window.add(&mut bits, target.len(), &mut ahead);
        }
        Extent { changed, unusual: highest.max(largest) >> 24 >= UNUSUAL }
    }
}

wide! {
    fn search[](target: &[f32], base: &[f32], window: &mut Window) -> () {
        let mut bits = [[0; LANES]; BLOCK / LANES];
        let mut ahead = Ahead::of(&target[BLOCK.min(target.len())..], &base[BLOCK.min(base.len())..]);
        for (target, base) in target.chunks(BLOCK).zip(base.chunks(BLOCK)) {
            for ((bits, t), b) in bits.as_flattened_mut().iter_mut().zip(target).zip(base) {
                *bits = (t - b).to_bits();
            }
            window.add(&mut bits, target.len(), &mut ahead);
        }
    }
}

/// The buckets of exponents `top`, `top - 1` .. by sign.
#[derive(Debug)]
struct Window {
    top: u32,
    found: [[Found; 2]; WINDOW as usize],
}

impl Window {
    fn of(top: u32) -> Self {
        Window { top, found: [[Found::NONE; 2]; WINDOW as usize] }
    }

    /// Moves it up to `top`, if that is above it.
    fn raise(&mut self, top: u32) {
        let by = top.saturating_sub(self.top) as usize;
        self.top += by as u32;
        let by = by.min(self.found.len());
        self.found.rotate_right(by);
        self.found[..by].fill([Found::NONE; 2]);
    }

    /// Adds the first `entries` deltas.
    #[inline(always)]
    fn add(&mut self, bits: &mut [[u32; LANES]; BLOCK / LANES], entries: usize, ahead: &mut Ahead) {
        // Zeros are in no bucket.
        bits.as_flattened_mut()[entries..].fill(0);
        for (below, signs) in (0..=self.top).zip(&mut self.found) {
            for (negative, of_bucket) in [false, true].into_iter().zip(signs) {
                of_bucket.add(range(self.top - below, negative), bits);
                ahead.step(BLOCK * size_of::<f32>() / LINE / (2 * WINDOW as usize));
            }
        }
    }

    /// Appends the buckets that are not empty, and adds up their entries.
    fn tell(&self, tops: &mut Vec<Top>, found: &mut u64) {
        for (below, signs) in (0..).zip(&self.found) {
            for (negative, of_bucket) in [false, true].into_iter().zip(signs) {
                if of_bucket.entries() > 0 {
                    *found += of_bucket.entries();
                    tops.push(of_bucket.top(self.top - below, negative));
                }
            }
        }
    }
}

/// A bucket's entries, in as many parts as a vector has lanes: how far the least is above the bucket's start, and the greatest
/// below its end.
#[derive(Debug, Clone, Copy)]
struct Found {
    count: [u32; LANES],
    least: [u32; LANES],
    greatest: [u32; LANES],
}

/// First and last bits of a bucket. A delta of zero is in none.
fn range(exponent: u32, negative: bool) -> (u32, u32) {
    let start = u32::from(negative) << 31 | exponent << 23;
    (start + u32::from(exponent == 0), start + ((1 << 23) - 1))
}

impl Found {
    const NONE: Found = Found { count: [0; LANES], least: [u32::MAX; LANES], greatest: [u32::MAX; LANES] };

    /// Adds the deltas with these bits.
    #[inline(always)]
    fn add(&mut self, (first, last): (u32, u32), bits: &[[u32; LANES]]) {
        let Found { mut count, mut least, mut greatest } = *self;
        let width = last - first;
        for bits in bits {
            for (lane, x) in bits.iter().enumerate() {
                // Bits outside the range wrap to more than its width.
                let above = x.wrapping_sub(first);
                count[lane] += u32::from(above <= width);
                least[lane] = least[lane].min(above);
                greatest[lane] = greatest[lane].min(last.wrapping_sub(*x));
            }
        }
        *self = Found { count, least, greatest };
    }

    fn entries(&self) -> u64 {
        self.count.iter().map(|&count| u64::from(count)).sum()
    }

    fn top(&self, exponent: u32, negative: bool) -> Top {
        let (first, last) = range(exponent, negative);
        let nearest_of = |lanes: [u32; LANES]| lanes.into_iter().fold(u32::MAX, u32::min);
        let nearest = f32::from_bits(first + nearest_of(self.least));
        let farthest = f32::from_bits(last - nearest_of(self.greatest));
        let (least, greatest) = if negative { (farthest, nearest) } else { (nearest, farthest) };
        Top { bucket: Bucket { exponent: exponent as u16, negative }, count: self.entries(), least, greatest }
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
