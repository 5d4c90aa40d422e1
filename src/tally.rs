//! Counts of small numbers.

/// Parts of a tally: one count, raised again and again, would wait for itself.
pub const TURNS: usize = 4;

/// How often a number occurs, in parts that take turns.
pub type Tally = [u32; TURNS];

/// Counts the numbers: `tallies[number]`.
#[inline(always)]
pub fn tally(numbers: &[u16], tallies: &mut [Tally]) {
    for some in numbers.chunks(TURNS) {
        for (turn, &number) in some.iter().enumerate() {
            tallies[usize::from(number)][turn] += 1;
        }
    }
}

pub fn total(tally: Tally) -> u64 {
    tally.into_iter().map(u64::from).sum()
}
