//! Huffman codes over bytes, eight to a 64-bit word, or four where they are long.

use super::Avx512;
use super::lanes::{load_bytes, store_words};
use crate::kernels::{ByteCode, Pending};
use crate::simd::append::{MOST_BITS, append};
use std::arch::x86_64::*;

/// Symbols that are worked on together.
const SYMBOLS: usize = 64;

/// Bytes that a group takes at most.
const GROUP_BYTES: usize = ByteCode::LONGEST as usize * SYMBOLS / 8;

impl Avx512 {
    /// As `Avx2::encode_bytes`.
    pub fn encode_bytes(
        self,
        symbols: &[u8],
        code: &ByteCode,
        pending: &mut Pending,
        out: &mut [u8],
    ) -> (usize, usize) {
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe {
            if code.symbols() <= 128 {
                encode_bytes::<false>(symbols, code, pending, out)
            } else {
                encode_bytes::<true>(symbols, code, pending, out)
            }
        }
    }
}

/// `ALL`: symbols may be above 127.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,bmi1,bmi2")]
fn encode_bytes<const ALL: bool>(
    symbols: &[u8],
    code: &ByteCode,
    pending: &mut Pending,
    out: &mut [u8],
) -> (usize, usize) {
    let (low, high) = (Table::<ALL>::new(code.low()), Table::<ALL>::new(code.high()));
    let (groups, _) = symbols.as_chunks::<SYMBOLS>();
    assert!(pending.count < 8);
    let (mut waiting, mut at, mut done) = (*pending, 0usize, 0);
    for group in groups {
        if at + GROUP_BYTES + 8 > out.len() {
            break;
        }
        let group = load_bytes(group);
        let [first, second] = quads(low.of(group), high.of(group));
        let mut put = |of: &Stored, k: usize| {
            // SAFETY: a group adds at most GROUP_BYTES to `at`, and as many and 8 more were left, as was looked at.
            at += unsafe { append(&mut waiting, of.words[k], of.lengths[k], out.as_mut_ptr().add(at)) };
        };
        // Each 16 bytes of symbols are two fours of the first, then two of the second.
        if let (Some(first), Some(second)) = (first.eights(), second.eights()) {
            for k in (0..8).step_by(2) {
                put(&first, k);
                put(&second, k);
            }
        } else {
            let (first, second) = (first.stored(), second.stored());
            for k in (0..8).step_by(2) {
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

/// Words of codes, and their lengths.
struct Stored {
    words: [u64; 8],
    lengths: [u64; 8],
}

/// Eight words of four codes each.
struct Quads {
    words: __m512i,
    lengths: __m512i,
}

impl Quads {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn stored(self) -> Stored {
        let mut stored = Stored { words: [0; 8], lengths: [0; 8] };
        store_words(&mut stored.words, self.words);
        store_words(&mut stored.lengths, self.lengths);
        stored
    }

    /// Two and two together, in words 0, 2 ..; `None` where one would have too many bits.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn eights(&self) -> Option<Stored> {
        // The second of each two, where the first was.
        let next = |of| _mm512_shuffle_epi32::<0b11_10_11_10>(of);
        let lengths = _mm512_add_epi64(self.lengths, next(self.lengths));
        if _mm512_mask_cmpgt_epi64_mask(0b0101_0101, lengths, _mm512_set1_epi64(MOST_BITS as i64)) != 0 {
            return None;
        }
        let words = _mm512_or_si512(self.words, _mm512_sllv_epi64(next(self.words), self.lengths));
        Some(Quads { words, lengths }.stored())
    }
}

/// The codes of 64 symbols from the bytes of [`ByteCode`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn quads(low: __m512i, high: __m512i) -> [Quads; 2] {
    let lengths = _mm512_and_si512(_mm512_srli_epi16::<3>(high), _mm512_set1_epi8(15));
    let upper = _mm512_and_si512(high, _mm512_set1_epi8(7));
    let none = _mm512_setzero_si512();
    [
        merge(_mm512_unpacklo_epi8(low, upper), _mm512_unpacklo_epi8(lengths, none)),
        merge(_mm512_unpackhi_epi8(low, upper), _mm512_unpackhi_epi8(lengths, none)),
    ]
}

/// 32 codes of 16 bits, and their lengths.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn merge(codes: __m512i, lengths: __m512i) -> Quads {
    let low16 = _mm512_set1_epi32(0xffff);
    let odd = _mm512_sllv_epi32(_mm512_srli_epi32::<16>(codes), _mm512_and_si512(lengths, low16));
    let pairs = _mm512_or_si512(_mm512_and_si512(codes, low16), odd);
    let pair_lengths = _mm512_madd_epi16(lengths, _mm512_set1_epi16(1));
    let low32 = _mm512_set1_epi64(0xffff_ffff);
    let first = _mm512_and_si512(pair_lengths, low32);
    let odd = _mm512_sllv_epi64(_mm512_srli_epi64::<32>(pairs), first);
    let fours = _mm512_or_si512(_mm512_and_si512(pairs, low32), odd);
    let four_lengths = _mm512_add_epi64(first, _mm512_srli_epi64::<32>(pair_lengths));
    Quads { words: fours, lengths: four_lengths }
}

/// 256 bytes in registers, or 128.
struct Table<const ALL: bool>([__m512i; 4]);

impl<const ALL: bool> Table<ALL> {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(bytes: &[u8; 256]) -> Self {
        let (quarters, _) = bytes.as_chunks::<64>();
        Table([0, 1, 2, 3].map(|k| load_bytes(&quarters[k])))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn of(&self, index: __m512i) -> __m512i {
        let lower = _mm512_permutex2var_epi8(self.0[0], index, self.0[1]);
        if !ALL {
            return lower;
        }
        let upper = _mm512_permutex2var_epi8(self.0[2], index, self.0[3]);
        _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), lower, upper)
    }
}
