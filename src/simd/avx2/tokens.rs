//! Tokens: which symbols are not 0, by vector comparison.

use super::Avx2;
use super::lanes::load_bytes;
use crate::coding::Fields;
use crate::coding::tokens::token_units;
use std::arch::x86_64::*;

impl Avx2 {
    /// As [`token_units`].
    pub fn token_units(self, symbols: &[u8], shape: (u32, u8), units: &mut [u8], runs: &mut Fields) -> usize {
        // SAFETY: `self` proves that the machine has AVX2 and BMI1.
        unsafe { units_avx2(symbols, shape, units, runs) }
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn units_avx2(symbols: &[u8], shape: (u32, u8), units: &mut [u8], runs: &mut Fields) -> usize {
    token_units(symbols, shape, |block| mask64(block), units, runs)
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
