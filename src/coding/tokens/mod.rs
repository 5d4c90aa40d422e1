//! Token coding: one codeword for a symbol and the zeros before it.

mod decode;
mod encode;

pub use decode::{MOST_PLACES, Meanings, RunFields, apart, decode, read};
pub use encode::encode;

/// A run of zeros as its class, and its low bits with their width (0 for a class below 2^rho).
#[inline(always)]
pub fn split_run(run: u32, rho: u32) -> (u32, u64, u32) {
    // Without branches: near the boundary they would be guessed wrong half of the time.
    let long = u32::from(run >> rho != 0);
    let octave = 31 - (run | 1).leading_zeros();
    let class = if long == 1 { (1 << rho) + octave - rho } else { run };
    let width = octave * long;
    (class, u64::from(run & ((1 << width) - 1)), width)
}

/// The least run of a class, and the width of its low bits.
#[inline(always)]
pub fn class_run(class: u32, rho: u32) -> (u32, u32) {
    if class >> rho == 0 {
        return (class, 0);
    }
    let octave = class - (1 << rho) + rho;
    (1 << octave, octave)
}

/// Classes that runs below `elements` need.
pub fn classes(elements: u32, rho: u32) -> u32 {
    if elements == 0 { 0 } else { split_run(elements - 1, rho).0 + 1 }
}

/// Calls `token` with each symbol that is not 0 and the zeros before it.
#[cfg(test)]
pub fn for_each_token(symbols: &[u8], mut token: impl FnMut(u32, u8)) {
    let mut run = 0;
    for &symbol in symbols {
        if symbol > 0 {
            token(run, symbol);
        }
        run = if symbol > 0 { 0 } else { run + 1 };
    }
}

/// Which of 8 symbols (below 128) are not 0.
#[inline(always)]
pub fn mask8(eight: [u8; 8]) -> u8 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let marks = (u64::from_le_bytes(eight) + LOW) >> 7 & 0x0101_0101_0101_0101;
    // Bit 0 of byte i to bit 56 + i of the product.
    (marks.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}
