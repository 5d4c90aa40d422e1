//! Which bytes are large, as bits.

/// Fills `marks` with which bytes are at least `least` (above 0): a word for every 64.
pub fn mark_from(bytes: &[u8], least: u8, marks: &mut Vec<u64>) {
    let (blocks, rest) = bytes.as_chunks::<64>();
    marks.resize(blocks.len(), 0);
    match super::avx2() {
        #[cfg(target_arch = "x86_64")]
        Some(avx2) => avx2.mark_from(blocks, least, marks),
        _ => marks.iter_mut().zip(blocks).for_each(|(marks, block)| *marks = mark_plain(block, least)),
    }
    marks.push(mark_plain(rest, least));
}

/// Which of at most 64 bytes are at least `least`.
fn mark_plain(bytes: &[u8], least: u8) -> u64 {
    bytes.iter().rev().fold(0, |marks, &byte| marks << 1 | u64::from(byte >= least))
}

/// Calls `found` with the place of each mark, in order.
#[inline(always)]
pub fn for_each_mark(marks: &[u64], mut found: impl FnMut(usize)) {
    for (number, &marks) in marks.iter().enumerate() {
        let mut left = marks;
        while left != 0 {
            found(64 * number + left.trailing_zeros() as usize);
            left &= left - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn marks_are_those_of_each_byte(bytes in prop::collection::vec(any::<u8>(), 0..300), least in 1u8..) {
            let (mut marks, mut found) = (vec![7; 9], Vec::new());
            mark_from(&bytes, least, &mut marks);
            for_each_mark(&marks, |place| found.push(place));
            let expected: Vec<usize> = (0..bytes.len()).filter(|&place| bytes[place] >= least).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
