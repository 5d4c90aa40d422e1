//! Delta, bucket, symbol, reconstruction and content sum of f32 values in one pass.

use super::Avx2;
use super::apply::{Steps, add, symbols_above_7};
use super::lanes::{load_bytes, load_f32, prefetch, store_bytes, store_f32};
use super::sum::SumLanes;
use crate::checksum::Lanes;
use crate::kernels::{GROUP, ValueTable};
use crate::simd;
use std::arch::x86_64::*;

impl Avx2 {
    /// Codes whole groups: fills `symbols`, turns `base` into the reconstruction and adds it to `sums`. A group with an entry
    /// that has no finite delta, an exponent above the table's, or a reconstruction that is not finite is handed to `slow`
    /// (with its position), which must do the same but for the sums. The slices have one length, a multiple of [`GROUP`].
    pub fn quantize_values(
        self,
        table: &ValueTable,
        target: &[f32],
        base: &mut [f32],
        symbols: &mut [u8],
        sums: &mut Lanes,
        slow: impl FnMut(usize, &[f32; GROUP], &mut [f32; GROUP], &mut [u8; GROUP]),
    ) {
        if let Some(avx512) = simd::avx512() {
            return avx512.quantize_values(table, target, base, symbols, sums, slow);
        }
        // SAFETY: `self` proves that the machine has AVX2.
        unsafe {
            if symbols_above_7(&table.representatives) {
                quantize_values::<true>(table, target, base, symbols, sums, slow);
            } else {
                quantize_values::<false>(table, target, base, symbols, sums, slow);
            }
        }
    }
}

#[target_feature(enable = "avx2")]
fn quantize_values<const MANY: bool>(
    table: &ValueTable,
    target: &[f32],
    base: &mut [f32],
    symbols: &mut [u8],
    lanes: &mut Lanes,
    mut slow: impl FnMut(usize, &[f32; GROUP], &mut [f32; GROUP], &mut [u8; GROUP]),
) {
    let buckets = Buckets::new(table.top, &table.positive, &table.negative);
    let steps = Steps::<MANY>::new(&table.representatives);
    let mut sums = SumLanes::load(lanes);
    let groups = target.as_chunks::<GROUP>().0.iter().zip(base.as_chunks_mut::<GROUP>().0);
    for (number, ((target, base), symbols)) in groups.zip(symbols.as_chunks_mut::<GROUP>().0).enumerate() {
        prefetch(target);
        prefetch(base);
        let (after, before) = (load_group(target), load_group(base));
        let deltas = [0, 1, 2, 3].map(|k| _mm256_castps_si256(_mm256_sub_ps(after[k], before[k])));
        let coded = buckets.code(deltas);
        store_bytes(symbols, coded.symbols);
        let (eights, _) = symbols.as_chunks::<8>();
        let after = [0, 1, 2, 3].map(|k| steps.add_to(before[k], &eights[k]));
        if coded.outside | not_finite(&after) != 0 {
            leave(&mut slow, number * GROUP, target, base, symbols);
            add(&mut sums, load_group(base));
            continue;
        }
        let (eights, _) = base.as_chunks_mut::<8>();
        for k in 0..4 {
            store_f32(&mut eights[k], after[k]);
        }
        add(&mut sums, after);
    }
    sums.store(lanes);
}

/// Away from the loop, whose registers it would take.
#[cold]
#[inline(never)]
pub fn leave<T>(
    slow: &mut impl FnMut(usize, &[T; GROUP], &mut [T; GROUP], &mut [u8; GROUP]),
    at: usize,
    target: &[T; GROUP],
    base: &mut [T; GROUP],
    symbols: &mut [u8; GROUP],
) {
    slow(at, target, base, symbols);
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_group(group: &[f32; GROUP]) -> [__m256; 4] {
    let (eights, _) = group.as_chunks::<8>();
    [load_f32(&eights[0]), load_f32(&eights[1]), load_f32(&eights[2]), load_f32(&eights[3])]
}

/// A mask that is not 0 if any entry is infinite or NaN.
#[inline]
#[target_feature(enable = "avx2")]
fn not_finite(group: &[__m256; 4]) -> i32 {
    let exponents = _mm256_set1_epi32(0x7f80_0000);
    let [a, b, c, d] = group.map(|eight| _mm256_castps_si256(eight));
    // Where no entry has all exponent bits set, nearly always, the OR of all has not either.
    let any = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
    let full = |bits| _mm256_cmpeq_epi32(_mm256_and_si256(bits, exponents), exponents);
    if _mm256_movemask_epi8(full(any)) == 0 {
        return 0;
    }
    let found = _mm256_or_si256(_mm256_or_si256(full(a), full(b)), _mm256_or_si256(full(c), full(d)));
    _mm256_movemask_epi8(found)
}

/// What finds the symbols of deltas, in registers.
pub struct Buckets {
    top: __m256i,
    positive: __m256i,
    negative: __m256i,
}

pub struct Coded {
    pub symbols: __m256i,
    /// Not 0 where an exponent is above the top.
    pub outside: i32,
}

impl Buckets {
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn new(top: u8, positive: &[u8; 16], negative: &[u8; 16]) -> Self {
        let twice = |half: &[u8; 16]| load_bytes(&std::array::from_fn(|i| half[i % 16]));
        Buckets { top: _mm256_set1_epi16(i16::from(top)), positive: twice(positive), negative: twice(negative) }
    }

    /// `deltas`: the bits of 32 floats.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn code(&self, deltas: [__m256i; 4]) -> Coded {
        let upper = |k: usize| _mm256_srli_epi32::<16>(deltas[k]);
        // The upper halves of 16 deltas: sign, exponent, 7 bits of mantissa.
        let first = _mm256_packus_epi32(upper(0), upper(1));
        let second = _mm256_packus_epi32(upper(2), upper(3));
        let (low, low_outside) = self.below_top(first);
        let (high, high_outside) = self.below_top(second);
        let packed = _mm256_packus_epi16(low, high);
        // The packs work on halves of vectors: put the runs of four entries back in order.
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let below = _mm256_permutevar8x32_epi32(packed, order);
        let flipped = _mm256_xor_si256(below, _mm256_set1_epi8(-128));
        let symbols =
            _mm256_or_si256(_mm256_shuffle_epi8(self.positive, below), _mm256_shuffle_epi8(self.negative, flipped));
        let outside = _mm256_movemask_epi8(_mm256_or_si256(low_outside, high_outside)) & 0xaaaa_aaaa_u32 as i32;
        Coded { symbols, outside }
    }

    /// How far below the top each exponent is, at most 15, with the sign as bit 7; and where it is above.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn below_top(&self, upper: __m256i) -> (__m256i, __m256i) {
        let exponent = _mm256_srli_epi16::<8>(_mm256_slli_epi16::<1>(upper));
        let below = _mm256_sub_epi16(self.top, exponent);
        let capped = _mm256_min_epi16(below, _mm256_set1_epi16(15));
        let sign = _mm256_and_si256(_mm256_srli_epi16::<8>(upper), _mm256_set1_epi16(0x80));
        (_mm256_or_si256(capped, sign), below)
    }
}
