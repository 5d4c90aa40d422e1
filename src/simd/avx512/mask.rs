//! Symbols apart into mask bytes and marked symbols, and together again.

use super::Avx512;
use super::lanes::{load_bytes, store_bytes};
use crate::kernels::Found;
use crate::simd::SLACK;
use std::arch::x86_64::*;

impl Avx512 {
    /// As `Avx2::split_marks`; `marked` has 64 bytes more than there are symbols.
    pub fn split_marks(self, symbols: &[u8], masks: &mut [u8], marked: &mut [u8]) -> usize {
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe { split_marks(symbols, masks, marked) }
    }

    /// As `Avx2::split_places`; `below` and `places` have 64 bytes more than there are symbols.
    pub fn split_places(self, symbols: &[u8], below: &mut [u8], places: &mut [u8], found: &mut Found) {
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe { split_places(symbols, below, places, found) }
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
        // SAFETY: every group before this one has added at most 64 to `count`: the 64 bytes end within `marked`, as asserted.
        unsafe { _mm512_storeu_si512(marked.as_mut_ptr().add(count).cast(), packed) };
        count += marks.count_ones() as usize;
    }
    count
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt,lzcnt,bmi1")]
fn split_places(symbols: &[u8], below: &mut [u8], places: &mut [u8], found: &mut Found) {
    let (groups, _) = symbols.as_chunks::<64>();
    let room = 64 * groups.len() + SLACK;
    assert!(below.len() >= room && places.len() >= room && found.count == 0);
    let within: [u8; 64] = std::array::from_fn(|i| i as u8);
    let (one, step) = (_mm512_set1_epi8(1), _mm512_set1_epi8(64));
    let mut here = load_bytes(&within);
    for (number, group) in groups.iter().enumerate() {
        let group = load_bytes(group);
        let marks = _mm512_test_epi8_mask(group, group);
        if marks != 0 {
            let symbols = _mm512_maskz_compress_epi8(marks, _mm512_sub_epi8(group, one));
            let marked = _mm512_maskz_compress_epi8(marks, here);
            let count = found.count;
            found.add(number, marks);
            // SAFETY: every group before this one has added at most 64 to `count`: the 64 bytes end within both, as asserted.
            unsafe {
                _mm512_storeu_si512(below.as_mut_ptr().add(count).cast(), symbols);
                _mm512_storeu_si512(places.as_mut_ptr().add(count).cast(), marked);
            }
        }
        here = _mm512_add_epi8(here, step);
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
