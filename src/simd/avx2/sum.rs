//! The lanes of a content sum in registers.

use super::Avx2;
use super::lanes::{load_bytes, load_words, store_words};
use crate::checksum::{BLOCK, KEYS, Lanes, SCRAMBLE, STRIPE};
use crate::simd::avx512;
use std::arch::x86_64::*;

/// Lanes 0..4 and 4..8: sums of products, and sums of words, which are added to their neighbour lanes at a block's end.
pub struct SumLanes {
    products: [__m256i; 2],
    words: [__m256i; 2],
    place: usize,
}

impl SumLanes {
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn load(lanes: &Lanes) -> Self {
        let [low, high] = [0, 4].map(|at| std::array::from_fn(|k| lanes.sums[at + k]));
        let zero = _mm256_setzero_si256();
        SumLanes { products: [load_words(&low), load_words(&high)], words: [zero, zero], place: lanes.place }
    }

    /// Adds a stripe, given as its two halves.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn add(&mut self, halves: [__m256i; 2]) {
        let (keys, _) = KEYS[8 * self.place..].as_chunks::<4>();
        for k in 0..2 {
            let mixed = _mm256_xor_si256(halves[k], load_words(&keys[k]));
            let product = _mm256_mul_epu32(mixed, _mm256_srli_epi64::<32>(mixed));
            self.products[k] = _mm256_add_epi64(self.products[k], product);
            self.words[k] = _mm256_add_epi64(self.words[k], halves[k]);
        }
        self.place += 1;
        if self.place == BLOCK {
            self.scramble();
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn fold_words(&mut self) {
        for k in 0..2 {
            let neighbours = _mm256_shuffle_epi32::<0b01_00_11_10>(self.words[k]);
            self.products[k] = _mm256_add_epi64(self.products[k], neighbours);
            self.words[k] = _mm256_setzero_si256();
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn scramble(&mut self) {
        self.fold_words();
        let factor = _mm256_set1_epi64x(SCRAMBLE as i64);
        for sums in &mut self.products {
            let mixed = _mm256_xor_si256(*sums, _mm256_srli_epi64::<47>(*sums));
            let low = _mm256_mul_epu32(mixed, factor);
            let high = _mm256_mul_epu32(_mm256_srli_epi64::<32>(mixed), factor);
            *sums = _mm256_add_epi64(low, _mm256_slli_epi64::<32>(high));
        }
        self.place = 0;
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn store(mut self, lanes: &mut Lanes) {
        self.fold_words();
        for (k, at) in [0, 4].into_iter().enumerate() {
            let mut half = [0; 4];
            store_words(&mut half, self.products[k]);
            lanes.sums[at..at + 4].copy_from_slice(&half);
        }
        lanes.place = self.place;
    }
}

impl Avx2 {
    /// Adds stripes to the lanes of a content sum.
    pub fn add_stripes(self, lanes: &mut Lanes, stripes: &[[u8; STRIPE]]) {
        if let Some(avx512) = avx512() {
            return avx512.add_stripes(lanes, stripes);
        }
        // SAFETY: `self` proves that the machine has AVX2.
        unsafe { add_stripes(lanes, stripes) };
    }
}

#[target_feature(enable = "avx2")]
fn add_stripes(lanes: &mut Lanes, stripes: &[[u8; STRIPE]]) {
    let mut sums = SumLanes::load(lanes);
    for stripe in stripes {
        let (halves, _) = stripe.as_chunks::<32>();
        sums.add([load_bytes(&halves[0]), load_bytes(&halves[1])]);
    }
    sums.store(lanes);
}
