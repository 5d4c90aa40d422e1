//! Content sums, CRCs and digests (format.md, section 1).

const C0: u64 = 0x9e37_79b9_7f4a_7c15;
const C1: u64 = 0xd1b5_4a32_d192_ed02;

/// The two sums behind a content sum, over 32-bit words: their total, and their total weighted by position.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WordSums {
    pub total: u64,
    pub weighted: u64,
}

impl WordSums {
    /// The sums of `bytes`, a last incomplete word filled up with zeros.
    pub fn of(bytes: &[u8]) -> Self {
        let mut sums = WordSums::default();
        let mut words = bytes.chunks_exact(4);
        let mut position = 0u64;
        for word in &mut words {
            sums.add(position, u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
            position += 1;
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            let mut word = [0; 4];
            word[..rest.len()].copy_from_slice(rest);
            sums.add(position, u32::from_le_bytes(word));
        }
        sums
    }

    #[inline(always)]
    fn add(&mut self, position: u64, word: u32) {
        self.total = self.total.wrapping_add(u64::from(word));
        self.weighted = self.weighted.wrapping_add(position.wrapping_mul(u64::from(word)));
    }

    /// The stored content sum.
    pub fn folded(self) -> u64 {
        C0.wrapping_mul(self.total).wrapping_add(C1.wrapping_mul(self.weighted))
    }
}

/// The content sum of a chunk's decoded bytes.
pub fn content_sum(bytes: &[u8]) -> u64 {
    WordSums::of(bytes).folded()
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
        fn the_sum_is_the_formula_of_the_format(words in prop::collection::vec(any::<u32>(), 0..50)) {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let mut expected = 0u64;
            for (i, &w) in words.iter().enumerate() {
                let factor = C0.wrapping_add(C1.wrapping_mul(i as u64));
                expected = expected.wrapping_add(factor.wrapping_mul(u64::from(w)));
            }
            prop_assert_eq!(content_sum(&bytes), expected);
        }
    }
}
