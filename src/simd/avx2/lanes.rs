//! Loads and stores of whole vectors: arrays in, so that no pointer is ever out of bounds.

use crate::kernels::GROUP;
use std::arch::x86_64::*;

#[inline]
#[target_feature(enable = "avx2")]
pub fn load_f32(from: &[f32; 8]) -> __m256 {
    // SAFETY: the array has the 32 bytes that are read; no alignment is needed.
    unsafe { _mm256_loadu_ps(from.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn store_f32(to: &mut [f32; 8], value: __m256) {
    // SAFETY: the array has the 32 bytes that are written; no alignment is needed.
    unsafe { _mm256_storeu_ps(to.as_mut_ptr(), value) };
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn load_bytes(from: &[u8; 32]) -> __m256i {
    // SAFETY: the array has the 32 bytes that are read; no alignment is needed.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn store_bytes(to: &mut [u8; 32], value: __m256i) {
    // SAFETY: the array has the 32 bytes that are written; no alignment is needed.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) };
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn load_words(from: &[u64; 4]) -> __m256i {
    // SAFETY: the array has the 32 bytes that are read; no alignment is needed.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn store_words(to: &mut [u64; 4], value: __m256i) {
    // SAFETY: the array has the 32 bytes that are written; no alignment is needed.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) };
}

/// Eight bytes as eight 32-bit integers.
#[inline]
#[target_feature(enable = "avx2")]
pub fn widen(from: &[u8; 8]) -> __m256i {
    // SAFETY: the array has the 8 bytes that are read; no alignment is needed.
    unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.as_ptr().cast())) }
}

/// Four pairs of bytes as four 64-bit integers.
#[inline]
#[target_feature(enable = "avx2")]
pub fn widen_pairs(from: &[u8; 8]) -> __m256i {
    // SAFETY: the array has the 8 bytes that are read; no alignment is needed.
    unsafe { _mm256_cvtepu16_epi64(_mm_loadl_epi64(from.as_ptr().cast())) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn load_ints(from: &[i32; 8]) -> __m256i {
    // SAFETY: the array has the 32 bytes that are read; no alignment is needed.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub fn store_ints(to: &mut [i32; 8], value: __m256i) {
    // SAFETY: the array has the 32 bytes that are written; no alignment is needed.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) };
}

/// Asks for lines of cache that lie some groups after a group, for loops that run through memory: near ones into the first level,
/// far ones into the second, as the first cannot wait for so many.
#[inline]
#[target_feature(enable = "avx2")]
pub fn prefetch<T>(group: &[T; GROUP]) {
    let start = group.as_ptr().cast::<i8>();
    // A prefetch of an address that is not mapped does nothing.
    for line in (0..size_of_val(group)).step_by(64) {
        _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(NEAR + line));
        _mm_prefetch::<_MM_HINT_T1>(start.wrapping_add(FAR + line));
    }
}

/// How far ahead memory is asked for, in bytes.
const NEAR: usize = 1024;
const FAR: usize = 8192;
