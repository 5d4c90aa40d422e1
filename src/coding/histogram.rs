//! What there is to code: counts of symbols, mask bytes and runs, from which the size under every coding follows.

use super::mask::mask_byte;
use crate::simd::wide;

use super::tokens::{classes, for_each_token, split_run};

/// Runs are counted by their class at this rho, the finest; coarser classes are sums of these.
pub const FINEST_RHO: u32 = 4;

/// Counts over any number of chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    pub symbols: [u64; 16],
    pub masks: Vec<u64>,
    /// `[class at FINEST_RHO][symbol - 1]`
    pub runs: Vec<[u64; 15]>,
    /// Elements counted.
    pub elements: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        let rows = classes(1 << 24, FINEST_RHO) as usize;
        Histogram { symbols: [0; 16], masks: vec![0; 256], runs: vec![[0; 15]; rows], elements: 0 }
    }
}

impl Histogram {
    /// Counts the symbols of one chunk.
    pub fn count(&mut self, symbols: &[u8]) {
        self.elements += symbols.len() as u64;
        count_symbols(symbols, &mut self.symbols);
        symbols.chunks(8).for_each(|group| self.masks[usize::from(mask_byte(group))] += 1);
        for_each_token(symbols, |run, symbol| {
            let class = split_run(run, FINEST_RHO).0;
            self.runs[class as usize][usize::from(symbol) - 1] += 1;
        });
    }

    /// Adds the counts of other chunks.
    pub fn merge(&mut self, other: Self) {
        if self.elements == 0 {
            *self = other;
            return;
        }
        self.elements += other.elements;
        let add = |into: &mut [u64], from: &[u64]| into.iter_mut().zip(from).for_each(|(a, b)| *a += b);
        add(&mut self.symbols, &other.symbols);
        add(&mut self.masks, &other.masks);
        add(self.runs.as_flattened_mut(), other.runs.as_flattened());
    }

    /// Makes counts of a sample those of `elements` in chunks of 2^chunk_log2, where everything that can occur does, if only
    /// once. `highest`: K.
    pub fn scale_up(&mut self, elements: usize, highest: u8, chunk_log2: u8) {
        let factor = (elements as u64 / self.elements.max(1)).max(1);
        let scaled = |count: &mut u64| *count = (*count * factor).max(1);
        let highest = usize::from(highest);
        self.symbols[..=highest].iter_mut().for_each(scaled);
        self.masks.iter_mut().for_each(scaled);
        let possible = classes(1 << chunk_log2, FINEST_RHO) as usize;
        self.runs[..possible].iter_mut().flat_map(|row| &mut row[..highest]).for_each(scaled);
        self.elements = self.symbols.iter().sum();
    }

    /// Elements whose symbol is not 0.
    pub fn marked(&self) -> u64 {
        self.elements - self.symbols[0]
    }

    /// Counts of the tokens at `rho` for the highest symbol K, up to the last class that occurs; and the bits of their run
    /// fields.
    pub fn tokens(&self, rho: u32, highest: u8) -> (Vec<u64>, u64) {
        let width = usize::from(highest);
        let mut tokens = Vec::new();
        let mut run_bits = 0;
        for (finest, row) in self.runs.iter().enumerate() {
            let total: u64 = row.iter().sum();
            if total == 0 {
                continue;
            }
            let run = super::tokens::class_run(finest as u32, FINEST_RHO).0;
            let (class, _, bits) = split_run(run, rho);
            run_bits += total * u64::from(bits);
            let start = class as usize * width;
            if tokens.len() < start + width {
                tokens.resize(start + width, 0);
            }
            tokens[start..].iter_mut().zip(row).for_each(|(token, count)| *token += count);
        }
        (tokens, run_bits)
    }
}

/// Symbols that are counted together: a count of them fits in a byte.
const BLOCK: usize = 128;

wide! {
    fn count_symbols[](symbols: &[u8], counts: &mut [u64; 16]) -> () {
        for block in symbols.chunks(BLOCK) {
            let mut rest = block.len() as u64;
            for (symbol, count) in (1u8..).zip(&mut counts[1..]) {
                // The rest are zeros most of the time.
                if rest == 0 {
                    break;
                }
                let found = u64::from(block.iter().map(|&one| u8::from(one == symbol)).sum::<u8>());
                *count += found;
                rest -= found;
            }
            counts[0] += rest;
        }
    }
}
