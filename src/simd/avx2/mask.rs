//! Marks: which bytes are large; symbols apart into mask bytes and marked symbols, and together again.

use super::Avx2;
use super::lanes::load_bytes;
use crate::kernels::Found;
use crate::simd;
use std::arch::x86_64::*;

/// Symbols that are worked on together.
pub const MASKED: usize = 64;

/// By mask byte: where its marked entries are, in order.
static MARKED: [[u8; 8]; 256] = {
    let mut table = [[0; 8]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut i, mut count) = (0, 0);
        while i < 8 {
            if mask >> i & 1 == 1 {
                table[mask][count] = i as u8;
                count += 1;
            }
            i += 1;
        }
        mask += 1;
    }
    table
};

/// By mask byte: which of the marked entries each entry is, and 0x80 for those that are not marked.
static RANKS: [[u8; 8]; 256] = {
    let mut table = [[0x80; 8]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut i, mut count) = (0, 0);
        while i < 8 {
            if mask >> i & 1 == 1 {
                table[mask][i] = count;
                count += 1;
            }
            i += 1;
        }
        mask += 1;
    }
    table
};

impl Avx2 {
    /// Which of each 64 bytes are at least `least`.
    pub fn mark_from(self, blocks: &[[u8; 64]], least: u8, marks: &mut [u64]) {
        // SAFETY: `self` proves that the machine has AVX2.
        unsafe { mark_from(blocks, least, marks) }
    }

    /// The mask bytes of whole groups of [`MASKED`] symbols, and the symbols that are not 0, less one, of which it tells the
    /// number. `marked` has as many bytes as there are symbols, and 64 more.
    pub fn split_marks(self, symbols: &[u8], masks: &mut [u8], marked: &mut [u8]) -> usize {
        if let Some(avx512) = simd::avx512() {
            return avx512.split_marks(symbols, masks, marked);
        }
        // SAFETY: `self` proves that the machine has AVX2.
        unsafe { split_marks(symbols, masks, marked) }
    }

    /// Of whole groups of [`MASKED`] symbols those that are not 0, less one, and their places modulo 256. `below` and `places` have as
    /// many bytes as there are symbols, and 64 more; `found` starts anew.
    pub fn split_places(self, symbols: &[u8], below: &mut [u8], places: &mut [u8], found: &mut Found) {
        if let Some(avx512) = simd::avx512() {
            return avx512.split_places(symbols, below, places, found);
        }
        // SAFETY: `self` proves that the machine has AVX2.
        unsafe { split_places(symbols, below, places, found) }
    }

    /// How many bits are set.
    pub fn count_marks(self, masks: &[u8]) -> usize {
        // SAFETY: `self` proves that the machine has POPCNT.
        unsafe { count_marks(masks) }
    }

    /// The symbols of whole mask bytes: the next of `marked`, plus one, where there is a mark, else 0. `marked` has a byte for each
    /// mark, and 64 more. Tells how many marks there were.
    pub fn place_marked(self, masks: &[u8], marked: &[u8], symbols: &mut [u8]) -> usize {
        let Some(avx512) = simd::avx512() else {
            // SAFETY: `self` proves that the machine has AVX2.
            return unsafe { place_marked(masks, marked, symbols) };
        };
        let whole = masks.len() / 8 * 8;
        let used = avx512.place_marked(&masks[..whole], marked, symbols);
        // SAFETY: as above.
        used + unsafe { place_marked(&masks[whole..], &marked[used..], &mut symbols[8 * whole..]) }
    }
}

#[target_feature(enable = "avx2")]
fn mark_from(blocks: &[[u8; 64]], least: u8, marks: &mut [u64]) {
    let least = _mm256_set1_epi8(least as i8);
    for (marks, block) in marks.iter_mut().zip(blocks) {
        let (halves, _) = block.as_chunks::<32>();
        let found = |half: &[u8; 32]| {
            let half = load_bytes(half);
            _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(half, least), half)) as u32
        };
        *marks = u64::from(found(&halves[0])) | u64::from(found(&halves[1])) << 32;
    }
}

/// Which of 64 symbols are not 0.
#[inline]
#[target_feature(enable = "avx2")]
fn mask64(block: &[u8; 64]) -> u64 {
    let (halves, _) = block.as_chunks::<32>();
    let zero = _mm256_setzero_si256();
    let zeros = |half: &[u8; 32]| _mm256_movemask_epi8(_mm256_cmpeq_epi8(load_bytes(half), zero)) as u32;
    !(u64::from(zeros(&halves[0])) | u64::from(zeros(&halves[1])) << 32)
}

#[target_feature(enable = "avx2,popcnt")]
fn split_marks(symbols: &[u8], masks: &mut [u8], marked: &mut [u8]) -> usize {
    let (groups, _) = symbols.as_chunks::<MASKED>();
    assert!(marked.len() >= MASKED * groups.len() + 8);
    let one = _mm_set1_epi8(1);
    let mut count = 0;
    for (group, masks) in groups.iter().zip(masks.as_chunks_mut::<8>().0) {
        *masks = mask64(group).to_le_bytes();
        let (eights, _) = group.as_chunks::<8>();
        for (eight, &mask) in eights.iter().zip(masks.iter()) {
            let below = _mm_sub_epi8(load8(eight), one);
            let packed = _mm_shuffle_epi8(below, load8(&MARKED[usize::from(mask)]));
            // SAFETY: every group of 8 before this one has added at most 8 to `count`: the 8 bytes end within `marked`, as
            // asserted.
            unsafe { _mm_storel_epi64(marked.as_mut_ptr().add(count).cast(), packed) };
            count += mask.count_ones() as usize;
        }
    }
    count
}

#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1")]
fn split_places(symbols: &[u8], below: &mut [u8], places: &mut [u8], found: &mut Found) {
    let (groups, _) = symbols.as_chunks::<MASKED>();
    let room = MASKED * groups.len() + 8;
    assert!(below.len() >= room && places.len() >= room && found.count == 0);
    let (one, eight) = (_mm_set1_epi8(1), _mm_set1_epi8(8));
    for (number, group) in groups.iter().enumerate() {
        let marks = mask64(group);
        if marks == 0 {
            continue;
        }
        let mut count = found.count;
        found.add(number, marks);
        let mut start = _mm_set1_epi8((MASKED * number) as i8);
        let (eights, _) = group.as_chunks::<8>();
        for (eight_symbols, mask) in eights.iter().zip(marks.to_le_bytes()) {
            let within = load8(&MARKED[usize::from(mask)]);
            let packed = _mm_shuffle_epi8(_mm_sub_epi8(load8(eight_symbols), one), within);
            // SAFETY: every group of 8 before this one has added at most 8 to `count`: the 8 bytes end within both, as asserted.
            unsafe {
                _mm_storel_epi64(below.as_mut_ptr().add(count).cast(), packed);
                _mm_storel_epi64(places.as_mut_ptr().add(count).cast(), _mm_add_epi8(within, start));
            }
            count += mask.count_ones() as usize;
            start = _mm_add_epi8(start, eight);
        }
    }
}

#[target_feature(enable = "popcnt")]
fn count_marks(masks: &[u8]) -> usize {
    let (words, rest) = masks.as_chunks::<8>();
    let count: u32 = words.iter().map(|word| u64::from_le_bytes(*word).count_ones()).sum();
    (count + rest.iter().map(|mask| mask.count_ones()).sum::<u32>()) as usize
}

#[target_feature(enable = "avx2,popcnt")]
fn place_marked(masks: &[u8], marked: &[u8], symbols: &mut [u8]) -> usize {
    let one = _mm_set1_epi8(1);
    let last = marked.len().checked_sub(8);
    let mut next = 0;
    for (&mask, eight) in masks.iter().zip(symbols.as_chunks_mut::<8>().0) {
        assert!(last.is_some_and(|last| next <= last));
        // SAFETY: the 8 bytes from `next` on are in `marked`, as asserted.
        let units = unsafe { _mm_loadl_epi64(marked.as_ptr().add(next).cast()) };
        let placed = _mm_shuffle_epi8(_mm_add_epi8(units, one), load8(&RANKS[usize::from(mask)]));
        // SAFETY: the array has the 8 bytes that are written.
        unsafe { _mm_storel_epi64(eight.as_mut_ptr().cast(), placed) };
        next += mask.count_ones() as usize;
    }
    next
}

#[inline]
#[target_feature(enable = "avx2")]
fn load8(from: &[u8; 8]) -> __m128i {
    // SAFETY: the array has the 8 bytes that are read.
    unsafe { _mm_loadl_epi64(from.as_ptr().cast()) }
}
