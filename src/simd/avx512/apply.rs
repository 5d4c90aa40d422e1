//! Symbols -> reconstruction of f32 values, in place.

use super::Avx512;
use super::lanes::{load_f32, store_f32, widen};
use super::sum::SumLanes;
use crate::checksum::Lanes;
use crate::kernels::GROUP;
use crate::simd::avx2::prefetch;
use std::arch::x86_64::*;

impl Avx512 {
    /// As `Avx2::apply_values`.
    pub fn apply_values(self, representatives: &[f32; 16], symbols: &[u8], base: &mut [f32], sums: Option<&mut Lanes>) {
        // SAFETY: `self` proves that the machine has what is enabled.
        unsafe {
            match sums {
                Some(sums) => apply::<true>(representatives, symbols, base, sums),
                None => apply::<false>(representatives, symbols, base, &mut Lanes::default()),
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
fn apply<const SUM: bool>(representatives: &[f32; 16], symbols: &[u8], base: &mut [f32], lanes: &mut Lanes) {
    let steps = load_f32(representatives);
    let mut sums = SumLanes::load(lanes);
    for (symbols, base) in symbols.as_chunks::<GROUP>().0.iter().zip(base.as_chunks_mut::<GROUP>().0) {
        prefetch(base);
        let (symbols, _) = symbols.as_chunks::<16>();
        let (sixteens, _) = base.as_chunks_mut::<16>();
        let indices = [widen(&symbols[0]), widen(&symbols[1])];
        let marks = indices.map(|index| _mm512_test_epi32_mask(index, index));
        let mut after = [load_f32(&sixteens[0]), load_f32(&sixteens[1])];
        if marks[0] | marks[1] != 0 {
            for k in 0..2 {
                // Entries with symbol 0 keep their bits whatever they are.
                after[k] = _mm512_mask_add_ps(after[k], marks[k], after[k], _mm512_permutexvar_ps(indices[k], steps));
                store_f32(&mut sixteens[k], after[k]);
            }
        }
        if SUM {
            after.iter().for_each(|after| sums.add(_mm512_castps_si512(*after)));
        }
    }
    if SUM {
        sums.store(lanes);
    }
}
