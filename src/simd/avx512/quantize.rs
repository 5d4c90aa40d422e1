//! Delta, bucket, symbol, reconstruction and content sum of f32 values in one pass.

use super::Avx512;
use super::lanes::{load_bytes, load_f32, store_f32, store_half};
use super::sum::SumLanes;
use crate::checksum::Lanes;
use crate::kernels::{GROUP, ValueTable};
use crate::simd::avx2::{leave, prefetch};
use std::arch::x86_64::*;

impl Avx512 {
    /// As `Avx2::quantize_values`.
    pub fn quantize_values(
        self,
        table: &ValueTable,
        target: &[f32],
        base: &mut [f32],
        symbols: &mut [u8],
        sums: &mut Lanes,
        slow: impl FnMut(usize, &[f32; GROUP], &mut [f32; GROUP], &mut [u8; GROUP]),
    ) {
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe { quantize_values(table, target, base, symbols, sums, slow) };
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx2")]
fn quantize_values(
    table: &ValueTable,
    target: &[f32],
    base: &mut [f32],
    symbols: &mut [u8],
    lanes: &mut Lanes,
    mut slow: impl FnMut(usize, &[f32; GROUP], &mut [f32; GROUP], &mut [u8; GROUP]),
) {
    let buckets = Buckets::new(table);
    let mut sums = SumLanes::load(lanes);
    let groups = target.as_chunks::<GROUP>().0.iter().zip(base.as_chunks_mut::<GROUP>().0);
    for (number, ((target, base), symbols)) in groups.zip(symbols.as_chunks_mut::<GROUP>().0).enumerate() {
        prefetch(target);
        prefetch(base);
        let (targets, _) = target.as_chunks::<16>();
        let (bases, _) = base.as_chunks_mut::<16>();
        let before = [load_f32(&bases[0]), load_f32(&bases[1])];
        let deltas = [0, 1].map(|k| _mm512_castps_si512(_mm512_sub_ps(load_f32(&targets[k]), before[k])));
        let cells = deltas.map(|delta| buckets.cell(delta));
        let after = [0, 1].map(|k| _mm512_add_ps(before[k], buckets.step(cells[k])));
        if buckets.outside(deltas) | not_finite(after) != 0 {
            leave(&mut slow, number * GROUP, target, base, symbols);
            let (bases, _) = base.as_chunks::<16>();
            bases.iter().for_each(|base| sums.add(_mm512_castps_si512(load_f32(base))));
            continue;
        }
        store_half(symbols, buckets.symbols.of(cells));
        for k in 0..2 {
            store_f32(&mut bases[k], after[k]);
            sums.add(_mm512_castps_si512(after[k]));
        }
    }
    sums.store(lanes);
}

#[inline]
#[target_feature(enable = "avx512f")]
fn magnitude(bits: __m512i) -> __m512i {
    _mm512_and_si512(bits, _mm512_set1_epi32(i32::MAX))
}

/// Not 0 if an entry is infinite or NaN.
#[inline]
#[target_feature(enable = "avx512f")]
fn not_finite(values: [__m512; 2]) -> u16 {
    let [a, b] = values.map(|value| magnitude(_mm512_castps_si512(value)));
    _mm512_cmpgt_epi32_mask(_mm512_max_epi32(a, b), _mm512_set1_epi32(0x7f7f_ffff))
}

/// The cells of buckets: the low four bits of the exponent, and the sign of the delta as bit 4. Of 16 exponents from the top down no two
/// have the same, and what is smaller is taken for the last of these, which has symbol 0.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn cell(exponent: __m512i, delta: __m512i) -> __m512i {
    // Bits 0 to 3 of the exponent, the others of the delta's highest five, of which bit 4 is the sign.
    _mm512_ternarylogic_epi32::<0b1110_0100>(exponent, _mm512_srli_epi32::<27>(delta), _mm512_set1_epi32(15))
}

/// Symbols by cell.
pub struct Symbols(__m256i);

impl Symbols {
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn new(symbols: &[u8; 32]) -> Self {
        Symbols(_mm512_castsi512_si256(load_bytes(&std::array::from_fn(|i| symbols[i % 32]))))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512vbmi")]
    pub fn of(&self, [first, second]: [__m512i; 2]) -> __m256i {
        // The cells of both in bytes 0 and 2 of each 32 bits.
        let both = _mm512_or_si512(first, _mm512_slli_epi32::<16>(second));
        let order: [u8; 64] = std::array::from_fn(|i| (i % 16 * 4 + i / 16 % 2 * 2) as u8);
        let cells = _mm512_castsi512_si256(_mm512_permutexvar_epi8(load_bytes(&order), both));
        _mm256_permutexvar_epi8(cells, self.0)
    }
}

/// Finds the symbols and steps of deltas.
struct Buckets {
    /// The bits of the largest delta that is not above the top, and of the smallest that has the last exponent.
    largest: __m512i,
    least: __m512i,
    /// What is added, by cell.
    positive: __m512,
    negative: __m512,
    symbols: Symbols,
}

impl Buckets {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn new(table: &ValueTable) -> Self {
        let top = u32::from(table.top);
        let symbols = table.symbols_by_cell(top);
        let step = |cell: usize| table.representatives[usize::from(symbols[cell])];
        Buckets {
            largest: _mm512_set1_epi32(((top + 1) << 23) as i32 - 1),
            least: _mm512_set1_epi32((top.saturating_sub(15) << 23) as i32),
            positive: load_f32(&std::array::from_fn(step)),
            negative: load_f32(&std::array::from_fn(|cell| step(16 + cell))),
            symbols: Symbols::new(&symbols),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn cell(&self, delta: __m512i) -> __m512i {
        cell(_mm512_srli_epi32::<23>(_mm512_max_epi32(magnitude(delta), self.least)), delta)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn step(&self, cells: __m512i) -> __m512 {
        _mm512_permutex2var_ps(self.positive, cells, self.negative)
    }

    /// Not 0 if an exponent is above the top.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn outside(&self, [first, second]: [__m512i; 2]) -> u16 {
        _mm512_cmpgt_epi32_mask(_mm512_max_epi32(magnitude(first), magnitude(second)), self.largest)
    }
}
