//! Exponent classes of f32: symbols and raw fields, apart and together again, sixteen at a time. Each function ends where a vector
//! would reach past what there is, and tells how many groups it has done.

use super::Avx512;
use super::lanes::{load_bytes, store_bytes, store_half};
use super::sum::SumLanes;
use crate::checksum::Lanes;
use crate::kernels::GROUP;
use crate::simd::avx2::{FIELD_BYTES, prefetch};
use std::arch::x86_64::*;

impl Avx512 {
    /// As `Avx2::class_symbols`.
    pub fn class_symbols(
        self,
        top: u8,
        target: &[f32],
        symbols: &mut [u8],
        fix: impl FnMut(&[f32; GROUP], &mut [u8; GROUP]),
    ) {
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe { class_symbols(top, target, symbols, fix) };
    }

    /// As `Avx2::class_fields`.
    pub fn class_fields(self, target: &[f32], out: &mut [u8], sums: &mut Lanes) -> usize {
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe { class_fields(target, out, sums) }
    }

    /// As `Avx2::join_classes`; `None` if `slow` has returned false.
    pub fn join_classes(
        self,
        top: u8,
        symbols: &[u8],
        fields: &[u8],
        target: &mut [f32],
        sums: &mut Lanes,
        slow: impl FnMut(usize, &[u8; GROUP], &mut [f32; GROUP]) -> bool,
    ) -> Option<usize> {
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe { join_classes(top, symbols, fields, target, sums, slow) }
    }
}

/// Bytes of the fields of a vector of entries.
const HALF_BYTES: usize = FIELD_BYTES / 2;

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx2")]
fn class_symbols(top: u8, target: &[f32], symbols: &mut [u8], mut fix: impl FnMut(&[f32; GROUP], &mut [u8; GROUP])) {
    let top = _mm256_set1_epi8(top as i8);
    // The highest bytes of sixteen entries and of sixteen more.
    let highest = load_bytes(&std::array::from_fn(|i| (4 * i + 3) as u8));
    for (target, symbols) in target.as_chunks::<GROUP>().0.iter().zip(symbols.as_chunks_mut::<GROUP>().0) {
        prefetch(target);
        let halves = load_group(target);
        let [a, b] = halves.map(|half| _mm512_slli_epi32::<1>(half));
        let exponents = _mm512_castsi512_si256(_mm512_permutex2var_epi8(a, highest, b));
        let below = _mm256_min_epu8(_mm256_sub_epi8(top, exponents), _mm256_set1_epi8(14));
        let above = _mm256_cmpgt_epu8_mask(exponents, top);
        let below = _mm256_mask_mov_epi8(below, above, _mm256_set1_epi8(14));
        let found = _mm256_add_epi8(below, _mm256_set1_epi8(1));
        store_half(symbols, found);
        let least = _mm512_min_epu32(halves[0], halves[1]);
        let escapes = _mm256_cmpeq_epi8_mask(found, _mm256_set1_epi8(15));
        if escapes | u32::from(_mm512_testn_epi32_mask(least, least)) != 0 {
            fix(target, symbols);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_group(group: &[f32; GROUP]) -> [__m512i; 2] {
    let halves: &[[u8; 64]; 2] = bytemuck::cast_ref(group);
    [load_bytes(&halves[0]), load_bytes(&halves[1])]
}

/// Asks for what fields are written to soon: near lines into the first level, far ones into the second.
#[inline]
#[target_feature(enable = "avx512f")]
fn prefetch_room(at: *const u8) {
    for line in [0, 64] {
        _mm_prefetch::<_MM_HINT_ET0>(at.wrapping_add(1024 + line).cast());
        _mm_prefetch::<_MM_HINT_ET1>(at.wrapping_add(8192 + line).cast());
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx2")]
fn class_fields(target: &[f32], out: &mut [u8], lanes: &mut Lanes) -> usize {
    // A store ends 16 bytes after its fields.
    let groups = (out.len().saturating_sub(16) / FIELD_BYTES).min(target.len() / GROUP);
    // The low three bytes of sixteen entries, side by side.
    let pack = load_bytes(&std::array::from_fn(|i| (i / 3 * 4 + i % 3) as u8 & 63));
    let (mantissa, sign) = (_mm512_set1_epi32(0x7f_ffff), _mm512_set1_epi32(0x80_0000));
    let mut sums = SumLanes::load(lanes);
    for (number, group) in target.as_chunks::<GROUP>().0.iter().take(groups).enumerate() {
        prefetch_room(out.as_ptr().wrapping_add(FIELD_BYTES * number));
        for (k, bits) in load_group(group).into_iter().enumerate() {
            let signs = _mm512_and_si512(_mm512_srli_epi32::<8>(bits), sign);
            let fields = _mm512_or_si512(_mm512_and_si512(bits, mantissa), signs);
            let packed = _mm512_permutexvar_epi8(pack, fields);
            // SAFETY: it ends at 96 * number + 48 * k + 64 <= 96 * groups + 16, within `out`.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(FIELD_BYTES * number + HALF_BYTES * k).cast(), packed) };
            sums.add(bits);
        }
    }
    sums.store(lanes);
    groups
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx2")]
fn join_classes(
    top: u8,
    symbols: &[u8],
    fields: &[u8],
    target: &mut [f32],
    lanes: &mut Lanes,
    mut slow: impl FnMut(usize, &[u8; GROUP], &mut [f32; GROUP]) -> bool,
) -> Option<usize> {
    // A load ends 16 bytes after its fields.
    let count = (fields.len().saturating_sub(16) / FIELD_BYTES).min(target.len() / GROUP);
    let classes: [u8; 64] = std::array::from_fn(|i| top.saturating_sub((i % 16).saturating_sub(1) as u8));
    let classes = _mm512_castsi512_si256(load_bytes(&classes));
    let unpack = load_bytes(&std::array::from_fn(|i| (i / 4 * 3 + i % 4) as u8 & 63));
    let (mantissa, sign) = (_mm512_set1_epi32(0x7f_ffff), _mm512_set1_epi32(0x80_0000));
    let mut sums = SumLanes::load(lanes);
    let groups = target.as_chunks_mut::<GROUP>().0.iter_mut().take(count);
    for (number, (symbols, target)) in symbols.as_chunks::<GROUP>().0.iter().zip(groups).enumerate() {
        prefetch(target);
        let found = load_symbols(symbols);
        let escapes = _mm256_cmpeq_epi8_mask(found, _mm256_set1_epi8(15));
        if escapes | _mm256_testn_epi8_mask(found, found) != 0 {
            if !slow(number, symbols, target) {
                return None;
            }
            load_group(target).into_iter().for_each(|half| sums.add(half));
            continue;
        }
        let exponents = _mm256_shuffle_epi8(classes, found);
        let exponents = [_mm256_castsi256_si128(exponents), _mm256_extracti128_si256::<1>(exponents)];
        let halves: &mut [[u8; 64]; 2] = bytemuck::cast_mut(target);
        for k in 0..2 {
            // SAFETY: it ends at 96 * number + 48 * k + 64 <= 96 * count + 16, within `fields`.
            let raw = unsafe { _mm512_loadu_si512(fields.as_ptr().add(FIELD_BYTES * number + HALF_BYTES * k).cast()) };
            // The highest byte of each is that of the next one, and plays no part.
            let field = _mm512_permutexvar_epi8(unpack, raw);
            let signs = _mm512_slli_epi32::<8>(_mm512_and_si512(field, sign));
            let exponent = _mm512_slli_epi32::<23>(_mm512_cvtepu8_epi32(exponents[k]));
            let made = _mm512_or_si512(_mm512_or_si512(_mm512_and_si512(field, mantissa), signs), exponent);
            store_bytes(&mut halves[k], made);
            sums.add(made);
        }
    }
    sums.store(lanes);
    Some(count)
}

#[inline]
#[target_feature(enable = "avx512f,avx2")]
fn load_symbols(symbols: &[u8; GROUP]) -> __m256i {
    // SAFETY: the array has the 32 bytes that are read; no alignment is needed.
    unsafe { _mm256_loadu_si256(symbols.as_ptr().cast()) }
}
