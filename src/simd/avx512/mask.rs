//! Symbols apart into mask bytes and marked symbols, and together again.

use super::Avx512;
use super::lanes::{load_bytes, store_bytes};
use std::arch::x86_64::*;

/// Bytes that a store may go past what it writes.
const SLACK: usize = 64;

impl Avx512 {
    /// As `Avx2::split_marks`; `marked` has 64 bytes more than there are symbols.
    pub fn split_marks(self, symbols: &[u8], masks: &mut [u8], marked: &mut [u8]) -> usize {
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe { split_marks(symbols, masks, marked) }
    }

    /// As `Avx2::find_places`; `places` has room for eight a mask, and 64 more.
    pub fn find_places(self, masks: &[u8], places: &mut [u16]) {
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe { find_places(masks, places) }
    }

    /// As `Avx2::place_marked`, for whole groups of eight mask bytes; `marked` has a byte for each mark, and 64 more.
    pub fn place_marked(self, masks: &[u8], marked: &[u8], symbols: &mut [u8]) -> usize {
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe { place_marked(masks, marked, symbols) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
fn split_marks(symbols: &[u8], masks: &mut [u8], marked: &mut [u8]) -> usize {
    let (groups, _) = symbols.as_chunks::<64>();
    assert!(marked.len() >= 64 * groups.len() + SLACK);
    let one = _mm512_set1_epi8(1);
    let mut count = 0;
    for (group, masks) in groups.iter().zip(masks.as_chunks_mut::<8>().0) {
        let group = load_bytes(group);
        let marks = _mm512_test_epi8_mask(group, group);
        *masks = marks.to_le_bytes();
        let packed = _mm512_maskz_compress_epi8(marks, _mm512_sub_epi8(group, one));
        let ones = marks.count_ones() as usize;
        // SAFETY: every group before this one has added at most 64 to `count`: the 64 bytes end within `marked`, as asserted.
        unsafe { store_start(marked.as_mut_ptr().add(count), packed, ones <= 32) };
        count += ones;
    }
    count
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
fn find_places(masks: &[u8], places: &mut [u16]) {
    assert!(places.len() >= 8 * masks.len() + SLACK);
    let mut within: [i16; 32] = [0; 32];
    within.iter_mut().zip(0..).for_each(|(place, i)| *place = i);
    // SAFETY: the array has the 64 bytes that are read.
    let mut here = unsafe { _mm512_loadu_si512(within.as_ptr().cast()) };
    let step = _mm512_set1_epi16(32);
    let mut count = 0;
    for eight in masks.chunks(8) {
        let marks = eight.iter().rev().fold(0u64, |marks, &mask| marks << 8 | u64::from(mask));
        if marks == 0 {
            here = _mm512_add_epi16(here, _mm512_add_epi16(step, step));
            continue;
        }
        for half in [marks as u32, (marks >> 32) as u32] {
            let packed = _mm512_maskz_compress_epi16(half, here);
            let ones = half.count_ones() as usize;
            // SAFETY: `count` is at most the marks so far, and these are at most 8 a mask: the 32 places end within `places`, as
            // asserted.
            unsafe { store_start(places.as_mut_ptr().add(count).cast(), packed, ones <= 16) };
            count += ones;
            here = _mm512_add_epi16(here, step);
        }
    }
}

/// Stores the first half of a vector, or all: a store of 64 bytes that crosses a line of cache, as it nearly always does, is slow.
///
/// # Safety
/// `to` is valid for writes of 64 bytes.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store_start(to: *mut u8, value: __m512i, half: bool) {
    // SAFETY: the caller's.
    unsafe {
        if half {
            _mm256_storeu_si256(to.cast(), _mm512_castsi512_si256(value));
        } else {
            _mm512_storeu_si512(to.cast(), value);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
fn place_marked(masks: &[u8], marked: &[u8], symbols: &mut [u8]) -> usize {
    let one = _mm512_set1_epi8(1);
    let last = marked.len().checked_sub(64);
    let mut next = 0;
    for (masks, group) in masks.as_chunks::<8>().0.iter().zip(symbols.as_chunks_mut::<64>().0) {
        assert!(last.is_some_and(|last| next <= last));
        let marks = u64::from_le_bytes(*masks);
        // SAFETY: the 64 bytes from `next` on are in `marked`, as asserted.
        let units = unsafe { _mm512_loadu_si512(marked.as_ptr().add(next).cast()) };
        store_bytes(group, _mm512_maskz_expand_epi8(marks, _mm512_add_epi8(units, one)));
        next += marks.count_ones() as usize;
    }
    next
}
