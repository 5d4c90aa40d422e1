//! The lanes of a content sum in registers: a stripe is one vector.

use super::Avx512;
use super::lanes::{load_bytes, load_words, store_words};
use crate::checksum::{BLOCK, KEYS, Lanes, SCRAMBLE, STRIPE};
use std::arch::x86_64::*;

/// Sums of products, and sums of words, which are added to their neighbour lanes at a block's end.
pub struct SumLanes {
    products: __m512i,
    words: __m512i,
    place: usize,
}

impl SumLanes {
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn load(lanes: &Lanes) -> Self {
        SumLanes { products: load_words(&lanes.sums), words: _mm512_setzero_si512(), place: lanes.place }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn add(&mut self, stripe: __m512i) {
        let (keys, _) = KEYS.as_chunks::<8>();
        let mixed = _mm512_xor_si512(stripe, load_words(&keys[self.place]));
        let product = _mm512_mul_epu32(mixed, _mm512_srli_epi64::<32>(mixed));
        self.products = _mm512_add_epi64(self.products, product);
        self.words = _mm512_add_epi64(self.words, stripe);
        self.place += 1;
        if self.place == BLOCK {
            self.scramble();
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn fold_words(&mut self) {
        let neighbours = _mm512_shuffle_epi32::<0b01_00_11_10>(self.words);
        self.products = _mm512_add_epi64(self.products, neighbours);
        self.words = _mm512_setzero_si512();
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn scramble(&mut self) {
        self.fold_words();
        let factor = _mm512_set1_epi64(SCRAMBLE as i64);
        let mixed = _mm512_xor_si512(self.products, _mm512_srli_epi64::<47>(self.products));
        let low = _mm512_mul_epu32(mixed, factor);
        let high = _mm512_mul_epu32(_mm512_srli_epi64::<32>(mixed), factor);
        self.products = _mm512_add_epi64(low, _mm512_slli_epi64::<32>(high));
        self.place = 0;
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn store(mut self, lanes: &mut Lanes) {
        self.fold_words();
        store_words(&mut lanes.sums, self.products);
        lanes.place = self.place;
    }
}

impl Avx512 {
    /// As `Avx2::add_stripes`.
    pub fn add_stripes(self, lanes: &mut Lanes, stripes: &[[u8; STRIPE]]) {
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe { add_stripes(lanes, stripes) };
    }
}

#[target_feature(enable = "avx512f,avx2")]
fn add_stripes(lanes: &mut Lanes, stripes: &[[u8; STRIPE]]) {
    let mut sums = SumLanes::load(lanes);
    for stripe in stripes {
        sums.add(load_bytes(stripe));
    }
    sums.store(lanes);
}
