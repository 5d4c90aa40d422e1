//! AVX-512 with VBMI and VBMI2 (Zen 4, Ice Lake and newer), beside all that [`Avx2`] stands for: the loops that gain most from 64
//! bytes at a time, and from taking apart and putting together under a mask. The functions of [`Avx2`] leave their work to these
//! where the machine has them.

mod apply;
mod classes;
mod huffman;
mod lanes;
mod marks;
mod mask;
mod ordered;
mod packed;
mod quantize;
mod sum;

use super::Avx2;

/// Proof that the machine has what this module uses: there is no other way to get one than [`Avx512::detect`].
#[derive(Debug, Clone, Copy)]
pub struct Avx512(());

impl Avx512 {
    #[inline]
    pub fn detect() -> Option<Self> {
        let all = Avx2::detect().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512cd")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2");
        all.then_some(Avx512(()))
    }
}
