//! Content sums, CRCs and digests (format.md, section 1).

use crate::simd;

/// Bytes of a stripe: eight 64-bit words, one a lane.
pub(crate) const STRIPE: usize = 64;

/// Stripes after which the lanes are scrambled.
pub(crate) const BLOCK: usize = 16;

/// The multiplier of the scramble and of the last fold.
pub(crate) const SCRAMBLE: u64 = 0x9e37_79b1;
const FOLD: u64 = 0x9e37_79b9_7f4a_7c15;

/// One key for each word of a block: the outputs of splitmix64 from seed 0.
pub(crate) static KEYS: [u64; 8 * BLOCK] = keys();

const fn keys() -> [u64; 8 * BLOCK] {
    let mut keys = [0; 8 * BLOCK];
    let mut i = 0;
    while i < keys.len() {
        let z = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        keys[i] = z ^ (z >> 31);
        i += 1;
    }
    keys
}

/// Where a content sum stands after whole stripes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lanes {
    pub sums: [u64; 8],
    /// Stripes since the last scramble.
    pub place: usize,
}

impl Lanes {
    fn add_stripe(&mut self, stripe: &[u8; STRIPE]) {
        let keys = &KEYS[8 * self.place..8 * self.place + 8];
        let (words, _) = stripe.as_chunks::<8>();
        for lane in 0..8 {
            let word = u64::from_le_bytes(words[lane]);
            let mixed = word ^ keys[lane];
            let product = (mixed & 0xffff_ffff).wrapping_mul(mixed >> 32);
            self.sums[lane] = self.sums[lane].wrapping_add(product);
            self.sums[lane ^ 1] = self.sums[lane ^ 1].wrapping_add(word);
        }
        self.place += 1;
        if self.place == BLOCK {
            self.sums.iter_mut().for_each(|sum| *sum = (*sum ^ (*sum >> 47)).wrapping_mul(SCRAMBLE));
            self.place = 0;
        }
    }
}

/// A content sum taken piece by piece; every piece but the last is whole stripes.
#[derive(Debug, Clone, Copy, Default)]
pub struct ContentSum {
    pub(crate) lanes: Lanes,
    pub(crate) bytes: u64,
}

impl ContentSum {
    pub fn update(&mut self, bytes: &[u8]) {
        let (stripes, rest) = bytes.as_chunks::<STRIPE>();
        self.bytes += bytes.len() as u64;
        match simd::avx2() {
            #[cfg(target_arch = "x86_64")]
            Some(avx2) => avx2.add_stripes(&mut self.lanes, stripes),
            _ => stripes.iter().for_each(|stripe| self.lanes.add_stripe(stripe)),
        }
        if !rest.is_empty() {
            let mut stripe = [0; STRIPE];
            stripe[..rest.len()].copy_from_slice(rest);
            self.lanes.add_stripe(&stripe);
        }
    }

    pub fn value(&self) -> u64 {
        self.lanes.sums.iter().fold(self.bytes, |sum, lane| {
            let sum = (sum ^ lane).wrapping_mul(FOLD);
            sum ^ (sum >> 29)
        })
    }
}

/// The content sum of a chunk's decoded bytes.
pub fn content_sum(bytes: &[u8]) -> u64 {
    let mut sum = ContentSum::default();
    sum.update(bytes);
    sum.value()
}

/// One number for the content sums of a tensor's chunks, taken in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TensorSum(u64);

impl TensorSum {
    pub fn add(&mut self, chunk: u64) {
        self.0 = (self.0.rotate_left(23) ^ chunk).wrapping_mul(FOLD);
    }

    pub fn value(self) -> u64 {
        self.0
    }

    /// Of a tensor's bytes.
    pub fn of(bytes: &[u8], chunk_bytes: usize) -> Self {
        bytes.chunks(chunk_bytes).map(content_sum).collect()
    }
}

impl FromIterator<u64> for TensorSum {
    fn from_iter<I: IntoIterator<Item = u64>>(chunks: I) -> Self {
        let mut sum = TensorSum::default();
        chunks.into_iter().for_each(|chunk| sum.add(chunk));
        sum
    }
}

/// A CRC-64/NVME taken piece by piece.
pub struct Crc(crc_fast::Digest);

impl Default for Crc {
    fn default() -> Self {
        Crc(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme))
    }
}

impl Crc {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn value(&self) -> u64 {
        self.0.finalize()
    }
}

/// The first 16 bytes of the BLAKE3 hash of the parts, one after another.
pub fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    let mut digest = [0; 16];
    digest.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive;
    use proptest::prelude::*;

    #[test]
    fn crc_check_value() {
        let mut crc = Crc::default();
        crc.update(b"1234");
        crc.update(b"56789");
        assert_eq!(crc.value(), 0xae8b_1486_0a79_9888);
    }

    proptest! {
        #[test]
        fn every_change_of_one_word_changes_the_sum(
            mut bytes in prop::collection::vec(any::<u8>(), 1..200), at: prop::sample::Index, flip in 1u8..,
        ) {
            let before = content_sum(&bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert_ne!(before, content_sum(&bytes));
        }

        #[test]
        fn the_sum_is_the_formula_of_the_format(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            let expected = naive::content_sum(&bytes);
            prop_assert_eq!(content_sum(&bytes), expected);
            let mut portable = ContentSum::default();
            let (stripes, _) = bytes.as_chunks::<STRIPE>();
            stripes.iter().for_each(|stripe| portable.lanes.add_stripe(stripe));
            portable.bytes = (stripes.len() * STRIPE) as u64;
            portable.update(&bytes[stripes.len() * STRIPE..]);
            prop_assert_eq!(portable.value(), expected);
        }

        /// A linear sum misses changes that cancel, as a Huffman stream that falls out of step and in again makes them.
        #[test]
        fn changes_that_cancel_are_found(words in prop::collection::vec(any::<u32>(), 64..200), at in 0usize..60, unit in 1u32..9) {
            let sum = |words: &[u32]| content_sum(bytemuck::cast_slice(words));
            let mut changed = words.clone();
            for (place, times) in [(0usize, 1u32), (1, 2u32.wrapping_neg()), (2, 1)] {
                changed[at + place] = changed[at + place].wrapping_add((unit << 23).wrapping_mul(times));
            }
            prop_assert_ne!(sum(&words), sum(&changed));
        }
    }
}
