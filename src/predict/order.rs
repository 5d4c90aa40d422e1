//! The order in which records are coded and stored: each after the siblings that its prediction reads (format.md, section 2).

/// Record numbers as their chunks stand in the payload: those of `wanted`, in order, but before a record come those that it
/// `needs` and that have not come yet, in the order in which it names them. `None` where records need each other in a circle.
pub fn payload_order<'a>(
    records: usize,
    wanted: impl Iterator<Item = usize>,
    needs: impl Fn(usize) -> &'a [u32],
) -> Option<Vec<usize>> {
    let mut order = Vec::with_capacity(records);
    let mut begun = vec![false; records];
    let mut done = vec![false; records];
    // Not by recursion: a file may make the way as long as it has records.
    let mut path: Vec<(usize, usize)> = Vec::new();
    for first in wanted {
        if !done[first] {
            path.push((first, 0));
        }
        while let Some((record, next)) = path.last_mut() {
            let record = *record;
            begun[record] = true;
            let sibling = needs(record).get(*next).map(|&sibling| sibling as usize);
            *next += 1;
            match sibling {
                Some(sibling) if done[sibling] => {}
                Some(sibling) if begun[sibling] => return None,
                Some(sibling) => path.push((sibling, 0)),
                None => {
                    done[record] = true;
                    order.push(record);
                    path.pop();
                }
            }
        }
    }
    Some(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_record_follows_its_siblings(needs in prop::collection::vec(prop::collection::vec(0u32..12, 0..3), 12)) {
            let Some(order) = payload_order(12, 0..12, |record| &needs[record]) else {
                // Whoever goes on to what it needs, forever, has found a circle.
                let mut open: Vec<usize> = (0..12).collect();
                while let Some(at) = open.iter().position(|&r| needs[r].iter().all(|s| !open.contains(&(*s as usize)))) {
                    open.remove(at);
                }
                prop_assert!(!open.is_empty());
                return Ok(());
            };
            let place = |record: usize| order.iter().position(|&r| r == record).expect("every record is there");
            for (record, siblings) in needs.iter().enumerate() {
                siblings.iter().for_each(|&sibling| assert!(place(sibling as usize) < place(record)));
            }
            prop_assert_eq!(order.len(), 12);
        }
    }

    #[test]
    fn without_siblings_records_stand_in_their_own_order() {
        assert_eq!(payload_order(4, 0..4, |_| &[]), Some(vec![0, 1, 2, 3]));
        let needs: [&[u32]; 4] = [&[2, 1], &[], &[1], &[]];
        assert_eq!(payload_order(4, 0..4, |record| needs[record]), Some(vec![1, 2, 0, 3]));
        assert_eq!(payload_order(2, 0..2, |record| [&[1u32][..], &[0]][record]), None);
    }
}
