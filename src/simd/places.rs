//! Symbols, or what they stand for, to their places, four at a time. No vector instructions, but unchecked writes.

/// Bits that a run has only if four of them, and what is between, may not add up to 16 bits.
const LARGE: u64 = 0xc000_c000_c000_c000;

/// Writes each of `found` after as many entries as its run tells, counted from the one before; `false` where one lies past the end,
/// and then only some are written. There are as many of `found` as of `runs`.
#[inline(never)] // where it was inlined, it had too few registers
pub fn place_runs(runs: &[u16], found: &[u8], symbols: &mut [u8]) -> bool {
    at_runs(runs, found, symbols, |slot, symbol| *slot = symbol)
}

/// Adds what each of `found` stands for, where [`place_runs`] would write it.
#[inline(never)]
pub fn add_runs(runs: &[u16], found: &[u8], steps: &[f32; 16], entries: &mut [f32]) -> bool {
    at_runs(runs, found, entries, |entry, symbol| *entry += steps[usize::from(symbol & 15)])
}

/// Does with the slot and each of `found` what `put` does, where [`place_runs`] would write it.
#[inline(always)]
pub fn at_runs<T>(runs: &[u16], found: &[u8], slots: &mut [T], put: impl Fn(&mut T, u8)) -> bool {
    let mut at = 0usize;
    let (fours, rest) = runs.as_chunks::<4>();
    let (found_fours, found_rest) = found.as_chunks::<4>();
    for (four, found) in fours.iter().zip(found_fours) {
        let [a, b, c, d] = four.map(u64::from);
        let runs = a | b << 16 | c << 32 | d << 48;
        if runs & LARGE != 0 {
            let Some(end) = one_by_one(four, found, slots, at, &put) else { return false };
            at = end;
            continue;
        }
        // Bits 16 k on: the sum of the runs up to k, and of the symbols before.
        let places = runs.wrapping_mul(0x0001_0001_0001_0001) + 0x0003_0002_0001_0000;
        let last = at + (places >> 48) as usize;
        if last >= slots.len() {
            return false;
        }
        let from = slots[at..].as_mut_ptr();
        for (k, symbol) in found.iter().enumerate() {
            // SAFETY: no place is behind the last, which is in `slots` as counted from `at`.
            put(unsafe { &mut *from.add((places >> (16 * k) & 0xffff) as usize) }, *symbol);
        }
        at = last + 1;
    }
    one_by_one(rest, found_rest, slots, at, put).is_some()
}

/// The same from a place on; tells where the next would be counted from.
fn one_by_one<T>(
    runs: &[u16],
    found: &[u8],
    slots: &mut [T],
    mut at: usize,
    put: impl Fn(&mut T, u8),
) -> Option<usize> {
    for (&run, &symbol) in runs.iter().zip(found) {
        at += usize::from(run);
        put(slots.get_mut(at)?, symbol);
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
            let found: Vec<u8> = runs.iter().map(|run| *run as u8 % 15 + 1).collect();
            let (mut fast, mut plain) = (vec![0; length], vec![0; length]);
            let placed = place_runs(&runs, &found, &mut fast);
            let write = |slot: &mut u8, symbol| *slot = symbol;
            prop_assert_eq!(placed, one_by_one(&runs, &found, &mut plain, 0, write).is_some());
            let steps = std::array::from_fn(|symbol| symbol as f32 + 0.5);
            let mut entries = vec![1.0; length];
            prop_assert_eq!(add_runs(&runs, &found, &steps, &mut entries), placed);
            if placed {
                let sums = plain.iter().map(|&symbol| if symbol == 0 { 1.0 } else { 1.5 + f32::from(symbol) });
                prop_assert_eq!(entries, sums.collect::<Vec<_>>());
                prop_assert_eq!(fast, plain);
            }
        }
    }
}
