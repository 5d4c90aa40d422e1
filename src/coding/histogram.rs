//! What there is to code: counts of symbols, mask bytes and runs, from which the size under every coding follows.

use super::tokens::{classes, split_run};
use crate::simd::bits;
use crate::simd::marks::mark_from;

/// Runs are counted by their class at this rho, the finest; coarser classes are sums of these.
pub const FINEST_RHO: u32 = 4;

/// Counts over any number of chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    pub symbols: [u64; 16],
    pub masks: Vec<u64>,
    /// `[class at FINEST_RHO][symbol - 1]`
    pub runs: Vec<[u64; 15]>,
    /// Of two symbols each, by the first + 16 * the second; nothing where pairs are not counted.
    pub pairs: Vec<u64>,
    /// Elements counted.
    pub elements: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        let rows = classes(1 << 24, FINEST_RHO) as usize;
        Histogram { symbols: [0; 16], masks: vec![0; 256], runs: vec![[0; 15]; rows], pairs: Vec::new(), elements: 0 }
    }
}

impl Histogram {
    /// One that counts pairs as well.
    pub fn with_pairs() -> Self {
        Histogram { pairs: vec![0; 256], ..Histogram::default() }
    }

    /// Counts the symbols of one chunk.
    pub fn count(&mut self, symbols: &[u8]) {
        self.elements += symbols.len() as u64;
        if !self.pairs.is_empty() {
            count_pairs(symbols, &mut self.pairs);
        }
        let (mut marks, mut following) = (Vec::new(), Vec::new());
        mark_from(symbols, 1, &mut marks);
        follow(&marks, &mut following);
        let (mut of_all, mut of_following) = (count_ones(&marks, &marks), count_ones(&marks, &following));
        self.symbols[0] += symbols.len() as u64 - of_all;
        count_masks(&marks, symbols.len(), &mut self.masks);
        for_each_run(&marks, &following, |run, at| {
            let class = split_run(run, FINEST_RHO).0;
            self.runs[class as usize][usize::from(symbols[at]) - 1] += 1;
        });
        // Of each symbol: those that are at least as high, less those that are higher.
        for symbol in 1..=15u8 {
            mark_from(symbols, symbol + 1, &mut marks);
            let (higher, higher_following) = (count_ones(&marks, &marks), count_ones(&marks, &following));
            self.symbols[usize::from(symbol)] += of_all - higher;
            self.runs[0][usize::from(symbol) - 1] += of_following - higher_following;
            if higher == 0 {
                break;
            }
            (of_all, of_following) = (higher, higher_following);
        }
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
        add(&mut self.pairs, &other.pairs);
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
        let pairs = self.pairs.chunks_mut(16).take(highest + 1);
        pairs.flat_map(|row| &mut row[..=highest]).for_each(scaled);
        let possible = classes(1 << chunk_log2, FINEST_RHO) as usize;
        self.runs[..possible].iter_mut().flat_map(|row| &mut row[..highest]).for_each(scaled);
        self.elements = self.symbols.iter().sum();
    }

    /// Elements whose symbol is not 0.
    pub fn marked(&self) -> u64 {
        self.elements - self.symbols[0]
    }

    /// Makes `tokens` the counts of the tokens at `rho` for the highest symbol K, up to the last class that occurs; returns the
    /// bits of their run fields.
    pub fn tokens(&self, rho: u32, highest: u8, tokens: &mut Vec<u64>) -> u64 {
        let width = usize::from(highest);
        tokens.clear();
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
        run_bits
    }
}

/// Fills `following` with the marks that follow right after another: runs of no zeros.
fn follow(marks: &[u64], following: &mut Vec<u64>) {
    let before = std::iter::once(&0).chain(marks);
    following.extend(marks.iter().zip(before).map(|(marks, before)| marks & (marks << 1 | before >> 63)));
}

bits! {
    fn count_ones[](marks: &[u64], among: &[u64]) -> u64 {
        marks.iter().zip(among).map(|(marks, among)| u64::from((marks & among).count_ones())).sum()
    }
}

/// The last of an odd number is paired with 0.
fn count_pairs(symbols: &[u8], pairs: &mut [u64]) {
    // Four counts that take turns: one, raised again and again, waits for itself.
    let mut counts = [[0u32; 256]; 4];
    let (eights, rest) = symbols.as_chunks::<8>();
    for eight in eights {
        let both = u64::from_le_bytes(*eight);
        // Bytes 0, 2, 4 and 6: two symbols, which are below 16.
        let units = both | both >> 4;
        for (k, counts) in counts.iter_mut().enumerate() {
            counts[(units >> (16 * k) & 255) as usize] += 1;
        }
    }
    for pair in rest.chunks(2) {
        counts[0][usize::from(pair[0] | pair.get(1).map_or(0, |second| second << 4))] += 1;
    }
    for (unit, pairs) in pairs.iter_mut().enumerate() {
        *pairs += counts.iter().map(|counts| u64::from(counts[unit])).sum::<u64>();
    }
}

/// `entries`: that there are marks for.
fn count_masks(marks: &[u64], entries: usize, masks: &mut [u64]) {
    let bytes = marks.iter().flat_map(|marks| marks.to_le_bytes());
    bytes.take(entries.div_ceil(8)).for_each(|mask| masks[usize::from(mask)] += 1);
}

/// Calls `found` with the zeros before each mark that does not follow another, and its place.
#[inline(always)]
fn for_each_run(marks: &[u64], following: &[u64], mut found: impl FnMut(u32, usize)) {
    let mut after = 0;
    for (number, (&marks, &following)) in marks.iter().zip(following).enumerate() {
        let mut left = marks & !following;
        while left != 0 {
            let place = left.trailing_zeros();
            let below = marks & ((1 << place) - 1);
            let at = 64 * number + place as usize;
            let after = if below == 0 { after } else { 64 * (number + 1) - below.leading_zeros() as usize };
            found((at - after) as u32, at);
            left &= left - 1;
        }
        if marks != 0 {
            after = 64 * (number + 1) - marks.leading_zeros() as usize;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::mask::mask_byte;
    use crate::coding::tokens::for_each_token;
    use proptest::prelude::*;

    /// Entry by entry.
    fn plain(symbols: &[u8]) -> Histogram {
        let mut plain = Histogram { elements: symbols.len() as u64, ..Histogram::with_pairs() };
        symbols
            .chunks(2)
            .for_each(|pair| plain.pairs[usize::from(pair[0]) + 16 * usize::from(*pair.get(1).unwrap_or(&0))] += 1);
        symbols.iter().for_each(|&symbol| plain.symbols[usize::from(symbol)] += 1);
        symbols.chunks(8).for_each(|group| plain.masks[usize::from(mask_byte(group))] += 1);
        for_each_token(symbols, |run, symbol| {
            plain.runs[split_run(run, FINEST_RHO).0 as usize][usize::from(symbol) - 1] += 1;
        });
        plain
    }

    proptest! {
        #[test]
        fn counts_are_those_of_each_entry(
            symbols in prop::collection::vec((0u8..=15, 0u8..=15), 0..700), density in 0u8..=16, gap in 0usize..300,
        ) {
            let mut symbols: Vec<u8> = symbols.iter().map(|&(symbol, rank)| if rank < density { symbol } else { 0 }).collect();
            let middle = symbols.len() / 2;
            symbols.splice(middle..middle, vec![0; gap]);
            let mut counts = Histogram::with_pairs();
            counts.count(&symbols);
            prop_assert_eq!(&counts, &plain(&symbols));
        }
    }
}
