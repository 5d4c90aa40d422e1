//! Copying the caller's tensors into buffers that lie ready, on all threads.

use super::Pool;

/// Bytes that one thread copies at once.
const PIECE_BYTES: usize = 1 << 20;

/// A run of bytes and where it goes, of the same length.
type Piece<'a> = (&'a [u8], &'a mut [u8]);

/// Makes each room equal to its source, and tells how many bytes had to be written: pieces that are equal already are only read.
/// Sources and rooms are as many and as long.
pub fn copy_changed(sources: &[&[u8]], rooms: &mut [&mut [u8]], pool: &Pool) -> usize {
    let pieces = sources
        .iter()
        .zip(rooms)
        .flat_map(|(source, room)| source.chunks(PIECE_BYTES).zip(room.chunks_mut(PIECE_BYTES)));
    let copy = |group: Vec<Piece<'_>>| group.into_iter().map(copy_piece).sum::<usize>();
    pool.map(grouped(pieces), copy).into_iter().sum()
}

/// Pieces in groups that are worth a thread's attention: small tensors are many.
fn grouped<'a>(pieces: impl Iterator<Item = Piece<'a>>) -> Vec<Vec<Piece<'a>>> {
    let mut groups = Vec::new();
    let (mut group, mut bytes) = (Vec::new(), 0);
    for piece in pieces {
        bytes += piece.0.len();
        group.push(piece);
        if bytes >= PIECE_BYTES {
            groups.push(std::mem::take(&mut group));
            bytes = 0;
        }
    }
    groups.push(group);
    groups
}

fn copy_piece((source, room): Piece<'_>) -> usize {
    // A comparison ends at the first difference, so it costs where it saves the writing.
    if source == room {
        return 0;
    }
    room.copy_from_slice(source);
    source.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rooms_become_their_sources(
            lengths in proptest::collection::vec(prop_oneof![0..40usize, Just(PIECE_BYTES), 0..3 * PIECE_BYTES], 0..6),
            changed in any::<prop::sample::Index>(),
            threads in 1..4usize,
        ) {
            let pool = Pool::new(threads).expect("threads start");
            let mut sources: Vec<Vec<u8>> =
                lengths.iter().map(|&n| (0..n).map(|i| (i * 7 % 251) as u8 + 1).collect()).collect();
            let mut rooms: Vec<Vec<u8>> = lengths.iter().map(|&n| vec![0; n]).collect();
            let copy = |sources: &[Vec<u8>], rooms: &mut [Vec<u8>]| {
                let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
                let mut rooms: Vec<&mut [u8]> = rooms.iter_mut().map(Vec::as_mut_slice).collect();
                copy_changed(&sources, &mut rooms, &pool)
            };
            let all: usize = lengths.iter().sum();
            prop_assert_eq!(copy(&sources, &mut rooms), all);
            prop_assert_eq!(&sources, &rooms);
            prop_assert_eq!(copy(&sources, &mut rooms), 0);
            if all > 0 {
                let mut at = changed.index(all);
                let tensor = lengths.iter().position(|&n| { let here = at < n; if !here { at -= n }; here });
                let tensor = tensor.expect("it lies in one of them");
                sources[tensor][at] = 0;
                let start = at / PIECE_BYTES * PIECE_BYTES;
                prop_assert_eq!(copy(&sources, &mut rooms), PIECE_BYTES.min(lengths[tensor] - start));
                prop_assert_eq!(&sources, &rooms);
            }
        }
    }
}
