//! Raw fields into and out of a stream of bits, eight at a time.

use super::Avx512;
use super::lanes::{load_half, store_half};
use crate::simd::avx2::pairs;
use crate::simd::packed::{GROUP, Packed, WIDEST, pack_groups};
use std::arch::x86_64::*;

/// Bytes that a group may touch past its first: the fields before its second half, and a vector.
const REACH: usize = 4 * GROUP / 2 + 1 + 64;

impl Avx512 {
    /// As [`pack`](crate::simd::packed::pack) of fields most of which are short.
    pub fn pack_short(self, fields: &[u32], widths: &[u8], out: &mut [u8]) -> Packed {
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe { pack_short(fields, widths, out) }
    }

    /// As [`unpack`](crate::simd::packed::unpack), but ends earlier.
    ///
    /// # Safety
    /// No width is above [`WIDEST`].
    pub unsafe fn unpack(self, bytes: &[u8], widths: &[u8], fields: &mut [u32]) -> (usize, usize) {
        // SAFETY: `self` proves that the machine has what is enabled; the widths are the caller's to check.
        unsafe { unpack(bytes, widths, fields) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,bmi1,bmi2")]
fn unpack(bytes: &[u8], widths: &[u8], fields: &mut [u32]) -> (usize, usize) {
    let (mut at, mut done) = (0usize, 0);
    let (groups, _) = fields.as_chunks_mut::<GROUP>();
    let (group_widths, _) = widths.as_chunks::<GROUP>();
    for (fields, widths) in groups.iter_mut().zip(group_widths) {
        if at / 8 + REACH > bytes.len() {
            break;
        }
        for (fields, widths) in fields.as_chunks_mut::<8>().0.iter_mut().zip(widths.as_chunks::<8>().0) {
            debug_assert!(widths.iter().all(|width| *width <= WIDEST));
            let widths = u64::from_le_bytes(*widths);
            // Where each field starts: sums of the widths before it, at most 7 * 32.
            let before = widths.wrapping_mul(0x0101_0101_0101_0101) << 8;
            // SAFETY: at most eight fields of 4 bytes lie between a group's first byte and this one: the 64 bytes are within
            // REACH of it, and so in `bytes`.
            let here = unsafe { _mm512_loadu_si512(bytes.as_ptr().add(at >> 3).cast()) };
            let starts = _mm512_cvtepu8_epi64(_mm_cvtsi64_si128(before as i64));
            let words = take(here, _mm512_add_epi64(starts, _mm512_set1_epi64((at & 7) as i64)));
            store_half(bytemuck::cast_mut(fields), _mm512_cvtepi64_epi32(words));
            at += ((before >> 56) + (widths >> 56)) as usize;
        }
        done += GROUP;
    }
    (done, at)
}

#[target_feature(enable = "avx512f,avx512bw,avx2,bmi1,bmi2")]
fn pack_short(fields: &[u32], widths: &[u8], out: &mut [u8]) -> Packed {
    pack_groups(fields, widths, out, |packed, fields, widths, out| {
        let eights = [0, 8].map(|k| Eight::of(&fields.as_chunks::<8>().0[k / 8], &widths.as_chunks::<8>().0[k / 8]));
        // SAFETY: as `pack_groups` has it: a group's fields have at most 4 * GROUP bytes, and so do these.
        unsafe {
            if eights.iter().all(|eight| eight.width <= 56) {
                eights.iter().for_each(|eight| packed.put(eight.value(), eight.width, out));
            } else {
                packed.put_group(fields, widths, &pairs(fields, widths), true, out);
            }
        }
    })
}

/// Eight fields, each where it belongs in a word, if all fit into one.
struct Eight {
    placed: __m512i,
    width: u32,
}

impl Eight {
    #[inline]
    #[target_feature(enable = "avx512f,avx2")]
    fn of(fields: &[u32; 8], widths: &[u8; 8]) -> Self {
        let widths = u64::from_le_bytes(*widths);
        // Sums of the widths before each, at most 7 * 32.
        let before = widths.wrapping_mul(0x0101_0101_0101_0101) << 8;
        let wide = _mm512_cvtepu32_epi64(load_half(fields));
        let places = _mm512_cvtepu8_epi64(_mm_cvtsi64_si128(before as i64));
        Eight { placed: _mm512_sllv_epi64(wide, places), width: ((before >> 56) + (widths >> 56)) as u32 }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn value(&self) -> u64 {
        _mm512_reduce_or_epi64(self.placed) as u64
    }
}

/// The words that start at these bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn take(bytes: __m512i, starts: __m512i) -> __m512i {
    // The first byte of each word eight times, and which of the eight it is.
    let first = _mm512_set4_epi32(0x0808_0808, 0x0808_0808, 0, 0);
    let nth = _mm512_set1_epi64(0x0706_0504_0302_0100);
    let places = _mm512_shuffle_epi8(_mm512_srli_epi64::<3>(starts), first);
    let words = _mm512_permutexvar_epi8(_mm512_add_epi8(places, nth), bytes);
    _mm512_srlv_epi64(words, _mm512_and_si512(starts, _mm512_set1_epi64(7)))
}
