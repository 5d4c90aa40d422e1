//! Code lengths from counts: Huffman's where they keep the limit, else package-merge (Larmore and Hirschberg, 1990),
//! which is optimal under it.

/// Writes to `lengths` the code lengths (0: not used) of an optimal prefix code for `counts` with no length above `limit`. Of
/// equal counts the lower symbol gets the shorter code. With fewer than two used symbols all lengths are 0.
///
/// `limit` must leave room for the used symbols: `2^limit >=` their number. There are at most [`SYMBOLS`] symbols, and a count
/// from 2^56 on counts as one less than that.
pub fn code_lengths(counts: &[u64], limit: u8, lengths: &mut [u8]) {
    lengths.fill(0);
    // Many small tensors are planned: nothing is allocated for the usual code, and no more than needed is cleared.
    match counts.iter().filter(|count| **count > 0).count() {
        0 | 1 => {}
        2..=64 => lengths_of_used::<64, 127>(counts, limit, lengths),
        _ => lengths_of_used::<SYMBOLS, { 2 * SYMBOLS - 1 }>(counts, limit, lengths),
    }
}

/// Symbols of a code, at most.
const SYMBOLS: usize = 256;

/// Of two to `USED` used symbols; a tree of these has `NODES` nodes.
fn lengths_of_used<const USED: usize, const NODES: usize>(counts: &[u64], limit: u8, lengths: &mut [u8]) {
    // A leaf is its count, then its symbol, turned.
    let mut room = [0u64; USED];
    let mut used = 0;
    for (symbol, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        room[used] = count.min(u64::MAX >> 8) << 8 | (SYMBOLS - 1 - symbol) as u64;
        used += 1;
    }
    let leaves = &mut room[..used];
    leaves.sort_unstable();
    let mut nodes = [0; NODES];
    nodes.iter_mut().zip(&*leaves).for_each(|(weight, leaf)| *weight = leaf >> 8);
    let mut depths = huffman_depths(&mut nodes, used);
    if depths[..used].iter().any(|&depth| depth > u16::from(limit)) {
        depths[..used].copy_from_slice(&package_merge(&nodes[..used], limit));
    }
    for (leaf, depth) in leaves.iter().zip(depths) {
        lengths[SYMBOLS - 1 - (leaf & 0xff) as usize] = depth as u8;
    }
}

/// Depths of the leaves, which come first, of a Huffman tree. `nodes`: the weights of the leaves, which rise; the inner nodes,
/// in order of making, follow, whose weights rise too.
fn huffman_depths<const NODES: usize>(nodes: &mut [u64; NODES], leaves: usize) -> [u16; NODES] {
    let last = 2 * leaves - 2;
    let mut parents = [0u16; NODES];
    let (mut leaf, mut inner) = (0, leaves);
    for node in leaves..=last {
        let mut weight = 0u64;
        for _ in 0..2 {
            let take_leaf = leaf < leaves && (inner == node || nodes[leaf] <= nodes[inner]);
            let taken = if take_leaf { &mut leaf } else { &mut inner };
            weight = weight.saturating_add(nodes[*taken]);
            parents[*taken] = node as u16;
            *taken += 1;
        }
        nodes[node] = weight;
    }
    let mut depths = [0u16; NODES];
    for node in (0..last).rev() {
        depths[node] = depths[usize::from(parents[node])] + 1;
    }
    depths
}

/// Depths of an optimal code with no depth above `limit`; `weights` rise.
fn package_merge(weights: &[u64], limit: u8) -> Vec<u16> {
    let leaves = weights.len();
    // levels[d]: at depth limit - d, rising: single leaves (true) and packages of two of the level below (false).
    let mut levels: Vec<Vec<(u64, bool)>> = Vec::with_capacity(usize::from(limit));
    for depth in 0..usize::from(limit) {
        let below = depth.checked_sub(1).map_or(&[][..], |below| &levels[below]);
        let items = merged(weights, below);
        levels.push(items);
    }
    let mut depths = vec![0u16; leaves];
    let mut taken = 2 * leaves - 2;
    for level in levels.iter().rev() {
        let single = level[..taken].iter().filter(|item| item.1).count();
        for depth in &mut depths[..single] {
            *depth += 1;
        }
        taken = 2 * (taken - single);
    }
    depths
}

/// Leaves and packages of two of the level below, both rising, as one list that rises: of equal ones the leaves first.
fn merged(weights: &[u64], below: &[(u64, bool)]) -> Vec<(u64, bool)> {
    let mut items = Vec::with_capacity(weights.len() + below.len() / 2);
    let mut leaves = weights.iter().copied().peekable();
    for pair in below.chunks_exact(2) {
        let weight = pair[0].0.saturating_add(pair[1].0);
        while let Some(leaf) = leaves.next_if(|leaf| *leaf <= weight) {
            items.push((leaf, true));
        }
        items.push((weight, false));
    }
    items.extend(leaves.map(|leaf| (leaf, true)));
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive;
    use proptest::prelude::*;

    fn lengths_of(counts: &[u64], limit: u8) -> Vec<u8> {
        let mut lengths = vec![0; counts.len()];
        code_lengths(counts, limit, &mut lengths);
        lengths
    }

    #[test]
    fn the_papers_figure() {
        assert_eq!(lengths_of(&[5, 2, 2, 1], 11), [1, 2, 3, 3]);
    }

    #[test]
    fn nothing_to_code() {
        assert!(lengths_of(&[], 11).is_empty());
        assert_eq!(lengths_of(&[0, 9, 0], 11), [0, 0, 0]);
    }

    #[test]
    fn as_many_symbols_and_counts_as_there_can_be() {
        // All tie: one length.
        assert_eq!(lengths_of(&[u64::MAX; 256], 11), [8; 256]);
        assert_eq!(lengths_of(&[1; 256], 8), [8; 256]);
        // Of equal counts the lower symbol gets the shorter code, at the ends of the room.
        let mut counts = [0; 256];
        (counts[0], counts[254], counts[255]) = (3, 3, 3);
        let lengths = lengths_of(&counts, 11);
        assert_eq!((lengths[0], lengths[254], lengths[255]), (1, 2, 2));
        // A count for each power of two: beyond the limit.
        let counts: Vec<u64> = (0..64).map(|k| 1 << k).collect();
        let lengths = lengths_of(&counts, 11);
        assert!(lengths.iter().all(|length| (1..=11).contains(length)));
        assert_eq!(lengths.iter().map(|length| 1 << (11 - length)).sum::<u32>(), 1 << 11);
    }

    fn counts() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(prop_oneof![Just(0u64), 1u64..10, (0u32..56).prop_map(|s| 1 << s)], 2..40)
    }

    proptest! {
        #[test]
        fn complete_limited_and_optimal(counts in counts(), limit in 6u8..=11) {
            let lengths = lengths_of(&counts, limit);
            let used = counts.iter().filter(|&&c| c > 0).count();
            for (length, count) in lengths.iter().zip(&counts) {
                prop_assert_eq!(*length > 0, *count > 0 && used > 1);
                prop_assert!(*length <= limit);
            }
            if used > 1 {
                let kraft: u64 = lengths.iter().filter(|l| **l > 0).map(|l| 1u64 << (limit - l)).sum();
                prop_assert_eq!(kraft, 1 << limit);
                prop_assert_eq!(naive::coded_bits(&counts, &lengths), naive::optimal_bits(&counts, limit));
            }
        }
    }
}
