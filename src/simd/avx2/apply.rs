//! Symbols -> reconstruction of f32 values, in place.

use super::Avx2;
use super::lanes::{load_bytes, load_f32, prefetch, store_f32, widen};
use super::sum::SumLanes;
use crate::checksum::Lanes;
use crate::kernels::GROUP;
use crate::simd;
use std::arch::x86_64::*;

impl Avx2 {
    /// Adds to every entry of `base` the representative of its symbol (with symbol 0 it stays as it is), for whole
    /// groups; and the result to `sums`, if given. Symbols are below 16; the slices have one length, a multiple of [`GROUP`].
    pub fn apply_values(self, representatives: &[f32; 16], symbols: &[u8], base: &mut [f32], sums: Option<&mut Lanes>) {
        if let Some(avx512) = simd::avx512() {
            return avx512.apply_values(representatives, symbols, base, sums);
        }
        let many = symbols_above_7(representatives);
        // SAFETY: `self` proves that the machine has AVX2.
        unsafe {
            match (sums, many) {
                (Some(sums), true) => apply::<true, true>(representatives, symbols, base, sums),
                (Some(sums), false) => apply::<true, false>(representatives, symbols, base, sums),
                (None, true) => apply::<false, true>(representatives, symbols, base, &mut Lanes::default()),
                (None, false) => apply::<false, false>(representatives, symbols, base, &mut Lanes::default()),
            }
        }
    }
}

/// Whether any symbol above 7 has a representative.
pub fn symbols_above_7(representatives: &[f32; 16]) -> bool {
    representatives[8..].iter().any(|representative| *representative != 0.0)
}

/// The representatives in registers.
pub struct Steps<const MANY: bool> {
    low: __m256,
    high: __m256,
}

impl<const MANY: bool> Steps<MANY> {
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn new(representatives: &[f32; 16]) -> Self {
        let (eights, _) = representatives.as_chunks::<8>();
        Steps { low: load_f32(&eights[0]), high: load_f32(&eights[1]) }
    }

    /// Eight entries of the base, each with the representative of its symbol added. Signalling NaNs become quiet.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn add_to(&self, base: __m256, symbols: &[u8; 8]) -> __m256 {
        _mm256_add_ps(base, self.steps(widen(symbols)))
    }

    /// The same, but entries with symbol 0 keep their bits whatever they are.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add_or_keep(&self, base: __m256, symbols: &[u8; 8]) -> __m256 {
        let index = widen(symbols);
        let kept = _mm256_castsi256_ps(_mm256_cmpeq_epi32(index, _mm256_setzero_si256()));
        _mm256_blendv_ps(_mm256_add_ps(base, self.steps(index)), base, kept)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn steps(&self, index: __m256i) -> __m256 {
        let mut step = _mm256_permutevar8x32_ps(self.low, index);
        if MANY {
            let high = _mm256_permutevar8x32_ps(self.high, index);
            let use_high = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index));
            step = _mm256_blendv_ps(step, high, use_high);
        }
        step
    }
}

#[target_feature(enable = "avx2")]
fn apply<const SUM: bool, const MANY: bool>(
    representatives: &[f32; 16],
    symbols: &[u8],
    base: &mut [f32],
    lanes: &mut Lanes,
) {
    let steps = Steps::<MANY>::new(representatives);
    let mut sums = SumLanes::load(lanes);
    for (symbols, base) in symbols.as_chunks::<GROUP>().0.iter().zip(base.as_chunks_mut::<GROUP>().0) {
        prefetch(base);
        let marks = load_bytes(symbols);
        let (symbols, _) = symbols.as_chunks::<8>();
        let (eights, _) = base.as_chunks_mut::<8>();
        let before = [0, 1, 2, 3].map(|k| load_f32(&eights[k]));
        if _mm256_testz_si256(marks, marks) != 0 {
            if SUM {
                add(&mut sums, before);
            }
            continue;
        }
        // What is kept is written as well: a store under a mask is slow on many processors.
        let after = if has_nan(before) {
            [0, 1, 2, 3].map(|k| steps.add_or_keep(before[k], &symbols[k]))
        } else {
            [0, 1, 2, 3].map(|k| steps.add_to(before[k], &symbols[k]))
        };
        (0..4).for_each(|k| store_f32(&mut eights[k], after[k]));
        if SUM {
            add(&mut sums, after);
        }
    }
    if SUM {
        sums.store(lanes);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn has_nan([a, b, c, d]: [__m256; 4]) -> bool {
    let unordered = |x, y| _mm256_cmp_ps::<_CMP_UNORD_Q>(x, y);
    _mm256_movemask_ps(_mm256_or_ps(unordered(a, b), unordered(c, d))) != 0
}

/// Adds a group to a content sum: two stripes.
#[inline]
#[target_feature(enable = "avx2")]
pub fn add(sums: &mut SumLanes, group: [__m256; 4]) {
    let [a, b, c, d] = [
        _mm256_castps_si256(group[0]),
        _mm256_castps_si256(group[1]),
        _mm256_castps_si256(group[2]),
        _mm256_castps_si256(group[3]),
    ];
    sums.add([a, b]);
    sums.add([c, d]);
}
