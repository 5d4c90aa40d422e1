//! Huffman codes over bytes, eight to a 64-bit word, or four where they are long.

use super::Avx2;
use super::lanes::{load_bytes, store_words};
use crate::kernels::{ByteCode, Pending};
use crate::simd;
use crate::simd::append::{MOST_BITS, append};
use std::arch::x86_64::*;

/// Symbols that are worked on together.
const SYMBOLS: usize = 32;

/// Bytes that a group takes at most.
const GROUP_BYTES: usize = ByteCode::LONGEST as usize * SYMBOLS / 8;

impl Avx2 {
    /// Writes the codes of as many whole groups of symbols as there is room for to `out`; tells how many symbols and bytes. What does
    /// not fill a byte is left in `pending`.
    pub fn encode_bytes(
        self,
        symbols: &[u8],
        code: &ByteCode,
        pending: &mut Pending,
        out: &mut [u8],
    ) -> (usize, usize) {
        if let Some(avx512) = simd::avx512() {
            return avx512.encode_bytes(symbols, code, pending, out);
        }
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe { encode_bytes(symbols, code, pending, out) }
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2")]
fn encode_bytes(symbols: &[u8], code: &ByteCode, pending: &mut Pending, out: &mut [u8]) -> (usize, usize) {
    let rows = Rows::new(code);
    let (groups, _) = symbols.as_chunks::<SYMBOLS>();
    assert!(pending.count < 8);
    let (mut waiting, mut at, mut done) = (*pending, 0usize, 0);
    for group in groups {
        if at + GROUP_BYTES + 8 > out.len() {
            break;
        }
        let (low, high) = rows.of(load_bytes(group));
        let [first, second] = quads(low, high);
        let mut put = |of: &Stored, k: usize| {
            // SAFETY: a group adds at most GROUP_BYTES to `at`, and as many and 8 more were left, as was looked at.
            at += unsafe { append(&mut waiting, of.words[k], of.lengths[k], out.as_mut_ptr().add(at)) };
        };
        // Each 16 bytes of symbols are two fours of the first, then two of the second.
        if let (Some(first), Some(second)) = (first.eights(), second.eights()) {
            for k in [0, 2] {
                put(&first, k);
                put(&second, k);
            }
        } else {
            let (first, second) = (first.stored(), second.stored());
            for k in [0, 2] {
                for of in [&first, &second] {
                    put(of, k);
                    put(of, k + 1);
                }
            }
        }
        done += SYMBOLS;
    }
    *pending = waiting;
    (done, at)
}

/// The bytes of a [`ByteCode`] in rows of sixteen, each twice.
struct Rows {
    low: [__m256i; 16],
    high: [__m256i; 16],
    used: usize,
}

impl Rows {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(code: &ByteCode) -> Self {
        let row = |bytes: &[u8; 256], r: usize| load_bytes(&std::array::from_fn(|i| bytes[16 * r + i % 16]));
        let mut rows = Rows {
            low: [_mm256_setzero_si256(); 16],
            high: [_mm256_setzero_si256(); 16],
            used: code.symbols().div_ceil(16).min(16),
        };
        for r in 0..rows.used {
            (rows.low[r], rows.high[r]) = (row(code.low(), r), row(code.high(), r));
        }
        rows
    }

    /// The bytes of 32 symbols; 0 of a symbol past the rows.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn of(&self, symbols: __m256i) -> (__m256i, __m256i) {
        let (mut low, mut high) = (_mm256_setzero_si256(), _mm256_setzero_si256());
        for r in 0..self.used {
            // Below 16 where the row is meant. Otherwise 112 more sets bit 7, for which a shuffle gives 0.
            let within = _mm256_xor_si256(symbols, _mm256_set1_epi8((r << 4) as i8));
            let index = _mm256_adds_epu8(within, _mm256_set1_epi8(112));
            low = _mm256_or_si256(low, _mm256_shuffle_epi8(self.low[r], index));
            high = _mm256_or_si256(high, _mm256_shuffle_epi8(self.high[r], index));
        }
        (low, high)
    }
}

/// Words of codes, and their lengths.
struct Stored {
    words: [u64; 4],
    lengths: [u64; 4],
}

/// Four words of four codes each.
struct Quads {
    words: __m256i,
    lengths: __m256i,
}

impl Quads {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn stored(self) -> Stored {
        let mut stored = Stored { words: [0; 4], lengths: [0; 4] };
        store_words(&mut stored.words, self.words);
        store_words(&mut stored.lengths, self.lengths);
        stored
    }

    /// Two and two together, in words 0 and 2; `None` where one would have too many bits.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn eights(&self) -> Option<Stored> {
        // The second of each two, where the first was.
        let next = |of| _mm256_shuffle_epi32::<0b11_10_11_10>(of);
        let lengths = _mm256_add_epi64(self.lengths, next(self.lengths));
        let long = _mm256_cmpgt_epi64(lengths, _mm256_set1_epi64x(MOST_BITS as i64));
        if _mm256_movemask_pd(_mm256_castsi256_pd(long)) & 0b0101 != 0 {
            return None;
        }
        let words = _mm256_or_si256(self.words, _mm256_sllv_epi64(next(self.words), self.lengths));
        Some(Quads { words, lengths }.stored())
    }
}

/// The codes of 32 symbols from the bytes of [`ByteCode`].
#[inline]
#[target_feature(enable = "avx2")]
fn quads(low: __m256i, high: __m256i) -> [Quads; 2] {
    let lengths = _mm256_and_si256(_mm256_srli_epi16::<3>(high), _mm256_set1_epi8(15));
    let upper = _mm256_and_si256(high, _mm256_set1_epi8(7));
    let none = _mm256_setzero_si256();
    [
        merge(_mm256_unpacklo_epi8(low, upper), _mm256_unpacklo_epi8(lengths, none)),
        merge(_mm256_unpackhi_epi8(low, upper), _mm256_unpackhi_epi8(lengths, none)),
    ]
}

/// 16 codes of 16 bits, and their lengths.
#[inline]
#[target_feature(enable = "avx2")]
fn merge(codes: __m256i, lengths: __m256i) -> Quads {
    let low16 = _mm256_set1_epi32(0xffff);
    let odd = _mm256_sllv_epi32(_mm256_srli_epi32::<16>(codes), _mm256_and_si256(lengths, low16));
    let pairs = _mm256_or_si256(_mm256_and_si256(codes, low16), odd);
    let pair_lengths = _mm256_madd_epi16(lengths, _mm256_set1_epi16(1));
    let low32 = _mm256_set1_epi64x(0xffff_ffff);
    let first = _mm256_and_si256(pair_lengths, low32);
    let odd = _mm256_sllv_epi64(_mm256_srli_epi64::<32>(pairs), first);
    let words = _mm256_or_si256(_mm256_and_si256(pairs, low32), odd);
    Quads { words, lengths: _mm256_add_epi64(first, _mm256_srli_epi64::<32>(pair_lengths)) }
}
