//! Symbols to their places, four at a time. No vector instructions, but unchecked writes.

/// Bits that a run has only if four of them, and what is between, may not add up to 16 bits.
const LARGE: u64 = 0xc000_c000_c000_c000;

/// Writes each of `found` after as many entries as its run tells, counted from the one before; `false` where one lies past the end,
/// and then only some are written. There are as many of `found` as of `runs`.
#[inline(never)] // where it was inlined, it had too few registers
pub fn place_runs(runs: &[u16], found: &[u8], symbols: &mut [u8]) -> bool {
    let mut at = 0usize;
    let (fours, rest) = runs.as_chunks::<4>();
    let (found_fours, found_rest) = found.as_chunks::<4>();
    for (four, found) in fours.iter().zip(found_fours) {
        let [a, b, c, d] = four.map(u64::from);
        let runs = a | b << 16 | c << 32 | d << 48;
        if runs & LARGE != 0 {
            let Some(end) = one_by_one(four, found, symbols, at) else { return false };
            at = end;
            continue;
        }
        // Bits 16 k on: the sum of the runs up to k, and of the symbols before.
        let places = runs.wrapping_mul(0x0001_0001_0001_0001) + 0x0003_0002_0001_0000;
        let last = at + (places >> 48) as usize;
        if last >= symbols.len() {
            return false;
        }
        let from = symbols[at..].as_mut_ptr();
        for (k, symbol) in found.iter().enumerate() {
            // SAFETY: no place is behind the last, which is in `symbols` as counted from `at`.
            unsafe { *from.add((places >> (16 * k) & 0xffff) as usize) = *symbol };
        }
        at = last + 1;
    }
    one_by_one(rest, found_rest, symbols, at).is_some()
}

/// The same from a place on; tells where the next would be counted from.
fn one_by_one(runs: &[u16], found: &[u8], symbols: &mut [u8], mut at: usize) -> Option<usize> {
    for (&run, &symbol) in runs.iter().zip(found) {
        at += usize::from(run);
        *symbols.get_mut(at)? = symbol;
        at += 1;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn four_at_a_time_as_one_by_one(
            runs in prop::collection::vec(prop_oneof![9 => 0u16..30, 1 => any::<u16>()], 0..200), length in 0usize..1 << 18,
        ) {
            let found: Vec<u8> = runs.iter().map(|run| *run as u8 | 1).collect();
            let (mut fast, mut plain) = (vec![0; length], vec![0; length]);
            let placed = place_runs(&runs, &found, &mut fast);
            prop_assert_eq!(placed, one_by_one(&runs, &found, &mut plain, 0).is_some());
            if placed {
                prop_assert_eq!(fast, plain);
            }
        }
    }
}
