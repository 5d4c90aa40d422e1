//! The plainest possible twins of the stages: slow, and written from the format and the design alone. Tests compare with them.

mod bound;
mod record;
mod rule;

use crate::coding::Coding;
use crate::huffman::Code;

/// Bits that `counts` symbols take under these code lengths.
pub fn coded_bits(counts: &[u64], lengths: &[u8]) -> u128 {
    counts.iter().zip(lengths).map(|(&count, &length)| u128::from(count) * u128::from(length)).sum()
}

/// The fewest bits that any complete code with lengths of at most `limit` takes: tries, level by level, every number of
/// leaves.
pub fn optimal_bits(counts: &[u64], limit: u8) -> u128 {
    let mut used: Vec<u128> = counts.iter().filter(|c| **c > 0).map(|&c| u128::from(c)).collect();
    used.sort_unstable_by(|a, b| b.cmp(a));
    // best[placed][nodes]: least bits with the `placed` largest counts at levels above, and `nodes` nodes on this level.
    let n = used.len();
    let mut best = vec![vec![None; n + 1]; n + 1];
    best[0][1] = Some(0u128);
    for level in 0..=u32::from(limit) {
        let mut next = vec![vec![None; n + 1]; n + 1];
        for (placed, nodes) in (0..=n).flat_map(|placed| (0..=n).map(move |nodes| (placed, nodes))) {
            if let Some(bits) = best[placed][nodes] {
                if placed == n && nodes == 0 {
                    next[n][0] = min(next[n][0], bits);
                }
                for leaves in 0..=nodes.min(n - placed) {
                    let more: u128 = used[placed..placed + leaves].iter().sum::<u128>() * u128::from(level);
                    let open = 2 * (nodes - leaves);
                    if open <= n - placed - leaves {
                        let slot = &mut next[placed + leaves][open];
                        *slot = min(*slot, bits + more);
                    }
                }
            }
        }
        best = next;
    }
    best[n][0].expect("the limit leaves room")
}

fn min(a: Option<u128>, b: u128) -> Option<u128> {
    Some(a.map_or(b, |a| a.min(b)))
}

/// A stream of bits, the lowest bit of each byte first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn bit(&mut self) -> u64 {
        let bit = self.bytes[self.at / 8] >> (self.at % 8) & 1;
        self.at += 1;
        u64::from(bit)
    }

    fn number(&mut self, width: u32) -> u64 {
        (0..width).map(|k| self.bit() << k).sum()
    }
}

/// Reads byte-aligned things one after another.
struct Bytes<'a> {
    bytes: &'a [u8],
}

impl<'a> Bytes<'a> {
    fn varint(&mut self) -> usize {
        let mut value = 0;
        for k in 0.. {
            let byte = self.bytes[0];
            self.bytes = &self.bytes[1..];
            value |= usize::from(byte & 127) << (7 * k);
            if byte < 128 {
                break;
            }
        }
        value
    }

    fn take(&mut self, n: usize) -> Bits<'a> {
        let (head, rest) = self.bytes.split_at(n);
        self.bytes = rest;
        Bits { bytes: head, at: 0 }
    }
}

/// Symbols per stream of a group or list of fields of `n`.
fn stream_sizes(n: usize) -> Vec<usize> {
    if n == 0 {
        return vec![];
    }
    if n < 1024 {
        return vec![n];
    }
    let q = (n as f64 / 4.0 / 32.0).ceil() as usize * 32;
    vec![q, q, q, n - 3 * q]
}

/// A codeword table as strings of 0 and 1, built the way textbooks do.
fn codewords(lengths: &[u8]) -> Vec<String> {
    let mut order: Vec<usize> = (0..lengths.len()).filter(|&s| lengths[s] > 0).collect();
    order.sort_by_key(|&s| (lengths[s], s));
    let mut words = vec![String::new(); lengths.len()];
    let mut next = 0u32;
    let mut length_before = order.first().map_or(0, |&s| lengths[s]);
    for s in order {
        next <<= lengths[s] - length_before;
        length_before = lengths[s];
        words[s] = format!("{:0width$b}", next, width = usize::from(lengths[s]));
        next += 1;
    }
    words
}

fn group(input: &mut Bytes<'_>, code: &Code, n: usize) -> Vec<u8> {
    let words = codewords(code.lengths());
    let sizes = stream_sizes(n);
    let lengths: Vec<usize> = sizes.iter().map(|_| input.varint()).collect();
    let mut symbols = Vec::new();
    for (size, length) in sizes.into_iter().zip(lengths) {
        let mut bits = input.take(length);
        for _ in 0..size {
            let mut word = String::new();
            let symbol = loop {
                word.push(if bits.bit() == 1 { '1' } else { '0' });
                if let Some(symbol) = words.iter().position(|w| *w == word) {
                    break symbol;
                }
            };
            symbols.push(symbol as u8);
        }
        assert_eq!(bits.at.div_ceil(8), length);
    }
    symbols
}

fn fields(input: &mut Bytes<'_>, widths: &[u32]) -> Vec<u64> {
    let mut values = Vec::new();
    let mut at = 0;
    for size in stream_sizes(widths.len()) {
        let widths = &widths[at..at + size];
        let mut bits = input.take((widths.iter().sum::<u32>() as usize).div_ceil(8));
        values.extend(widths.iter().map(|&width| bits.number(width)));
        at += size;
    }
    values
}

/// The symbols of a chunk that has nothing else in it.
pub fn decode_symbols(coding: &Coding, highest: u8, bytes: &[u8], n: usize) -> Vec<u8> {
    let mut input = Bytes { bytes };
    let symbols = read_symbols(&mut input, coding, highest, n);
    assert!(input.bytes.is_empty());
    symbols
}

/// The symbols of a chunk, with their run fields.
fn read_symbols(input: &mut Bytes<'_>, coding: &Coding, highest: u8, n: usize) -> Vec<u8> {
    match coding {
        Coding::Constant(symbol) => vec![*symbol; n],
        Coding::Plain(code) => group(input, code, n),
        Coding::Fixed(width) => {
            let mut bits = input.take((n * *width as usize).div_ceil(8));
            (0..n).map(|_| bits.number(*width) as u8).collect()
        }
        Coding::Pairs(pairs) => {
            let radix = highest + 1;
            let units = group(input, &pairs.code, n.div_ceil(2));
            let mut symbols: Vec<u8> = units.into_iter().flat_map(|unit| [unit % radix, unit / radix]).collect();
            assert!(symbols[n..].iter().all(|symbol| *symbol == 0));
            symbols.truncate(n);
            symbols
        }
        Coding::Mask { masks, symbols } => {
            let masks = group(input, masks, n.div_ceil(8));
            let marked: Vec<bool> = (0..n).map(|i| masks[i / 8] >> (i % 8) & 1 == 1).collect();
            let count = marked.iter().filter(|m| **m).count();
            let mut others = symbols.as_ref().map_or(vec![0; count], |code| group(input, code, count)).into_iter();
            marked.into_iter().map(|m| if m { others.next().expect("one for each mark") + 1 } else { 0 }).collect()
        }
        Coding::Tokens(tokens) => {
            let count = input.varint();
            let units = group(input, &tokens.code, count);
            let r = 1u32 << tokens.rho;
            let class = |unit: u8| u32::from(unit / highest);
            let widths: Vec<u32> =
                units.iter().map(|&u| class(u)).filter(|&c| c >= r).map(|c| tokens.rho + c - r).collect();
            let mut low = fields(input, &widths).into_iter();
            let mut symbols = Vec::new();
            for unit in units {
                let zeros = match class(unit) {
                    c if c < r => u64::from(c),
                    c => (1 << (tokens.rho + c - r)) + low.next().expect("one for each long run"),
                };
                symbols.extend(std::iter::repeat_n(0, zeros as usize));
                symbols.push(unit % highest + 1);
            }
            symbols.resize(n, 0);
            symbols
        }
    }
}

/// The content sum, word by word.
pub fn content_sum(bytes: &[u8]) -> u64 {
    let key = |i: usize| {
        let mut z = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(64), 0);
    let mut acc = [0u64; 8];
    for i in 0..padded.len() / 8 {
        let word = (0..8).map(|k| u64::from(padded[8 * i + k]) << (8 * k)).sum::<u64>();
        let x = word ^ key(i % 128);
        acc[i % 8] = acc[i % 8].wrapping_add((x % (1 << 32)) * (x >> 32));
        acc[(i % 8) ^ 1] = acc[(i % 8) ^ 1].wrapping_add(word);
        if i % 128 == 127 {
            acc = acc.map(|a| (a ^ a >> 47).wrapping_mul(0x9e37_79b1));
        }
    }
    let mut sum = bytes.len() as u64;
    for a in acc {
        sum = (sum ^ a).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        sum ^= sum >> 29;
    }
    sum
}
