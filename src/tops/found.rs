//! What is found out about the entries of one bucket.

use super::BLOCK;
use crate::float::Arith;

/// First and last bits of a bucket. A delta of zero is in none.
pub fn range(exponent: u32, negative: bool) -> (u32, u32) {
    let start = u32::from(negative) << 31 | exponent << f32::MANTISSA_BITS;
    (start + u32::from(exponent == 0), start + ((1 << f32::MANTISSA_BITS) - 1))
}

/// How many entries a bucket has, and more about them.
pub trait Found: Copy {
    const NONE: Self;

    /// Adds the deltas that are in the bucket with these first and last bits.
    fn add(&mut self, range: (u32, u32), bits: &[u32; BLOCK]);

    fn entries(&self) -> u64;
}

/// How far the least is above the bucket's start, and the greatest below its end; in as many parts as a vector has lanes.
#[derive(Debug, Clone, Copy)]
pub struct Extremes {
    count: [u32; LANES],
    least: [u32; LANES],
    greatest: [u32; LANES],
}

const LANES: usize = 16;

impl Found for Extremes {
    const NONE: Self = Extremes { count: [0; LANES], least: [u32::MAX; LANES], greatest: [u32::MAX; LANES] };

    #[inline(always)]
    fn add(&mut self, (first, last): (u32, u32), bits: &[u32; BLOCK]) {
        let Extremes { mut count, mut least, mut greatest } = *self;
        let width = last - first;
        for bits in bits.as_chunks::<LANES>().0 {
            for (lane, x) in bits.iter().enumerate() {
                // Bits outside the range wrap to more than its width.
                let above = x.wrapping_sub(first);
                count[lane] += u32::from(above <= width);
                least[lane] = least[lane].min(above);
                greatest[lane] = greatest[lane].min(last.wrapping_sub(*x));
            }
        }
        *self = Extremes { count, least, greatest };
    }

    fn entries(&self) -> u64 {
        self.count.iter().map(|&count| u64::from(count)).sum()
    }
}

impl Extremes {
    /// The least and the greatest of a bucket that is not empty.
    pub fn ends(&self, exponent: u32, negative: bool) -> (f32, f32) {
        let (first, last) = range(exponent, negative);
        let nearest_of = |lanes: [u32; LANES]| lanes.into_iter().fold(u32::MAX, u32::min);
        let nearest = f32::from_bits(first + nearest_of(self.least));
        let farthest = f32::from_bits(last - nearest_of(self.greatest));
        if negative { (farthest, nearest) } else { (nearest, farthest) }
    }
}

/// The sum of how far they are above the bucket's start: of integers, and so the same in any order.
#[derive(Debug, Clone, Copy)]
pub struct Sums {
    count: u64,
    above: u64,
}

impl Found for Sums {
    const NONE: Self = Sums { count: 0, above: 0 };

    #[inline(always)]
    fn add(&mut self, (first, last): (u32, u32), bits: &[u32; BLOCK]) {
        // BLOCK times what is less than 2^23.
        let (mut count, mut sum) = (0u32, 0u32);
        let width = last - first;
        for x in bits {
            let above = x.wrapping_sub(first);
            let inside = above <= width;
            count += u32::from(inside);
            sum = sum.wrapping_add(if inside { above } else { 0 });
        }
        self.count += u64::from(count);
        self.above += u64::from(sum);
    }

    fn entries(&self) -> u64 {
        self.count
    }
}

impl Sums {
    /// The sum of the deltas: exact, as they are fewer than 2^29 multiples of a unit that are less than 2^24 of it.
    pub fn sum(&self, exponent: u32, negative: bool) -> f64 {
        let start =
            range(exponent, false).0 & ((1 << f32::MANTISSA_BITS) - 1) | u32::from(exponent > 0) << f32::MANTISSA_BITS;
        let units = self.entries() * u64::from(start) + self.above;
        // The last place of the bucket's numbers.
        let unit = f64::from(f32::from_bits(1)) * f64::from_bits((1023 + u64::from(exponent.max(1) - 1)) << 52);
        let sum = units as f64 * unit;
        if negative { -sum } else { sum }
    }
}
