//! Sums of what is coded: the same in a snapshot and its residual as long as nothing is changed, and of the arrays as they are.

use ckptz::checksum::Crc;
use ckptz::float::ElementType;
use ckptz::parallel::{Finished, Pool, SnapshotEncoder, Tensor, TensorBase, find_links, sums_of};
use ckptz::{Error, Spec};
use proptest::prelude::*;

/// A tensor, as words of its bytes, and what it was before.
#[derive(Debug, Clone)]
struct Content {
    element: ElementType,
    spec: Spec,
    target: Vec<u32>,
    base: Vec<u32>,
}

/// What a tensor is like.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Drifting,
    /// But for some entries in its first chunk.
    Kept,
    AsItsBase,
    AsTheFirst,
}

fn contents() -> impl Strategy<Value = Vec<Content>> {
    let kind = prop::sample::select(vec![Kind::Drifting, Kind::Kept, Kind::AsItsBase, Kind::AsTheFirst]);
    let spec = prop::sample::select(vec![Spec::lossy(3), Spec::exact(), Spec::paper(2)]);
    let types = [ElementType::F32, ElementType::BF16, ElementType::F16, ElementType::Bytes(4)];
    let tensor = (kind, spec, prop::sample::select(types.to_vec()), 0usize..700, any::<u32>());
    (prop::collection::vec(tensor, 1..6), 6u8..9).prop_map(|(tensors, chunk_log2)| {
        let mut made: Vec<Content> = Vec::new();
        for (kind, spec, element, length, seed) in tensors {
            let spec = Spec { chunk_log2, ..spec };
            let value = |i: usize, seed: u32| (i as f32 + 1.0) * 0.37 + (seed % 97) as f32 * 1e-3;
            let base: Vec<u32> = (0..length).map(|i| value(i, seed).to_bits()).collect();
            let mut target = base.clone();
            match (kind, made.first()) {
                (Kind::Drifting, _) => target.iter_mut().for_each(|bits| *bits = bits.wrapping_add(seed | 1)),
                (Kind::Kept, _) => target.iter_mut().take(5).for_each(|bits| *bits ^= 77),
                (Kind::AsTheFirst, Some(first)) if first.target.len() == length => target = first.target.clone(),
                (Kind::AsTheFirst, Some(first)) => {
                    let base = vec![0; first.target.len()];
                    made.push(Content { base, ..first.clone() });
                    continue;
                }
                _ => {}
            }
            made.push(Content { element, spec, target, base });
        }
        made
    })
}

fn previous<R>(contents: &[Content], bases: &mut [Vec<u32>], work: impl FnOnce(&mut [Tensor<'_>]) -> R) -> R {
    let tensors = contents.iter().zip(bases).map(|(of, base)| Tensor {
        element: of.element,
        spec: of.spec,
        target: bytemuck::cast_slice(&of.target),
        base: TensorBase::Previous(bytemuck::cast_slice_mut(base)),
    });
    work(&mut tensors.collect::<Vec<_>>())
}

fn own<R>(contents: &[Content], bases: &[Vec<u32>], work: impl FnOnce(&mut [Tensor<'_>]) -> R) -> R {
    let tensors = contents.iter().zip(bases).map(|(of, base)| Tensor {
        element: of.element,
        spec: Spec { chunk_log2: of.spec.chunk_log2, ..Spec::exact() },
        target: bytemuck::cast_slice(&of.target),
        base: TensorBase::Own(bytemuck::cast_slice(base)),
    });
    work(&mut tensors.collect::<Vec<_>>())
}

fn encode(tensors: &mut [Tensor<'_>], links: Vec<Option<u32>>, threads: usize) -> Result<Finished, Error> {
    let pool = Pool::new(threads)?;
    finish(SnapshotEncoder::new(links, 0).watching(true), tensors, &pool)
}

fn finish(mut encoder: SnapshotEncoder, tensors: &mut [Tensor<'_>], pool: &Pool) -> Result<Finished, Error> {
    let (mut out, mut crc) = (vec![0; 4096], Crc::default());
    while encoder.fill(tensors, &mut out, &mut crc, pool)? > 0 {}
    encoder.finish(tensors)
}

proptest! {
    #[test]
    fn snapshot_and_residual_have_the_sums_of_the_arrays(
        contents in contents(), threads in 1usize..4, at in any::<prop::sample::Index>(), bit in 0u32..32,
    ) {
        let mut bases: Vec<Vec<u32>> = contents.iter().map(|of| of.base.clone()).collect();
        let pool = Pool::new(threads).expect("threads");
        let unwatched = previous(&contents, &mut bases.clone(), |tensors| {
            let encoder = SnapshotEncoder::new(find_links(tensors).expect("aligned"), 0);
            finish(encoder, tensors, &pool).expect("encodes")
        });
        prop_assert!(unwatched.sums.is_empty());
        let mut expected = Vec::new();
        previous(&contents, &mut bases, |tensors| {
            expected = sums_of(tensors, &pool);
            let links = find_links(tensors).expect("aligned");
            let found = encode(tensors, links, threads).expect("encodes");
            assert_eq!(found.sums, expected);
            assert_eq!(found.headers, unwatched.headers);
        });
        own(&contents, &bases, |tensors| {
            let links = find_links(tensors).expect("aligned");
            assert_eq!(encode(tensors, links, threads).expect("encodes").sums, expected);
        });
        // And no other contents have them.
        let mut changed = contents.clone();
        let lengths: Vec<usize> = contents.iter().map(|of| of.target.len()).collect();
        if lengths.iter().sum::<usize>() > 0 {
            let mut place = at.index(lengths.iter().sum());
            let which = lengths.iter().position(|&n| { let here = place < n; if !here { place -= n }; here });
            changed[which.expect("it lies in one")].target[place] ^= 1 << bit;
            own(&changed, &bases, |tensors| {
                prop_assert_ne!(&sums_of(tensors, &pool), &expected);
                let links = find_links(tensors).expect("aligned");
                prop_assert_ne!(&encode(tensors, links, threads).expect("encodes").sums, &expected);
                Ok::<_, TestCaseError>(())
            })?;
        }
    }
}

#[test]
fn what_was_a_link_and_is_none_any_more_is_told() {
    let of = |target: Vec<u32>| Content {
        element: ElementType::F32,
        spec: Spec::exact(),
        base: vec![0; target.len()],
        target,
    };
    let numbers: Vec<u32> = (0..300).map(|i| (i as f32).to_bits()).collect();
    let mut contents = vec![of(numbers.clone()), of(numbers)];
    let mut bases: Vec<Vec<u32>> = contents.iter().map(|of| of.base.clone()).collect();
    let mut links = Vec::new();
    previous(&contents, &mut bases, |tensors| links = find_links(tensors).expect("aligned"));
    assert_eq!(links, [None, Some(0)]);
    contents[1].target[7] ^= 1;
    previous(&contents, &mut bases, |tensors| {
        assert!(matches!(encode(tensors, links.clone(), 1), Err(Error::Changed)));
    });
    own(&contents, &bases.clone(), |tensors| {
        assert!(matches!(encode(tensors, links, 1), Err(Error::Changed)));
    });
}
