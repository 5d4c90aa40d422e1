//! Exponent classes of f32 and bf16: symbols and raw fields, apart and together again.

use super::Avx2;
use super::lanes::{load_bytes, load_f32, prefetch, store_bytes, store_ints, widen};
use super::sum::SumLanes;
use crate::checksum::Lanes;
use crate::kernels::GROUP;
use crate::simd::avx512;
use std::arch::x86_64::*;

/// Bytes of the fields of a group of f32: 24 bits each.
pub const FIELD_BYTES: usize = 3 * GROUP;

impl Avx2 {
    /// Symbols of whole groups of f32 under the window with this top (exponent fields top, top - 1 .. as 1, 2 ..; 15 the
    /// others). A group with a zero or a 15 is handed to `fix`, which overwrites its symbols.
    pub fn class_symbols(
        self,
        top: u8,
        target: &[f32],
        symbols: &mut [u8],
        fix: impl FnMut(&[f32; GROUP], &mut [u8; GROUP]),
    ) {
        if let Some(avx512) = avx512() {
            return avx512.class_symbols(top, target, symbols, fix);
        }
        // SAFETY: `self` proves that the machine has AVX2.
        unsafe { class_symbols(top, target, symbols, fix) };
    }

    /// The fields of whole groups of f32, and the content sum: [`FIELD_BYTES`] each; `out` has as many, and 8 more.
    pub fn class_fields(self, target: &[f32], out: &mut [u8], sums: &mut Lanes) {
        let done = avx512().map_or(0, |avx512| avx512.class_fields(target, out, sums));
        // SAFETY: `self` proves that the machine has AVX2.
        unsafe { class_fields(&target[GROUP * done..], &mut out[FIELD_BYTES * done..], sums) };
    }

    /// Whole groups of f32 from their symbols and fields, and the content sum. `top` is at least 13; `fields` has
    /// [`FIELD_BYTES`] for each group, and 8 more. A group with a symbol 0 or 15 is handed to `slow` with its number; if that returns
    /// false, all ends.
    pub fn join_classes(
        self,
        top: u8,
        symbols: &[u8],
        fields: &[u8],
        target: &mut [f32],
        sums: &mut Lanes,
        mut slow: impl FnMut(usize, &[u8; GROUP], &mut [f32; GROUP]) -> bool,
    ) {
        let mut done = 0;
        if let Some(avx512) = avx512() {
            let Some(groups) = avx512.join_classes(top, symbols, fields, target, sums, &mut slow) else { return };
            done = groups;
        }
        let (symbols, fields) = (&symbols[GROUP * done..], &fields[FIELD_BYTES * done..]);
        let slow =
            |number: usize, symbols: &[u8; GROUP], target: &mut [f32; GROUP]| slow(done + number, symbols, target);
        // SAFETY: `self` proves that the machine has AVX2.
        unsafe { join_classes(top, symbols, fields, &mut target[GROUP * done..], sums, slow) };
    }
}

#[target_feature(enable = "avx2")]
fn class_symbols(top: u8, target: &[f32], symbols: &mut [u8], mut fix: impl FnMut(&[f32; GROUP], &mut [u8; GROUP])) {
    let top = _mm256_set1_epi16(i16::from(top));
    for (target, symbols) in target.as_chunks::<GROUP>().0.iter().zip(symbols.as_chunks_mut::<GROUP>().0) {
        prefetch(target);
        let bits = load_group(target);
        let first = below(top, bits[0], bits[1]);
        let second = below(top, bits[2], bits[3]);
        let packed = _mm256_packus_epi16(first, second);
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let found = _mm256_permutevar8x32_epi32(packed, order);
        store_bytes(symbols, found);
        let escapes = _mm256_cmpeq_epi8(found, _mm256_set1_epi8(15));
        if _mm256_movemask_epi8(_mm256_or_si256(escapes, zeros(&bits))) != 0 {
            fix(target, symbols);
        }
    }
}

/// Symbols of 16 entries: 1 more than how far their exponent is below the top, at most 15.
#[inline]
#[target_feature(enable = "avx2")]
fn below(top: __m256i, a: __m256i, b: __m256i) -> __m256i {
    let upper = _mm256_packus_epi32(_mm256_srli_epi32::<16>(a), _mm256_srli_epi32::<16>(b));
    let exponent = _mm256_srli_epi16::<8>(_mm256_slli_epi16::<1>(upper));
    let below = _mm256_min_epu16(_mm256_sub_epi16(top, exponent), _mm256_set1_epi16(14));
    _mm256_add_epi16(below, _mm256_set1_epi16(1))
}

/// Where any entry of a group is +0.0.
#[inline]
#[target_feature(enable = "avx2")]
fn zeros(bits: &[__m256i; 4]) -> __m256i {
    let least = _mm256_min_epu32(_mm256_min_epu32(bits[0], bits[1]), _mm256_min_epu32(bits[2], bits[3]));
    _mm256_cmpeq_epi32(least, _mm256_setzero_si256())
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_group(group: &[f32; GROUP]) -> [__m256i; 4] {
    let (eights, _) = group.as_chunks::<8>();
    [
        _mm256_castps_si256(load_f32(&eights[0])),
        _mm256_castps_si256(load_f32(&eights[1])),
        _mm256_castps_si256(load_f32(&eights[2])),
        _mm256_castps_si256(load_f32(&eights[3])),
    ]
}

#[target_feature(enable = "avx2")]
fn class_fields(target: &[f32], out: &mut [u8], lanes: &mut Lanes) {
    let (groups, _) = target.as_chunks::<GROUP>();
    assert!(out.len() >= FIELD_BYTES * groups.len() + 8);
    let mantissa = _mm256_set1_epi32(0x7f_ffff);
    let sign = _mm256_set1_epi32(0x80_0000);
    // The low three bytes of four entries, side by side, in each half.
    let pack = _mm256_setr_epi8(
        0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,
    );
    let mut sums = SumLanes::load(lanes);
    for (number, group) in groups.iter().enumerate() {
        let bits = load_group(group);
        for (k, &eight) in bits.iter().enumerate() {
            let signs = _mm256_and_si256(_mm256_srli_epi32::<8>(eight), sign);
            let fields = _mm256_or_si256(_mm256_and_si256(eight, mantissa), signs);
            let packed = _mm256_shuffle_epi8(fields, pack);
            // SAFETY: the second store ends at 96 * number + 24 * k + 28 <= 96 * count + 4, within `out` as asserted.
            unsafe {
                let to = out.as_mut_ptr().add(FIELD_BYTES * number + 24 * k);
                _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(packed));
                _mm_storeu_si128(to.add(12).cast(), _mm256_extracti128_si256::<1>(packed));
            }
        }
        sums.add([bits[0], bits[1]]);
        sums.add([bits[2], bits[3]]);
    }
    sums.store(lanes);
}

#[target_feature(enable = "avx2")]
fn join_classes(
    top: u8,
    symbols: &[u8],
    fields: &[u8],
    target: &mut [f32],
    lanes: &mut Lanes,
    mut slow: impl FnMut(usize, &[u8; GROUP], &mut [f32; GROUP]) -> bool,
) {
    let (groups, _) = target.as_chunks_mut::<GROUP>();
    assert!(fields.len() >= FIELD_BYTES * groups.len() + 8);
    let classes: [u8; 32] = std::array::from_fn(|i| top.saturating_sub((i % 16).saturating_sub(1) as u8));
    let classes = load_bytes(&classes);
    let unpack = _mm256_setr_epi8(
        0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1, 0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1,
    );
    let (mantissa, sign) = (_mm256_set1_epi32(0x7f_ffff), _mm256_set1_epi32(0x80_0000));
    let mut sums = SumLanes::load(lanes);
    for (number, (symbols, target)) in symbols.as_chunks::<GROUP>().0.iter().zip(groups).enumerate() {
        prefetch(target);
        let found = load_bytes(symbols);
        let (zero, escape) = (_mm256_setzero_si256(), _mm256_set1_epi8(15));
        let unusual = _mm256_or_si256(_mm256_cmpeq_epi8(found, zero), _mm256_cmpeq_epi8(found, escape));
        if _mm256_movemask_epi8(unusual) != 0 {
            if !slow(number, symbols, target) {
                return;
            }
            let bits = load_group(target);
            sums.add([bits[0], bits[1]]);
            sums.add([bits[2], bits[3]]);
            continue;
        }
        let mut exponents = [0; 32];
        store_bytes(&mut exponents, _mm256_shuffle_epi8(classes, found));
        let (exponents, _) = exponents.as_chunks::<8>();
        let join = |k: usize| {
            // SAFETY: ends at 96 * number + 24 * 3 + 28 <= 96 * count + 4, within `fields` as asserted.
            let raw = unsafe {
                let from = fields.as_ptr().add(FIELD_BYTES * number + 24 * k);
                _mm256_set_m128i(_mm_loadu_si128(from.add(12).cast()), _mm_loadu_si128(from.cast()))
            };
            let field = _mm256_shuffle_epi8(raw, unpack);
            let signs = _mm256_slli_epi32::<8>(_mm256_and_si256(field, sign));
            let exponent = _mm256_slli_epi32::<23>(widen(&exponents[k]));
            _mm256_or_si256(_mm256_or_si256(_mm256_and_si256(field, mantissa), signs), exponent)
        };
        let made = [join(0), join(1), join(2), join(3)];
        let ints: &mut [i32; GROUP] = bytemuck::cast_mut(target);
        let (eights, _) = ints.as_chunks_mut::<8>();
        (0..4).for_each(|k| store_ints(&mut eights[k], made[k]));
        sums.add([made[0], made[1]]);
        sums.add([made[2], made[3]]);
    }
    sums.store(lanes);
}
