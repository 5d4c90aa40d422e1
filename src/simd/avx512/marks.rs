//! Marked bytes out of all, and values back to where the marks are.

use super::Avx512;
use super::lanes::{load_bytes, store_bytes};
use crate::simd::SLACK;
use std::arch::x86_64::*;

impl Avx512 {
    /// Writes the marked ones of whole blocks of 64 bytes to `picked`, which has [`SLACK`] bytes past the last; tells how many.
    pub fn pick(self, bytes: &[u8], marks: &[u64], picked: &mut [u8]) -> usize {
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe { pick(bytes, marks, picked) }
    }

    /// Writes one of `values` after the other to each marked slot; tells how many, and of how many of `marks`: all for which there are
    /// whole vectors.
    pub fn spread(self, values: &[u16], marks: &[u64], slots: &mut [u16]) -> (usize, usize) {
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe { spread(values, marks, slots) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
fn pick(bytes: &[u8], marks: &[u64], picked: &mut [u8]) -> usize {
    let mut count = 0;
    for (block, &marks) in bytes.as_chunks::<64>().0.iter().zip(marks) {
        assert!(count + SLACK <= picked.len());
        let some = _mm512_maskz_compress_epi8(marks, load_bytes(block));
        // SAFETY: as asserted, the 64 bytes from `count` on are in `picked`.
        unsafe { _mm512_storeu_si512(picked.as_mut_ptr().add(count).cast(), some) };
        count += marks.count_ones() as usize;
    }
    count
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
fn spread(values: &[u16], marks: &[u64], slots: &mut [u16]) -> (usize, usize) {
    let (mut used, mut done) = (0, 0);
    for (slots, &marks) in slots.as_chunks_mut::<64>().0.iter_mut().zip(marks) {
        // Two vectors of 32, the second from where the first has ended.
        if used + 64 > values.len() {
            break;
        }
        for (slots, marks) in slots.as_chunks_mut::<32>().0.iter_mut().zip([marks as u32, (marks >> 32) as u32]) {
            // SAFETY: at most 32 have been used of the 64 that were left.
            let next = unsafe { _mm512_loadu_si512(values.as_ptr().add(used).cast()) };
            let before = load_bytes(bytemuck::cast_ref(slots));
            store_bytes(bytemuck::cast_mut(slots), _mm512_mask_expand_epi16(before, marks, next));
            used += marks.count_ones() as usize;
        }
        done += 1;
    }
    (used, done)
}
