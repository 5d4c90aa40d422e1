//! Vector code for x86-64, chosen at run time, and the only `unsafe` beside the float environment.
//!
//! Every function here has a portable twin that does the same, and property tests hold the two together. A function
//! returns how much it has done; the twin does the rest. `CKPTZ_SIMD=portable` leaves all to the twins.

#[cfg(target_arch = "x86_64")]
mod avx2;
pub mod streams;

#[cfg(target_arch = "x86_64")]
pub use avx2::{Avx2, FIELD_BYTES, MASKED, SYMBOLS};

/// Stands where there is no AVX2: there is none of these.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Debug, Clone, Copy)]
pub enum Avx2 {}

/// Whether the user wants the portable twins alone.
#[cfg(target_arch = "x86_64")]
fn portable_only() -> bool {
    use std::sync::OnceLock;
    static ASKED: OnceLock<bool> = OnceLock::new();
    *ASKED.get_or_init(|| std::env::var("CKPTZ_SIMD").is_ok_and(|asked| asked == "portable"))
}

/// The functions of this machine, if it has AVX2 and the user allows it.
#[inline]
pub fn avx2() -> Option<Avx2> {
    #[cfg(target_arch = "x86_64")]
    return if portable_only() { None } else { Avx2::detect() };
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// Runs a plain loop in a copy that is compiled for wider vectors, where the machine has them: the same operations in the same
/// order of each lane, and so the same results. Give it closures whose whole work is inlined.
#[inline(always)]
pub fn wide<R>(work: impl FnOnce() -> R) -> R {
    match avx2() {
        #[cfg(target_arch = "x86_64")]
        Some(avx2) => avx2.wide(work),
        _ => work(),
    }
}
