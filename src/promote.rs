//! Promotion: which buckets keep a symbol of their own.

use crate::delta::Bucket;
use crate::float::log2;
use crate::statistics::Counted;

/// The rule that chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promotion {
    /// The paper's: the 2^bits - 1 non-empty buckets with the largest exponents, positive first where they tie.
    Buckets {
        /// 1..=4
        bits: u8,
    },
    /// The product's: both signs of the largest exponents, from the first on that holds more than 2^-16 of the entries. The few
    /// entries above are exceptions: in a large tensor they would take all levels. Where no exponent holds as many, few entries
    /// have changed, and the largest exponents are kept.
    Levels(
        /// 1..=7
        u8,
    ),
}

/// Which value stands for a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Representative {
    Midrange,
    Mean,
}

impl Promotion {
    /// The promoted buckets, in the order of their symbols: largest exponent first, positive before negative.
    pub fn choose(self, counted: &impl Counted) -> Vec<Bucket> {
        let mut buckets: Vec<Bucket> = counted.counts().map(|(bucket, _)| bucket).collect();
        buckets.sort_by_key(|b| (u16::MAX - b.exponent, b.negative));
        match self {
            Promotion::Buckets { bits } => buckets.truncate((1 << bits) - 1),
            Promotion::Levels(levels) => {
                let rare = counted.entries() >> RARE_LOG2;
                let mut exponents = counts_by_exponent(counted);
                // Where all are rare they are what has changed.
                let first = exponents.iter().position(|(_, count)| *count > rare).unwrap_or(0);
                exponents.drain(..first);
                exponents.truncate(usize::from(levels));
                buckets.retain(|b| exponents.iter().any(|(exponent, _)| *exponent == b.exponent));
            }
        }
        buckets
    }

    /// The same where only buckets down to the exponent `floor` are known, if these are enough to tell.
    pub fn choose_from_tops(self, counted: &impl Counted, floor: u16) -> Option<Vec<Bucket>> {
        let Promotion::Levels(levels) = self else { return None };
        let kept = self.choose(counted);
        let mut exponents: Vec<u16> = kept.iter().map(|bucket| bucket.exponent).collect();
        exponents.dedup();
        let rare = counted.entries() >> RARE_LOG2;
        let all_rare = || counts_by_exponent(counted).iter().all(|(_, count)| *count <= rare);
        (floor == 0 || exponents.len() == usize::from(levels) && !all_rare()).then_some(kept)
    }
}

/// An exponent with no more than this share of the entries, as log2, is no level.
const RARE_LOG2: u32 = 16;

/// Largest exponent first.
fn counts_by_exponent(counted: &impl Counted) -> Vec<(u16, u64)> {
    let mut counts: Vec<(u16, u64)> = Vec::new();
    for (bucket, of_bucket) in counted.counts().rev() {
        match counts.last_mut() {
            Some((exponent, count)) if *exponent == bucket.exponent => *count += of_bucket,
            _ => counts.push((bucket.exponent, of_bucket)),
        }
    }
    counts
}

/// About what an exception takes: its value and its position.
const EXCEPTION_BITS: f64 = 48.0;

/// What a choice of buckets is estimated to cost, from the counts alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Entropy of the symbols, in bits.
    pub bits: f64,
    /// Squared error, in units of `4^top` for the given top exponent.
    pub squared_error: f64,
}

impl Estimate {
    /// `top`: the exponent that errors are measured against, the same for estimates that are compared. An entry spread evenly
    /// over its octave [1, 2) has mean square 7/3 and variance 1/12.
    pub fn of(counted: &impl Counted, kept: &[Bucket], top: u16) -> Self {
        let entries = counted.entries() as f64;
        let mut estimate = Estimate { bits: 0.0, squared_error: 0.0 };
        let mut zeros = entries;
        for (bucket, of_bucket) in counted.counts() {
            let count = of_bucket as f64;
            let unit = quarter_to_the(top.saturating_sub(bucket.exponent));
            if kept.first().is_none_or(|first| bucket.exponent > first.exponent) {
                estimate.bits += count * EXCEPTION_BITS;
                zeros -= count;
            } else if kept.contains(&bucket) {
                zeros -= count;
                estimate.bits += count * log2(entries / count);
                estimate.squared_error += count * unit / 12.0;
            } else {
                estimate.squared_error += count * unit * 7.0 / 3.0;
            }
        }
        if zeros > 0.0 {
            estimate.bits += zeros * log2(entries / zeros);
        }
        estimate
    }

    /// At most this where `rest` more entries are in buckets below the exponent `floor`, none of them promoted.
    pub fn with_rest(self, rest: u64, floor: u16, top: u16) -> Self {
        let unit = quarter_to_the(top.saturating_sub(floor.saturating_sub(1)));
        Estimate { squared_error: self.squared_error + rest as f64 * unit * 7.0 / 3.0, ..self }
    }

    /// The least that the error of `entries` can be, whatever is promoted, as far as counts of a part of them tell; and the exponent
    /// that it is measured against, no smaller than that of `other`. `None` where each of the part may be an exception.
    pub fn least_error_of_part(part: &impl Counted, entries: usize, other: Option<&Bucket>) -> Option<(f64, u16)> {
        // What is not rare is promoted, and all that is smaller is so or left.
        let rare = entries as u64 >> RARE_LOG2;
        let counts = counts_by_exponent(part);
        let first = counts.iter().position(|(_, count)| *count > rare)?;
        let top = other.map_or(0, |bucket| bucket.exponent).max(counts[first].0);
        let of_exponent = |(exponent, count): &(u16, u64)| *count as f64 * quarter_to_the(top - exponent) / 12.0;
        Some((counts[first..].iter().map(of_exponent).sum(), top))
    }

    /// Whether this choice is preferred to `other`: no worse in either, and better in one.
    pub fn beats(self, other: Self) -> bool {
        self.bits <= other.bits && self.squared_error <= other.squared_error && self != other
    }
}

/// 4^-n, or 0 where that is below the normal numbers: by bits, as a library's power may differ from CPU to CPU.
fn quarter_to_the(n: u16) -> f64 {
    f64::from_bits(1023u64.saturating_sub(2 * u64::from(n)) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::Value;
    use crate::statistics::{Against, Counts};

    fn counts(target: &[f32]) -> Counts {
        Counts::of_chunk(Value, target, Against::Zero)
    }

    #[test]
    fn buckets_tie_to_the_positive_and_levels_keep_both_signs() {
        let counts = counts(&[-4.0, 4.0, 2.0, -1.0, 0.0, 0.25]);
        let exponents = |p: Promotion| -> Vec<(i32, bool)> {
            p.choose(&counts).iter().map(|b| (i32::from(b.exponent) - 127, b.negative)).collect()
        };
        assert_eq!(exponents(Promotion::Buckets { bits: 1 }), [(2, false)]);
        assert_eq!(exponents(Promotion::Buckets { bits: 2 }), [(2, false), (2, true), (1, false)]);
        assert_eq!(exponents(Promotion::Levels(2)), [(2, false), (2, true), (1, false)]);
        assert_eq!(exponents(Promotion::Levels(7)).len(), 5);
    }

    #[test]
    fn powers_of_a_quarter_are_exact_down_to_zero() {
        assert!((0..512).all(|n| quarter_to_the(n) == 4f64.powi(-i32::from(n)) && quarter_to_the(n) > 0.0));
        assert!((512..=2047).all(|n| quarter_to_the(n) == 0.0));
    }

    #[test]
    fn rare_exponents_are_exceptions_unless_all_are_rare() {
        let mut target = vec![0.0; 1 << 17];
        (target[3], target[70_000], target[99_999]) = (8.0, -8.0, 0.5);
        let exponents = |target: &[f32]| -> Vec<i32> {
            Promotion::Levels(7).choose(&counts(target)).iter().map(|b| i32::from(b.exponent) - 127).collect()
        };
        assert_eq!(exponents(&target), [3, 3, -1]);
        target[40..50].fill(0.25);
        assert_eq!(exponents(&target), [-2]);
    }

    #[test]
    fn the_largest_buckets_tell_only_where_no_smaller_one_can_count() {
        let levels = Promotion::Levels(2);
        let some = counts(&[8.0, -8.0, 4.0, 0.5]);
        // All buckets down to 2^2, of which two exponents are promoted, and down to 2^3: one.
        assert_eq!(levels.choose_from_tops(&some, 129), Some(levels.choose(&some)));
        assert_eq!(levels.choose_from_tops(&counts(&[8.0, -8.0]), 130), None);
        assert_eq!(levels.choose_from_tops(&counts(&[8.0, -8.0]), 0).map(|kept| kept.len()), Some(2));
        assert_eq!(Promotion::Buckets { bits: 1 }.choose_from_tops(&some, 0), None);
        // Where all that is known is rare, something below may not be.
        let mut target = vec![0.0; 1 << 17];
        (target[3], target[9], target[99_999]) = (8.0, 2.0, 0.5);
        assert_eq!(levels.choose_from_tops(&counts(&target), 126), None);
        assert!(levels.choose_from_tops(&counts(&target), 0).is_some());
        target[10..20].fill(1.0);
        target[20..30].fill(0.5);
        assert_eq!(levels.choose_from_tops(&counts(&target), 126), Some(levels.choose(&counts(&target))));
    }

    #[test]
    fn what_is_not_known_counts_as_much_as_it_may() {
        let of = |squared_error| Estimate { bits: 5.0, squared_error };
        // Four entries of exponent 126, when errors are in units of 4^130.
        assert_eq!(of(1.0).with_rest(4, 127, 130), of(1.0 + 4.0 * 7.0 / 3.0 / 256.0));
        assert_eq!(of(1.0).with_rest(0, 127, 130), of(1.0));
        let part = counts(&[8.0, -8.0, 4.0, 0.0]);
        let least = 2.0 / 12.0 + 1.0 / 48.0;
        assert_eq!(Estimate::least_error_of_part(&part, 32, None), Some((least, 130)));
        let larger = Bucket { exponent: 131, negative: false };
        assert_eq!(Estimate::least_error_of_part(&part, 32, Some(&larger)), Some((least / 4.0, 131)));
        // Two of 2^17 are rare, three are not.
        assert_eq!(Estimate::least_error_of_part(&part, 1 << 17, None), None);
        let more = counts(&[8.0, 4.0, 4.0, -4.0, 2.0]);
        assert_eq!(Estimate::least_error_of_part(&more, 1 << 17, None), Some((3.0 / 12.0 + 1.0 / 48.0, 129)));
        assert_eq!(Estimate::least_error_of_part(&counts(&[0.0]), 8, None), None);
    }

    #[test]
    fn estimates_follow_the_counts() {
        let few = counts(&[8.0, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0]);
        let kept = Promotion::Levels(1).choose(&few);
        let estimate = Estimate::of(&few, &kept, 130);
        let entropy = 3.0 + 7.0 * (8.0f64 / 7.0).log2();
        assert!((estimate.bits - entropy).abs() < 1e-6);
        assert!((estimate.squared_error - (1.0 / 12.0 + 3.0 * 7.0 / 3.0 / 256.0)).abs() < 1e-9);
        assert!(!estimate.beats(estimate));
        assert!(estimate.beats(Estimate { bits: estimate.bits + 1.0, ..estimate }));
    }
}
