//! Raw fields into and out of a stream of bits, eight at a time.

use super::Avx512;
use super::lanes::{load_bytes, load_half, load_sixteen, store_half};
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

    /// The same where most are long.
    pub fn pack_long(self, fields: &[u32], widths: &[u8], out: &mut [u8]) -> Packed {
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe { pack_long(fields, widths, out) }
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

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,avx2,bmi1,bmi2")]
fn pack_long(fields: &[u32], widths: &[u8], out: &mut [u8]) -> Packed {
    pack_groups(fields, widths, out, |packed, fields, widths, out| {
        let placed = PlacedPairs::of(fields, widths, packed.count);
        // SAFETY: as `pack_groups` has it: `GROUP_BYTES` are more than a vector.
        unsafe {
            if placed.fit() {
                placed.put(packed, out);
            } else {
                packed.put_group(fields, widths, &pairs(fields, widths), false, out);
            }
        }
    })
}

/// Pairs of fields in words of their own, each moved up to where it starts in its first byte. Each owns the whole bytes from there to
/// where the next one starts; what is beyond goes into the first byte of the next one.
struct PlacedPairs {
    words: __m512i,
    /// Bits of each.
    widths: __m128i,
    /// Bytes that each owns.
    own: __m128i,
    /// Of all, from the group's first byte on.
    bits: u32,
}

impl PlacedPairs {
    /// `count`: how many bits wait for these.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
    fn of(fields: &[u32; GROUP], widths: &[u8; GROUP], count: u32) -> Self {
        let single = load_sixteen(widths);
        let first = _mm512_cvtepu16_epi64(_mm_and_si128(single, _mm_set1_epi16(0xff)));
        let fields = load_bytes(bytemuck::cast_ref(fields));
        let low = _mm512_and_si512(fields, _mm512_set1_epi64(0xffff_ffff));
        let pairs = _mm512_or_si512(low, _mm512_sllv_epi64(_mm512_srli_epi64::<32>(fields), first));
        let widths = _mm_maddubs_epi16(single, _mm_set1_epi8(1));
        // Sums of these and of all before.
        let sums = _mm_add_epi16(widths, _mm_slli_si128::<2>(widths));
        let sums = _mm_add_epi16(sums, _mm_slli_si128::<4>(sums));
        let sums = _mm_add_epi16(sums, _mm_slli_si128::<8>(sums));
        let ends = _mm_add_epi16(sums, _mm_set1_epi16(count as i16));
        let starts = _mm_sub_epi16(ends, widths);
        let own = _mm_sub_epi16(_mm_srli_epi16::<3>(ends), _mm_srli_epi16::<3>(starts));
        let moves = _mm512_cvtepu16_epi64(_mm_and_si128(starts, _mm_set1_epi16(7)));
        let bits = _mm_extract_epi16::<7>(sums) as u32 + count;
        PlacedPairs { words: _mm512_sllv_epi64(pairs, moves), widths, own, bits }
    }

    /// Whether each fits into its word and owns a byte: what goes into the next one's is its own alone then.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn fit(&self) -> bool {
        let too_long = _mm_cmpgt_epu16_mask(self.widths, _mm_set1_epi16(57));
        too_long | _mm_testn_epi16_mask(self.own, self.own) == 0
    }

    /// Writes all, if they fit.
    ///
    /// # Safety
    /// `out` is valid for writes from where `packed` is for 64 bytes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2")]
    unsafe fn put(&self, packed: &mut Packed, out: *mut u8) {
        let own = _mm512_cvtepu16_epi64(self.own);
        let beyond = _mm512_srlv_epi64(self.words, _mm512_slli_epi64::<3>(own));
        let waiting = _mm512_alignr_epi64::<7>(beyond, _mm512_set1_epi64(packed.bits as i64));
        let words = _mm512_or_si512(self.words, waiting);
        let first = _mm512_set4_epi32(0x0808_0808, 0x0808_0808, 0, 0);
        let nth = _mm512_set1_epi64(0x0706_0504_0302_0100);
        let owned = _mm512_cmplt_epu8_mask(nth, _mm512_shuffle_epi8(own, first));
        let bytes = _mm512_maskz_compress_epi8(owned, words);
        // SAFETY: the caller's.
        unsafe { _mm512_storeu_si512(out.add(packed.bytes).cast(), bytes) };
        packed.bits = _mm256_extract_epi64::<3>(_mm512_extracti64x4_epi64::<1>(beyond)) as u64;
        packed.bytes += (self.bits >> 3) as usize;
        packed.count = self.bits & 7;
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
