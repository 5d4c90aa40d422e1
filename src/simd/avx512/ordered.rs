//! The ordered domain without negatives, f32: integer deltas of the bits, in one pass.

use super::Avx512;
use super::lanes::{load_bytes, store_bytes, store_half};
use super::quantize::{Symbols, cell};
use super::sum::SumLanes;
use crate::checksum::Lanes;
use crate::kernels::{GROUP, OrderedTable};
use crate::simd::avx2::{leave, prefetch};
use std::arch::x86_64::*;

impl Avx512 {
    /// As `Avx2::quantize_ordered`.
    pub fn quantize_ordered(
        self,
        table: &OrderedTable,
        target: &[i32],
        base: &mut [i32],
        symbols: &mut [u8],
        sums: &mut Lanes,
        slow: impl FnMut(usize, &[i32; GROUP], &mut [i32; GROUP], &mut [u8; GROUP]),
    ) {
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe { quantize_ordered(table, target, base, symbols, sums, slow) };
    }
}

/// The bits of infinity: those of finite values from +0.0 up are below.
const INFINITY: i32 = 0x7f80_0000;

/// What an exponent field of the table has more than a bit length.
const FIELD: u8 = 126;

#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512vl,avx512vbmi,avx2")]
fn quantize_ordered(
    table: &OrderedTable,
    target: &[i32],
    base: &mut [i32],
    symbols: &mut [u8],
    lanes: &mut Lanes,
    mut slow: impl FnMut(usize, &[i32; GROUP], &mut [i32; GROUP], &mut [u8; GROUP]),
) {
    let buckets = Buckets::new(table);
    let mut sums = SumLanes::load(lanes);
    let groups = target.as_chunks::<GROUP>().0.iter().zip(base.as_chunks_mut::<GROUP>().0);
    for (number, ((target, base), symbols)) in groups.zip(symbols.as_chunks_mut::<GROUP>().0).enumerate() {
        prefetch(target);
        prefetch(base);
        let (after, before) = (load_group(target), load_group(base));
        let deltas = [0, 1].map(|k| _mm512_sub_epi32(after[k], before[k]));
        let lengths = deltas.map(|delta| bit_length(delta));
        if buckets.outside(lengths) | unusual([after[0], after[1], before[0], before[1]]) != 0 {
            leave(&mut slow, number * GROUP, target, base, symbols);
            load_group(base).into_iter().for_each(|base| sums.add(base));
            continue;
        }
        let cells = [0, 1].map(|k| cell(_mm512_max_epi32(lengths[k], buckets.least), deltas[k]));
        store_half(symbols, buckets.symbols.of(cells));
        let halves: &mut [[u8; 64]; 2] = bytemuck::cast_mut(base);
        for k in 0..2 {
            let made = buckets.add_to(before[k], cells[k]);
            store_bytes(&mut halves[k], made);
            sums.add(made);
        }
    }
    sums.store(lanes);
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_group(group: &[i32; GROUP]) -> [__m512i; 2] {
    let halves: &[[u8; 64]; 2] = bytemuck::cast_ref(group);
    [load_bytes(&halves[0]), load_bytes(&halves[1])]
}

#[inline]
#[target_feature(enable = "avx512f,avx512cd")]
fn bit_length(integer: __m512i) -> __m512i {
    _mm512_sub_epi32(_mm512_set1_epi32(32), _mm512_lzcnt_epi32(_mm512_abs_epi32(integer)))
}

/// Not 0 if an entry is negative, infinite or NaN.
#[inline]
#[target_feature(enable = "avx512f")]
fn unusual([a, b, c, d]: [__m512i; 4]) -> u16 {
    let largest = _mm512_max_epu32(_mm512_max_epu32(a, b), _mm512_max_epu32(c, d));
    _mm512_cmpge_epu32_mask(largest, _mm512_set1_epi32(INFINITY))
}

/// Finds the symbols and steps of deltas: the buckets have cells as those of values have.
struct Buckets {
    top: __m512i,
    least: __m512i,
    positive: __m512i,
    negative: __m512i,
    symbols: Symbols,
}

impl Buckets {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn new(table: &OrderedTable) -> Self {
        // Where the longest has fewer than 15 bits, the last cells are those of no length at all, and have symbol 0.
        let top = i32::from(table.top) - i32::from(FIELD);
        let symbols = table.symbols_by_cell(top as u32);
        let step = |cell: usize| table.representatives[usize::from(symbols[cell])].to_le_bytes();
        let steps = |from: usize| load_bytes(&std::array::from_fn(|i| step(from + i / 4)[i % 4]));
        Buckets {
            top: _mm512_set1_epi32(top),
            least: _mm512_set1_epi32((top - 15).max(0)),
            positive: steps(0),
            negative: steps(16),
            symbols: Symbols::new(&symbols),
        }
    }

    /// Not 0 if one is longer than the top.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn outside(&self, [first, second]: [__m512i; 2]) -> u16 {
        _mm512_cmpgt_epi32_mask(_mm512_max_epi32(first, second), self.top)
    }

    /// Usual entries, each with the step of its cell added, clamped to 0 .. the largest finite.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn add_to(&self, base: __m512i, cells: __m512i) -> __m512i {
        let sum = _mm512_add_epi32(base, _mm512_permutex2var_epi32(self.positive, cells, self.negative));
        // Steps are below 2^30 in size: a sum below 0 has its two highest bits set, and none above the largest has both.
        let not_below = _mm512_cmplt_epu32_mask(sum, _mm512_set1_epi32(0b11 << 30));
        _mm512_maskz_min_epu32(not_below, sum, _mm512_set1_epi32(INFINITY - 1))
    }
}
