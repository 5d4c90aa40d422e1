//! Whole snapshots: chains of them restore to the writer's bases, the same bytes come from any number of threads, and
//! damage is blamed on the right record.

use ckptz::bound::Bound;
use ckptz::checksum::Crc;
use ckptz::float::{Element, ElementType};
use ckptz::parallel::{
    Chain, Layer, Output, Pool, Segment, Selection, Shape, SnapshotEncoder, Source, Tensor, TensorBase, find_links,
};
use ckptz::{Error, Spec};
use proptest::prelude::*;
use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};

const TYPES: [ElementType; 6] = [
    ElementType::F16,
    ElementType::BF16,
    ElementType::F32,
    ElementType::F64,
    ElementType::Bytes(1),
    ElementType::Bytes(4),
];

/// Bytes aligned for every element type.
#[derive(Clone)]
struct Aligned {
    words: Vec<u64>,
    bytes: usize,
}

impl Aligned {
    fn of(bytes: &[u8]) -> Self {
        let mut aligned = Aligned { words: vec![0; bytes.len().div_ceil(8)], bytes: bytes.len() };
        aligned.get_mut().copy_from_slice(bytes);
        aligned
    }
    fn get(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }
    fn get_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }
}

struct Saved {
    headers: Vec<u8>,
    payload: Vec<u8>,
}

/// Encodes a snapshot with little room at a time.
fn save(tensors: &mut [Tensor<'_>], threads: usize, room: usize) -> Saved {
    let pool = Pool::new(threads).expect("threads");
    let mut encoder = SnapshotEncoder::new(find_links(tensors).expect("aligned"), 0);
    let (mut out, mut payload, mut crc) = (vec![0; room], Vec::new(), Crc::default());
    loop {
        let n = encoder.fill(tensors, &mut out, &mut crc, &pool).expect("encodes");
        if n == 0 {
            let mut expected = Crc::default();
            expected.update(&payload);
            assert_eq!(crc.value(), expected.value());
            return Saved { headers: encoder.finish(tensors).expect("all done").headers, payload };
        }
        payload.extend_from_slice(&out[..n]);
    }
}

/// Random tensors that drift from snapshot to snapshot.
#[derive(Debug, Clone)]
struct Run {
    shapes: Vec<(usize, usize)>,
    specs: Vec<Spec>,
    seed: u64,
    snapshots: usize,
    chunk_log2: u8,
}

fn run() -> impl Strategy<Value = Run> {
    let plain = prop::sample::select(vec![Spec::lossy(3), Spec::exact(), Spec::paper(2), Spec::lossy(1)]);
    let size = || prop::option::of((-9i32..2).prop_map(|e| 10f64.powi(e)));
    let bounded = (size(), size()).prop_map(|(absolute, relative)| within(Bound::of(absolute, relative)));
    let spec = prop_oneof![2 => plain, 1 => bounded];
    let tensors = prop::collection::vec(((0usize..6, 0usize..900), spec), 1..7);
    (tensors, any::<u64>(), 2usize..5, 6u8..9).prop_map(|(tensors, seed, snapshots, chunk_log2)| {
        let (shapes, specs) = tensors.into_iter().unzip();
        Run { shapes, specs, seed, snapshots, chunk_log2 }
    })
}

fn within(bound: Option<Bound>) -> Spec {
    let spec = Spec::lossy(3);
    Spec { lossy: spec.lossy.map(|lossy| ckptz::spec::Lossy { bound, ..lossy }), ..spec }
}

/// Whether every entry with a finite target keeps to its bound.
fn keeps(spec: &Spec, element: ElementType, target: &[u8], base: &[u8]) -> bool {
    fn of<E: Element>(bound: Bound, target: &[u8], base: &[u8]) -> bool {
        let (target, base): (&[E], &[E]) = (bytemuck::cast_slice(target), bytemuck::cast_slice(base));
        target.iter().zip(base).all(|(t, b)| !t.finite() || bound.holds(*t, *b))
    }
    let Some(bound) = spec.lossy.and_then(|lossy| lossy.bound) else { return true };
    match element {
        ElementType::F16 => of::<half::f16>(bound, target, base),
        ElementType::BF16 => of::<half::bf16>(bound, target, base),
        ElementType::F32 => of::<f32>(bound, target, base),
        ElementType::F64 => of::<f64>(bound, target, base),
        ElementType::Bytes(_) => true,
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 16
    }
}

impl Run {
    fn spec(&self, i: usize) -> Spec {
        Spec { chunk_log2: self.chunk_log2 + (i % 2) as u8, ..self.specs[i] }
    }

    fn first(&self, random: &mut Random) -> Vec<Aligned> {
        let tensor = |&(kind, elements): &(usize, usize)| {
            let mut tensor = Aligned::of(&vec![0; elements * TYPES[kind].size()]);
            if !random.next().is_multiple_of(5) {
                self.drift(TYPES[kind], &mut tensor, random, 1.0);
            }
            tensor
        };
        self.shapes.iter().map(tensor).collect()
    }

    fn drift(&self, element: ElementType, tensor: &mut Aligned, random: &mut Random, scale: f32) {
        let dense = !random.next().is_multiple_of(3);
        let bytes = tensor.get_mut();
        let mut step = || (random.next() % 2001) as f32 / 1000.0 - 1.0;
        if element == ElementType::F32 {
            let values: &mut [f32] = bytemuck::cast_slice_mut(bytes);
            for (i, v) in values.iter_mut().enumerate() {
                if dense || i % 37 == 0 {
                    *v += step().powi(5) * scale;
                }
            }
            if let Some(v) = values.get_mut(5) {
                *v = [f32::NAN, f32::INFINITY, -0.0, 1e-40][(step().abs() * 3.9) as usize];
            }
        } else {
            bytes.iter_mut().filter(|_| dense).for_each(|b| *b = b.wrapping_add((step() * 3.0) as u8));
        }
    }

    /// The targets of all snapshots.
    fn targets(&self) -> Vec<Vec<Aligned>> {
        let mut random = Random(self.seed);
        let mut targets = self.first(&mut random);
        let mut all = Vec::new();
        for _ in 0..self.snapshots {
            all.push(targets.clone());
            for (i, target) in targets.iter_mut().enumerate() {
                self.drift(TYPES[self.shapes[i].0], target, &mut random, 0.01);
            }
            if let (Some(i), Some(j)) = (self.first_of(ElementType::BF16), self.first_of(ElementType::F32))
                && self.shapes[i].1 == self.shapes[j].1
            {
                let wide: &[f32] = bytemuck::cast_slice(targets[j].get());
                let rounded: Vec<half::bf16> = wide.iter().map(|&x| half::bf16::from_f32(x)).collect();
                targets[i] = Aligned::of(bytemuck::cast_slice(&rounded));
            }
        }
        all
    }

    /// Saves all snapshots; gives them and the bases after each.
    fn save(&self, threads: usize, room: usize) -> (Vec<Saved>, Vec<Vec<Aligned>>) {
        self.save_targets(&self.targets(), threads, room)
    }

    fn save_targets(&self, targets: &[Vec<Aligned>], threads: usize, room: usize) -> (Vec<Saved>, Vec<Vec<Aligned>>) {
        let mut bases = targets[0].clone();
        let (mut saved, mut all_bases) = (Vec::new(), Vec::new());
        for (number, targets) in targets.iter().enumerate() {
            let mut tensors: Vec<Tensor<'_>> = targets
                .iter()
                .zip(&mut bases)
                .enumerate()
                .map(|(i, (target, base))| Tensor {
                    element: TYPES[self.shapes[i].0],
                    spec: self.spec(i),
                    target: target.get(),
                    base: if number == 0 { TensorBase::None } else { TensorBase::Previous(base.get_mut()) },
                })
                .collect();
            saved.push(save(&mut tensors, threads, room));
            all_bases.push(bases.clone());
        }
        (saved, all_bases)
    }

    fn first_of(&self, element: ElementType) -> Option<usize> {
        self.shapes.iter().position(|&(kind, _)| TYPES[kind] == element)
    }

    fn shapes(&self) -> Vec<Shape> {
        self.shapes.iter().map(|&(kind, elements)| Shape { element: TYPES[kind], elements }).collect()
    }

    fn chain(&self, saved: &[Saved]) -> Chain {
        let shapes = self.shapes();
        let tensors: Vec<usize> = (0..shapes.len()).collect();
        let layer = |s: &Saved| Layer::parse(&s.headers, tensors.clone(), &shapes).expect("own headers");
        let layers: Vec<Layer> = saved.iter().map(layer).collect();
        let chain = Chain::new(shapes, layers).expect("own chain");
        assert!(saved.iter().map(|s| s.payload.len() as u64).eq(chain.payload_bytes().iter().copied()));
        chain
    }
}

/// Where payloads start in their files.
const START: usize = 5;

/// A file that only this process has.
fn file_of(payload: &[u8]) -> File {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("ckptz-snapshots-{}-{number}", std::process::id()));
    std::fs::write(&path, [&[9; START], payload].concat()).expect("written");
    let file = File::open(&path).expect("there");
    std::fs::remove_file(&path).expect("removed");
    file
}

fn restore(
    chain: &Chain,
    saved: &[Saved],
    selections: &[Selection],
    budget: usize,
    threads: usize,
) -> Result<Vec<Aligned>, ckptz::parallel::Failure> {
    let size = |s: &Selection| s.elements.len() * chain.shapes()[s.tensor].element.size();
    let mut outputs: Vec<Aligned> = selections.iter().map(|s| Aligned::of(&vec![0xaa; size(s)])).collect();
    let pool = Pool::new(threads).expect("threads");
    let files: Option<Vec<File>> = cfg!(unix).then(|| saved.iter().map(|saved| file_of(&saved.payload)).collect());
    for window in chain.windows(selections, budget) {
        let bytes = |s: &Segment| &saved[s.file].payload[s.offset as usize..s.offset as usize + s.length];
        // Some from files, where there are files.
        let stored = window.segments().iter().enumerate().map(|(i, segment)| match &files {
            Some(files) if !(budget + i).is_multiple_of(3) => Source::File(&files[segment.file], START as u64),
            _ => Source::Bytes(bytes(segment)),
        });
        let stored: Vec<Source<'_>> = stored.collect();
        let mut places: Vec<Output<'_>> = outputs
            .iter_mut()
            .zip(selections)
            .map(|(bytes, selection)| Output { selection: selection.clone(), bytes: bytes.get_mut() })
            .collect();
        chain.decode(&window, &stored, &mut places, budget.is_multiple_of(2), &pool)?;
    }
    Ok(outputs)
}

fn whole(run: &Run) -> Vec<Selection> {
    run.shapes.iter().enumerate().map(|(tensor, &(_, n))| Selection { tensor, elements: 0..n }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_snapshot_restores_to_the_writers_base(run in run(), room in 1usize..5000, budget in 1usize..20000) {
        let (saved, bases) = run.save(1, room);
        let targets = run.targets();
        for (last, bases) in bases.iter().enumerate() {
            for (i, (target, base)) in targets[last].iter().zip(bases).enumerate() {
                prop_assert!(keeps(&run.spec(i), TYPES[run.shapes[i].0], target.get(), base.get()));
            }
            let chain = run.chain(&saved[..=last]);
            for threads in [1, 2] {
                let restored = restore(&chain, &saved, &whole(&run), budget, threads).expect("own files");
                for (i, (restored, base)) in restored.iter().zip(bases).enumerate() {
                    prop_assert_eq!(restored.get(), base.get(), "tensor {} after snapshot {}", i, last);
                }
            }
        }
    }

    #[test]
    fn bytes_do_not_depend_on_threads_room_or_flushing(run in run()) {
        let targets = run.targets();
        let (one, _) = run.save_targets(&targets, 1, 1 << 20);
        let (two, _) = run.save_targets(&targets, 2, 777);
        let flushed = std::thread::scope(|scope| {
            let save = || ckptz::testing::flushing(|| run.save_targets(&targets, 2, 4096).0);
            scope.spawn(save).join().expect("no panic")
        });
        for ((one, two), flushed) in one.iter().zip(&two).zip(&flushed) {
            prop_assert_eq!(&one.headers, &two.headers);
            prop_assert_eq!(&one.payload, &two.payload);
            prop_assert_eq!(&one.headers, &flushed.headers);
            prop_assert_eq!(&one.payload, &flushed.payload);
        }
    }

    #[test]
    fn slices_are_parts_of_the_whole(run in run(), cuts in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 7), budget in 1usize..9000) {
        let (saved, bases) = run.save(1, 4096);
        let chain = run.chain(&saved);
        let cut = |(tensor, &(_, n)): (usize, &(usize, usize))| {
            let (a, b) = (cuts[tensor].0.index(n + 1), cuts[tensor].1.index(n + 1));
            Selection { tensor, elements: a.min(b)..a.max(b) }
        };
        let selections: Vec<Selection> = run.shapes.iter().enumerate().map(cut).collect();
        let restored = restore(&chain, &saved, &selections, budget, 2).expect("own files");
        for (selection, restored) in selections.iter().zip(&restored) {
            let size = chain.shapes()[selection.tensor].element.size();
            let base = &bases[run.snapshots - 1][selection.tensor];
            prop_assert_eq!(restored.get(), &base.get()[selection.elements.start * size..selection.elements.end * size]);
        }
    }

    #[test]
    fn damage_is_blamed_on_its_layer(run in run(), layer: prop::sample::Index, at: prop::sample::Index, flip in 1u8..) {
        let (mut saved, bases) = run.save(1, 4096);
        let layer = layer.index(saved.len());
        if !saved[layer].payload.is_empty() {
            let at = at.index(saved[layer].payload.len());
            saved[layer].payload[at] ^= flip;
            let chain = run.chain(&saved);
            match restore(&chain, &saved, &whole(&run), 5000, 2) {
                Ok(restored) => {
                    for (restored, base) in restored.iter().zip(&bases[run.snapshots - 1]) {
                        prop_assert_eq!(restored.get(), base.get());
                    }
                }
                Err(failure) => {
                    prop_assert_eq!(failure.layer, layer, "{:?}", failure);
                    let found = matches!(failure.error, Error::Format { .. } | Error::Content { .. });
                    prop_assert!(found);
                }
            }
        }
    }
}

#[test]
fn a_chain_without_its_full_snapshot_is_refused() {
    let run = Run { shapes: vec![(2, 500)], specs: vec![Spec::lossy(3)], seed: 1, snapshots: 3, chunk_log2: 7 };
    let (saved, _) = run.save(1, 4096);
    let shapes = run.shapes();
    let layers = saved[1..].iter().map(|s| Layer::parse(&s.headers, vec![0], &shapes).expect("own")).collect();
    assert!(Chain::new(shapes.clone(), layers).is_err());
    assert!(Layer::parse(&saved[0].headers, vec![1], &shapes).is_err());
    assert!(Layer::parse(&saved[0].headers[1..], vec![0], &shapes).is_err());
}
