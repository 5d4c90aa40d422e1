//! Pairs of raw fields, each in a word, for the packing of a stream of raw bits.

use super::Avx2;
use super::lanes::{load_bytes, store_words, widen_pairs};
use crate::simd::avx512;
use crate::simd::packed::{GROUP, PAIRS, Packed, Pairs, pack_groups};
use std::arch::x86_64::*;

impl Avx2 {
    /// As [`pack`](crate::simd::packed::pack).
    pub fn pack(self, fields: &[u32], widths: &[u8], fours: bool, out: &mut [u8]) -> Packed {
        if let Some(avx512) = avx512() {
            return if fours { avx512.pack_short(fields, widths, out) } else { avx512.pack_long(fields, widths, out) };
        }
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe { pack(fields, widths, fours, out) }
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2")]
fn pack(fields: &[u32], widths: &[u8], fours: bool, out: &mut [u8]) -> Packed {
    pack_groups(fields, widths, out, |packed, fields, widths, out| {
        // SAFETY: the caller's, as `pack_groups` has it.
        unsafe { packed.put_group(fields, widths, &pairs(fields, widths), fours, out) };
    })
}

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub fn pairs(fields: &[u32; GROUP], widths: &[u8; GROUP]) -> Pairs {
    let mut pairs = Pairs { values: [0; PAIRS], widths: [0; PAIRS], widest: 0 };
    let (eights, _) = fields.as_chunks::<8>();
    let (eight_widths, _) = widths.as_chunks::<8>();
    let (values, _) = pairs.values.as_chunks_mut::<4>();
    let (sums, _) = pairs.widths.as_chunks_mut::<4>();
    let mut widest = _mm256_setzero_si256();
    for k in 0..2 {
        let fields = load_bytes(bytemuck::cast_ref(&eights[k]));
        let widths = widen_pairs(&eight_widths[k]);
        let first = _mm256_and_si256(widths, _mm256_set1_epi64x(0xff));
        let low = _mm256_and_si256(fields, _mm256_set1_epi64x(0xffff_ffff));
        let high = _mm256_sllv_epi64(_mm256_srli_epi64::<32>(fields), first);
        store_words(&mut values[k], _mm256_or_si256(low, high));
        let sum = _mm256_add_epi64(first, _mm256_srli_epi64::<8>(widths));
        widest = _mm256_max_epu32(widest, sum);
        store_words(&mut sums[k], sum);
    }
    let half = _mm_max_epu32(_mm256_castsi256_si128(widest), _mm256_extracti128_si256::<1>(widest));
    pairs.widest = _mm_cvtsi128_si64(_mm_max_epu32(half, _mm_unpackhi_epi64(half, half))) as u64;
    pairs
}
