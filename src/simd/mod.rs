//! Vector code for x86-64, chosen at run time, and the only `unsafe` beside the float environment.
//!
//! Every function here has a portable twin that does the same, and property tests hold the two together. A function
//! returns how much it has done; the twin does the rest. `CKPTZ_SIMD=portable` leaves all to the twins, `CKPTZ_SIMD=avx2` nothing to
//! AVX-512.

pub mod ahead;
#[cfg(target_arch = "x86_64")]
mod append;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod marks;
pub mod packed;
pub mod places;
pub mod streams;

#[cfg(target_arch = "x86_64")]
pub use avx2::{Avx2, FIELD_BYTES, MASKED, SYMBOLS};
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;

/// Stands where there is no AVX2: there is none of these.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Debug, Clone, Copy)]
pub enum Avx2 {}

/// Bytes that loops which take symbols apart and put them together may touch past the last.
pub const SLACK: usize = 64;

/// What the user allows.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Allowed {
    All,
    Avx2,
    Portable,
}

#[cfg(target_arch = "x86_64")]
fn allowed() -> Allowed {
    use std::sync::OnceLock;
    static ASKED: OnceLock<Allowed> = OnceLock::new();
    *ASKED.get_or_init(|| match std::env::var("CKPTZ_SIMD").as_deref() {
        Ok("portable") => Allowed::Portable,
        Ok("avx2") => Allowed::Avx2,
        _ => Allowed::All,
    })
}

/// The functions of this machine, if it has AVX2 and the user allows it.
#[inline]
pub fn avx2() -> Option<Avx2> {
    #[cfg(target_arch = "x86_64")]
    return if allowed() == Allowed::Portable { None } else { Avx2::detect() };
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// The same of AVX-512.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn avx512() -> Option<Avx512> {
    if allowed() == Allowed::All { Avx512::detect() } else { None }
}

/// Whether there is an encoder of codes over bytes.
pub fn encodes_bytes() -> bool {
    avx2().is_some()
}

/// Makes a function whose body is compiled again for AVX2 and for AVX-512, for machines that have it: the same operations in the same
/// order, and so the same results. The body is plain code that the compiler makes vector code of. Type parameters stand in
/// brackets: `wide! { fn sum[E: Element](of: &[E]) -> f64 { .. } }`.
macro_rules! wide {
    ($(#[$meta:meta])* $visible:vis fn $name:ident[$($types:tt)*]($($argument:ident: $type:ty),* $(,)?) -> $result:ty $body:block) => {
        $(#[$meta])*
        $visible fn $name<$($types)*>($($argument: $type),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
                fn wider<$($types)*>($($argument: $type),*) -> $result $body
                if $crate::simd::avx512().is_some() {
                    // SAFETY: an `Avx512` proves that the machine has what is enabled.
                    return unsafe { wider($($argument),*) };
                }
            }
            $crate::simd::bits! { fn narrower[$($types)*]($($argument: $type),*) -> $result $body }
            narrower($($argument),*)
        }
    };
}
pub(crate) use wide;

/// The same, compiled once again, for AVX2 and what came with it: for loops over bits and tables, of which the compiler makes worse
/// code where it thinks of gathering and scattering.
macro_rules! bits {
    ($(#[$meta:meta])* $visible:vis fn $name:ident[$($types:tt)*]($($argument:ident: $type:ty),* $(,)?) -> $result:ty $body:block) => {
        $(#[$meta])*
        $visible fn $name<$($types)*>($($argument: $type),*) -> $result {
            #[inline(always)]
            fn plain<$($types)*>($($argument: $type),*) -> $result $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
                fn vector<$($types)*>($($argument: $type),*) -> $result {
                    plain($($argument),*)
                }
                if $crate::simd::avx2().is_some() {
                    // SAFETY: an `Avx2` proves that the machine has what is enabled.
                    return unsafe { vector($($argument),*) };
                }
            }
            plain($($argument),*)
        }
    };
}
pub(crate) use bits;

wide! {
    /// The highest of these symbols or widths; of none, 0.
    pub fn highest_of[](of: &[u8]) -> u8 {
        of.iter().fold(0, |highest, &next| highest.max(next))
    }
}
