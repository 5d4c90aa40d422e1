//! Token coding: one codeword for a symbol and the zeros before it.

mod decode;
mod encode;

pub use decode::{Meanings, decode};
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
#[inline(always)]
pub fn for_each_token(symbols: &[u8], mut token: impl FnMut(u32, u8)) {
    let mut after = 0;
    let (blocks, rest) = symbols.as_chunks::<64>();
    for (number, block) in blocks.iter().enumerate() {
        let mut marks = mask64(block);
        while marks != 0 {
            let i = marks.trailing_zeros() as usize;
            let at = 64 * number + i;
            token((at - after) as u32, block[i % 64]);
            after = at + 1;
            marks &= marks - 1;
        }
    }
    for (i, &symbol) in rest.iter().enumerate().filter(|(_, symbol)| **symbol != 0) {
        let at = 64 * blocks.len() + i;
        token((at - after) as u32, symbol);
        after = at + 1;
    }
}

/// Which of 64 symbols are not 0.
#[inline(always)]
fn mask64(block: &[u8; 64]) -> u64 {
    let (eights, _) = block.as_chunks::<8>();
    eights.iter().rev().fold(0, |mask, eight| mask << 8 | u64::from(mask8(*eight)))
}

/// Which of 8 symbols (below 128) are not 0.
#[inline(always)]
pub fn mask8(eight: [u8; 8]) -> u8 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let marks = (u64::from_le_bytes(eight) + LOW) >> 7 & 0x0101_0101_0101_0101;
    // Bit 0 of byte i to bit 56 + i of the product.
    (marks.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}
