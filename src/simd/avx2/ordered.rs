//! The ordered domain without negatives, f32: integer deltas of the bits, in one pass.

use super::Avx2;
use super::lanes::{load_bytes, load_ints, prefetch, store_bytes, store_ints, widen};
use super::quantize::{Buckets, leave};
use super::sum::SumLanes;
use crate::checksum::Lanes;
use crate::kernels::{GROUP, OrderedTable};
use crate::simd;
use std::arch::x86_64::*;

impl Avx2 {
    /// As `quantize_values`, in the ordered domain without negatives. A group with an entry that is negative or not finite in
    /// `target` or `base`, or has a longer delta than the table, is handed to `slow`.
    pub fn quantize_ordered(
        self,
        table: &OrderedTable,
        target: &[i32],
        base: &mut [i32],
        symbols: &mut [u8],
        sums: &mut Lanes,
        slow: impl FnMut(usize, &[i32; GROUP], &mut [i32; GROUP], &mut [u8; GROUP]),
    ) {
        if let Some(avx512) = simd::avx512() {
            return avx512.quantize_ordered(table, target, base, symbols, sums, slow);
        }
        // SAFETY: `self` proves that the machine has AVX2.
        unsafe { quantize_ordered(table, target, base, symbols, sums, slow) };
    }

    /// As `apply_values`, in the ordered domain without negatives. A group with an entry of `base` that is negative or not
    /// finite is handed to `slow`.
    pub fn apply_ordered(
        self,
        steps: &[i32; 16],
        symbols: &[u8],
        base: &mut [i32],
        sums: Option<&mut Lanes>,
        slow: impl FnMut(&mut [i32; GROUP], &[u8; GROUP]),
    ) {
        // SAFETY: `self` proves that the machine has AVX2.
        unsafe {
            match sums {
                Some(sums) => apply_ordered::<true>(steps, symbols, base, sums, slow),
                None => apply_ordered::<false>(steps, symbols, base, &mut Lanes::default(), slow),
            }
        }
    }
}

/// The bits of infinity: those of finite values from +0.0 up are below.
const INFINITY: i32 = 0x7f80_0000;

#[target_feature(enable = "avx2")]
fn quantize_ordered(
    table: &OrderedTable,
    target: &[i32],
    base: &mut [i32],
    symbols: &mut [u8],
    lanes: &mut Lanes,
    mut slow: impl FnMut(usize, &[i32; GROUP], &mut [i32; GROUP], &mut [u8; GROUP]),
) {
    let buckets = Buckets::new(table.top, &table.positive, &table.negative);
    let steps = Steps::new(&table.representatives);
    let mut sums = SumLanes::load(lanes);
    let groups = target.as_chunks::<GROUP>().0.iter().zip(base.as_chunks_mut::<GROUP>().0);
    for (number, ((target, base), symbols)) in groups.zip(symbols.as_chunks_mut::<GROUP>().0).enumerate() {
        prefetch(target);
        prefetch(base);
        let (after, before) = (load_group(target), load_group(base));
        let deltas = [0, 1, 2, 3].map(|k| as_float(_mm256_sub_epi32(after[k], before[k])));
        let coded = buckets.code(deltas);
        store_bytes(symbols, coded.symbols);
        if coded.outside | unusual(&after) | unusual(&before) != 0 {
            leave(&mut slow, number * GROUP, target, base, symbols);
            add(&mut sums, load_group(base));
            continue;
        }
        let (eights, _) = symbols.as_chunks::<8>();
        let made = [0, 1, 2, 3].map(|k| steps.add_to(before[k], &eights[k]));
        let (eights, _) = base.as_chunks_mut::<8>();
        (0..4).for_each(|k| store_ints(&mut eights[k], made[k]));
        add(&mut sums, made);
    }
    sums.store(lanes);
}

#[target_feature(enable = "avx2")]
fn apply_ordered<const SUM: bool>(
    steps: &[i32; 16],
    symbols: &[u8],
    base: &mut [i32],
    lanes: &mut Lanes,
    mut slow: impl FnMut(&mut [i32; GROUP], &[u8; GROUP]),
) {
    let steps = Steps::new(steps);
    let mut sums = SumLanes::load(lanes);
    for (symbols, base) in symbols.as_chunks::<GROUP>().0.iter().zip(base.as_chunks_mut::<GROUP>().0) {
        prefetch(base);
        let marks = load_bytes(symbols);
        if _mm256_testz_si256(marks, marks) == 0 {
            let before = load_group(base);
            if unusual(&before) != 0 {
                slow(base, symbols);
            } else {
                let (eights, _) = symbols.as_chunks::<8>();
                let made = [0, 1, 2, 3].map(|k| steps.add_to(before[k], &eights[k]));
                let (eights, _) = base.as_chunks_mut::<8>();
                (0..4).for_each(|k| store_ints(&mut eights[k], made[k]));
            }
        }
        if SUM {
            add(&mut sums, load_group(base));
        }
    }
    if SUM {
        sums.store(lanes);
    }
}

/// A float with the sign of an integer below 2^30 in size, and its bit length plus 126 as exponent field (0 for 0).
#[inline]
#[target_feature(enable = "avx2")]
fn as_float(integer: __m256i) -> __m256i {
    let magnitude = _mm256_abs_epi32(integer);
    // Without the bit below the highest one, rounding cannot carry into the next power of two.
    let cut = _mm256_andnot_si256(_mm256_srli_epi32::<1>(magnitude), magnitude);
    let float = _mm256_castps_si256(_mm256_cvtepi32_ps(cut));
    let sign = _mm256_and_si256(integer, _mm256_set1_epi32(i32::MIN));
    _mm256_or_si256(float, sign)
}

/// A mask that is not 0 if any entry is negative, infinite or NaN.
#[inline]
#[target_feature(enable = "avx2")]
fn unusual(group: &[__m256i; 4]) -> i32 {
    let largest = _mm256_max_epu32(_mm256_max_epu32(group[0], group[1]), _mm256_max_epu32(group[2], group[3]));
    let limit = _mm256_max_epu32(largest, _mm256_set1_epi32(INFINITY));
    _mm256_movemask_epi8(_mm256_cmpeq_epi32(limit, largest))
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_group(group: &[i32; GROUP]) -> [__m256i; 4] {
    let (eights, _) = group.as_chunks::<8>();
    [load_ints(&eights[0]), load_ints(&eights[1]), load_ints(&eights[2]), load_ints(&eights[3])]
}

#[inline]
#[target_feature(enable = "avx2")]
fn add(sums: &mut SumLanes, group: [__m256i; 4]) {
    sums.add([group[0], group[1]]);
    sums.add([group[2], group[3]]);
}

/// The representatives in registers.
struct Steps {
    low: __m256i,
    high: __m256i,
}

impl Steps {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(steps: &[i32; 16]) -> Self {
        let (eights, _) = steps.as_chunks::<8>();
        Steps { low: load_ints(&eights[0]), high: load_ints(&eights[1]) }
    }

    /// Eight usual entries, each with the step of its symbol added, clamped to 0 .. the largest finite.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add_to(&self, base: __m256i, symbols: &[u8; 8]) -> __m256i {
        let index = widen(symbols);
        let low = _mm256_permutevar8x32_epi32(self.low, index);
        let high = _mm256_permutevar8x32_epi32(self.high, index);
        let use_high = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index));
        let step = _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high), use_high));
        // Moved down by 2^30, neither a sum nor a limit leaves 32 bits: steps are below 2^30 in size.
        let middle = _mm256_set1_epi32(1 << 30);
        let sum = _mm256_add_epi32(_mm256_sub_epi32(base, middle), step);
        let floored = _mm256_max_epi32(sum, _mm256_set1_epi32(-(1 << 30)));
        let clamped = _mm256_min_epi32(floored, _mm256_set1_epi32(INFINITY - 1 - (1 << 30)));
        _mm256_add_epi32(clamped, middle)
    }
}
