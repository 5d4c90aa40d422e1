//! Token coding: one codeword for a symbol and the zeros before it.

use super::{FieldReader, Fields, Scratch, Tokens};
use crate::error::Parsed;
use crate::huffman::{Decoder, decode_group, encode_group};
use crate::simd;
use crate::wire::{Reader, put_varint};

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

/// Calls `token` with each symbol that is not 0 and the zeros before it. `mask` tells which of 64 symbols are not 0.
#[inline(always)]
pub fn for_each_token(symbols: &[u8], mask: impl Fn(&[u8; 64]) -> u64, mut token: impl FnMut(u32, u8)) {
    let mut after = 0;
    let (blocks, rest) = symbols.as_chunks::<64>();
    for (number, block) in blocks.iter().enumerate() {
        let mut marks = mask(block);
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
pub fn mask64(block: &[u8; 64]) -> u64 {
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

pub fn encode(symbols: &[u8], tokens: &Tokens, scratch: &mut Scratch, out: &mut Vec<u8>) {
    let Scratch { units, streams, runs, .. } = scratch;
    runs.restart(symbols.len() + 1);
    if units.len() < symbols.len() {
        units.resize(symbols.len(), 0);
    }
    let shape = (tokens.rho, tokens.highest);
    let count = match simd::avx2() {
        #[cfg(target_arch = "x86_64")]
        Some(avx2) => token_units(symbols, shape, |block| avx2.mask64(block), units, runs),
        _ => token_units(symbols, shape, mask64, units, runs),
    };
    put_varint(out, count as u64);
    encode_group(&units[..count], &tokens.code, streams, out);
    runs.write(out);
}

/// Writes the token of each symbol to `units` (at least as long as `symbols`), the run fields to `runs`, and tells how many
/// tokens there are. `shape`: rho and K.
#[inline(always)]
pub fn token_units(
    symbols: &[u8],
    (rho, highest): (u32, u8),
    mask: impl Fn(&[u8; 64]) -> u64,
    units: &mut [u8],
    runs: &mut Fields,
) -> usize {
    let units = &mut units[..symbols.len()];
    let mut count = 0;
    for_each_token(symbols, mask, |run, symbol| {
        let (class, low, width) = split_run(run, rho);
        runs.push_if(class >> rho != 0, low, width);
        units[count] = (class as u8).wrapping_mul(highest).wrapping_add(symbol).wrapping_sub(1);
        count += 1;
    });
    count
}

/// What each token stands for.
pub struct Meanings(Box<[Meaning; 256]>);

#[derive(Clone, Copy, Default)]
struct Meaning {
    /// The least run of its class.
    run: u32,
    /// Bits of its run field.
    width: u8,
    /// 1 if it has a run field (which may have no bits), else 0.
    fields: u8,
    symbol: u8,
}

impl Meanings {
    pub fn new(tokens: &Tokens) -> Self {
        let highest = u32::from(tokens.highest).max(1);
        let of_unit = |unit: usize| {
            let class = unit as u32 / highest;
            // Classes past the last that a chunk can have have no codeword.
            let (run, width) = if class < 32 { class_run(class, tokens.rho) } else { (0, 0) };
            let fields = u8::from(class >> tokens.rho != 0);
            Meaning { run, width: width as u8, fields, symbol: (unit as u32 % highest) as u8 + 1 }
        };
        Meanings(Box::new(std::array::from_fn(of_unit)))
    }
}

/// Reads the symbols of a chunk.
pub fn decode(
    input: &mut Reader<'_>,
    decoder: &Decoder,
    meanings: &Meanings,
    symbols: &mut [u8],
    scratch: &mut Scratch,
) -> Parsed<()> {
    let count = input.count()?;
    if count > symbols.len() {
        return Err(input.flaw("more tokens than elements"));
    }
    let units = &mut scratch.units;
    if units.len() < count {
        units.resize(count, 0);
    }
    let units = &mut units[..count];
    decode_group(input, decoder, units)?;
    let meaning = |unit: u8| meanings.0[usize::from(unit)];
    let fields = units.iter().map(|&unit| usize::from(meaning(unit).fields)).sum();
    let mut runs = FieldReader::new(input, fields);
    symbols.fill(0);
    let mut at = 0usize;
    for &unit in units.iter() {
        let meaning = meaning(unit);
        at += meaning.run as usize + runs.get_if(meaning.fields != 0, u32::from(meaning.width)) as usize;
        let slot = symbols.get_mut(at).ok_or_else(|| input.flaw("a token lies past the end"))?;
        *slot = meaning.symbol;
        at += 1;
    }
    runs.finish(input)
}
