//! Loads and stores of whole vectors: arrays in, so that no pointer is ever out of bounds.

use std::arch::x86_64::*;

#[inline]
#[target_feature(enable = "avx512f")]
pub fn load_f32(from: &[f32; 16]) -> __m512 {
    // SAFETY: the array has the 64 bytes that are read; no alignment is needed.
    unsafe { _mm512_loadu_ps(from.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub fn store_f32(to: &mut [f32; 16], value: __m512) {
    // SAFETY: the array has the 64 bytes that are written; no alignment is needed.
    unsafe { _mm512_storeu_ps(to.as_mut_ptr(), value) };
}

#[inline]
#[target_feature(enable = "avx512f")]
pub fn load_bytes(from: &[u8; 64]) -> __m512i {
    // SAFETY: the array has the 64 bytes that are read; no alignment is needed.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub fn store_bytes(to: &mut [u8; 64], value: __m512i) {
    // SAFETY: the array has the 64 bytes that are written; no alignment is needed.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), value) };
}

#[inline]
#[target_feature(enable = "avx512f")]
pub fn load_words(from: &[u64; 8]) -> __m512i {
    // SAFETY: the array has the 64 bytes that are read; no alignment is needed.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub fn store_words(to: &mut [u64; 8], value: __m512i) {
    // SAFETY: the array has the 64 bytes that are written; no alignment is needed.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), value) };
}

#[inline]
#[target_feature(enable = "avx512f")]
pub fn load_half(from: &[u32; 8]) -> __m256i {
    // SAFETY: the array has the 32 bytes that are read; no alignment is needed.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub fn store_half(to: &mut [u8; 32], value: __m256i) {
    // SAFETY: the array has the 32 bytes that are written; no alignment is needed.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) };
}

/// Sixteen bytes as sixteen 32-bit integers.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn widen(from: &[u8; 16]) -> __m512i {
    // SAFETY: the array has the 16 bytes that are read; no alignment is needed.
    unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(from.as_ptr().cast())) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub fn load_sixteen(from: &[u8; 16]) -> __m128i {
    // SAFETY: the array has the 16 bytes that are read; no alignment is needed.
    unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
}
