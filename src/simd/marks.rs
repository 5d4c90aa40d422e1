//! Which bytes are large, as bits; what is marked by bits taken out, and put back.

use super::SLACK;

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

/// Appends the bytes that are marked to `picked`.
pub fn pick(bytes: &[u8], marks: &[u64], picked: &mut Vec<u8>) {
    let start = picked.len();
    let count: usize = marks.iter().map(|marks| marks.count_ones() as usize).sum();
    picked.resize(start + count + SLACK, 0);
    let mut at = start;
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if let Some(avx512) = super::avx512() {
        done = bytes.len() / 64;
        at += avx512.pick(&bytes[..64 * done], &marks[..done], &mut picked[start..]);
    }
    for_each_mark(&marks[done..], |place| {
        picked[at] = bytes[64 * done + place];
        at += 1;
    });
    picked.truncate(at);
}

/// Writes one of `values` after the other to each place that is marked; there are as many as marks.
pub fn spread(values: &[u16], marks: &[u64], slots: &mut [u16]) {
    let (mut used, mut done) = (0, 0);
    #[cfg(target_arch = "x86_64")]
    if let Some(avx512) = super::avx512() {
        (used, done) = avx512.spread(values, marks, slots);
    }
    for_each_mark(&marks[done..], |place| {
        slots[64 * done + place] = values[used];
        used += 1;
    });
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
            prop_assert_eq!(&found, &expected);
            let mut picked = vec![5];
            pick(&bytes, &marks, &mut picked);
            prop_assert_eq!(picked[0], 5);
            prop_assert_eq!(&picked[1..], &expected.iter().map(|&place| bytes[place]).collect::<Vec<_>>()[..]);
            let values: Vec<u16> = (1000..).take(expected.len()).collect();
            let (mut slots, mut plain) = (vec![7; bytes.len()], vec![7; bytes.len()]);
            spread(&values, &marks, &mut slots);
            expected.iter().zip(&values).for_each(|(&place, &value)| plain[place] = value);
            prop_assert_eq!(slots, plain);
        }
    }
}
