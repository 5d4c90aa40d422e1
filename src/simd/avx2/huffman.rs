//! Huffman codes of at most 7 bits over at most 16 symbols, eight to a 64-bit word.

use super::Avx2;
use super::lanes::{load_bytes, store_words};
use crate::kernels::{Pending, ShortCode};
use crate::simd::append::append;
use std::arch::x86_64::*;

/// Symbols that are worked on together.
pub const SYMBOLS: usize = 32;

impl Avx2 {
    /// Writes the codes of whole groups of [`SYMBOLS`] symbols (each below 16) to `out`, and tells how many bytes. `out` has at
    /// least [`SYMBOLS`] bytes for each group, and 8 more. What does not fill a byte is left in `pending`.
    pub fn encode_short(self, symbols: &[u8], code: &ShortCode, pending: &mut Pending, out: &mut [u8]) -> usize {
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe { encode_short(symbols, code, pending, out) }
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2")]
fn encode_short(symbols: &[u8], code: &ShortCode, pending: &mut Pending, out: &mut [u8]) -> usize {
    let tables = Tables::new(code);
    let (groups, _) = symbols.as_chunks::<SYMBOLS>();
    assert!(out.len() >= groups.len() * SYMBOLS + 8);
    assert!(pending.count < 8);
    let (mut waiting, mut at) = (*pending, 0usize);
    for group in groups {
        let (words, lengths) = tables.octets(load_bytes(group));
        for k in 0..4 {
            // SAFETY: a word advances `at` by at most 7 bytes, so that before the last of n words at + 8 <= 7 (n - 1) + 8, and
            // `out` has 8 n + 8 bytes, as asserted.
            at += unsafe { append(&mut waiting, words[k], lengths[k], out.as_mut_ptr().add(at)) };
        }
    }
    *pending = waiting;
    at
}

struct Tables {
    words: __m256i,
    lengths: __m256i,
    powers: __m256i,
}

impl Tables {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(code: &ShortCode) -> Self {
        let twice = |of: &dyn Fn(usize) -> u8| load_bytes(&std::array::from_fn(|i| of(i % 16)));
        Tables {
            words: twice(&|i| code.words[i] & 0x7f),
            lengths: twice(&|i| code.lengths[i] & 7),
            powers: twice(&|i| 1 << (code.lengths[i] & 7)),
        }
    }

    /// The codes of eight symbols a word, and their lengths: at most 56 bits.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn octets(&self, symbols: __m256i) -> ([u64; 4], [u64; 4]) {
        let words = _mm256_shuffle_epi8(self.words, symbols);
        let lengths = _mm256_shuffle_epi8(self.lengths, symbols);
        let powers = _mm256_shuffle_epi8(self.powers, symbols);
        // Two codes in 16 bits: first + second * 2^(length of the first).
        let factors = _mm256_or_si256(_mm256_slli_epi16::<8>(powers), _mm256_set1_epi16(1));
        let pairs = _mm256_maddubs_epi16(factors, words);
        let pair_lengths = _mm256_maddubs_epi16(lengths, _mm256_set1_epi8(1));
        // Four in 32.
        let low16 = _mm256_set1_epi32(0xffff);
        let upper = _mm256_sllv_epi32(_mm256_srli_epi32::<16>(pairs), _mm256_and_si256(pair_lengths, low16));
        let quads = _mm256_or_si256(_mm256_and_si256(pairs, low16), upper);
        let quad_lengths = _mm256_madd_epi16(pair_lengths, _mm256_set1_epi16(1));
        // Eight in 64.
        let low32 = _mm256_set1_epi64x(0xffff_ffff);
        let upper = _mm256_sllv_epi64(_mm256_srli_epi64::<32>(quads), _mm256_and_si256(quad_lengths, low32));
        let octets = _mm256_or_si256(_mm256_and_si256(quads, low32), upper);
        let octet_lengths =
            _mm256_add_epi64(_mm256_and_si256(quad_lengths, low32), _mm256_srli_epi64::<32>(quad_lengths));
        let (mut words, mut lengths) = ([0; 4], [0; 4]);
        store_words(&mut words, octets);
        store_words(&mut lengths, octet_lengths);
        (words, lengths)
    }
}
