//! AVX2, with BMI1, BMI2 (but not pdep and pext, which are slow on many machines), LZCNT and POPCNT. Some functions leave their
//! work to AVX-512 where the machine has that too.

mod apply;
mod classes;
mod codes;
mod huffman;
mod lanes;
mod mask;
mod ordered;
mod packed;
mod quantize;
mod sum;

pub use classes::FIELD_BYTES;
pub use huffman::SYMBOLS;
pub use lanes::prefetch;
pub use mask::MASKED;
pub use packed::pairs;
pub use quantize::leave;

/// Proof that the machine has what this module uses: there is no other way to get one than [`Avx2::detect`].
#[derive(Debug, Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    #[inline]
    pub fn detect() -> Option<Self> {
        let all = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        all.then_some(Avx2(()))
    }
}
