//! Snapshots of training with momentum and with Adam: bases are predicted where that pays, readers have what the writer has, and
//! the bytes do not depend on threads.

use ckptz::Spec;
use ckptz::bound::Bound;
use ckptz::checksum::Crc;
use ckptz::float::ElementType;
use ckptz::header::{Base, RecordHeader};
use ckptz::parallel::{
    Chain, Known, Layer, Output, Pool, Segment, Selection, Shape, SnapshotEncoder, Source, Tensor, TensorBase,
    find_families, find_links,
};
use proptest::prelude::*;

/// Weights, first and second moments of each tensor, in the order of a training state: all weights first.
#[derive(Clone)]
struct State(Vec<Vec<f32>>);

#[derive(Debug, Clone)]
struct Run {
    sizes: Vec<usize>,
    adam: bool,
    lossy: bool,
    bound: Option<Bound>,
    seed: u64,
    snapshots: usize,
    chunk_log2: u8,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        let mut sum = 0.0;
        for _ in 0..4 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            sum += (self.0 >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
        }
        sum
    }
}

impl Run {
    fn states(&self) -> Vec<State> {
        let mut random = Random(self.seed);
        let mut fresh = |scale: f32, n: usize| (0..n).map(|_| random.next() * scale).collect::<Vec<f32>>();
        let mut tensors: Vec<Vec<f32>> = self.sizes.iter().map(|&n| fresh(0.05, n)).collect();
        for &n in &self.sizes {
            tensors.push(fresh(1e-3, n));
            if self.adam {
                tensors.push(fresh(1e-3, n).iter().map(|x| x * x + 1e-9).collect());
            }
        }
        let mut states = Vec::new();
        for _ in 0..self.snapshots {
            states.push(State(tensors.clone()));
            self.step(&mut tensors, &mut random);
        }
        states
    }

    fn step(&self, tensors: &mut [Vec<f32>], random: &mut Random) {
        let each = if self.adam { 2 } else { 1 };
        for (k, &n) in self.sizes.iter().enumerate() {
            let first = self.sizes.len() + each * k;
            let gradients: Vec<f32> = (0..n).map(|i| random.next() * 1e-3 * (1.0 + (i % 7) as f32)).collect();
            let (weights, moments) = tensors.split_at_mut(first);
            let (first, second) = moments.split_at_mut(1);
            for (m, g) in first[0].iter_mut().zip(&gradients) {
                *m = 0.9 * *m + 0.1 * g;
            }
            if self.adam {
                let places = weights[k].iter_mut().zip(&first[0]).zip(&mut second[0]).zip(&gradients);
                for (((w, m), v), g) in places {
                    *v = 0.99 * *v + 0.01 * (g * g);
                    *w = *w * 0.9999 - 1e-3 * (m / (v.sqrt() + 1e-8));
                }
            } else {
                weights[k].iter_mut().zip(&first[0]).for_each(|(w, m)| *w -= 0.01 * m);
            }
        }
    }

    fn spec(&self) -> Spec {
        let mut spec = if self.lossy { Spec::lossy(3) } else { Spec::exact() };
        if let Some(lossy) = &mut spec.lossy {
            lossy.bound = self.bound;
        }
        Spec { chunk_log2: self.chunk_log2, ..spec }
    }

    fn shapes(&self) -> Vec<Shape> {
        let each = if self.adam { 2 } else { 1 };
        let moments = self.sizes.iter().flat_map(|&n| std::iter::repeat_n(n, each));
        let all = self.sizes.iter().copied().chain(moments);
        all.map(|elements| Shape { element: ElementType::F32, elements }).collect()
    }

    /// Saves all snapshots; also the bases after each.
    fn save(&self, threads: usize, room: usize) -> (Vec<Saved>, Vec<State>) {
        let pool = Pool::new(threads).expect("threads");
        let states = self.states();
        let (mut bases, mut known, mut saved, mut after) = (states[0].clone(), Vec::new(), Vec::new(), Vec::new());
        for (number, state) in states.iter().enumerate() {
            let mut tensors: Vec<Tensor<'_>> = Vec::new();
            for (target, base) in state.0.iter().zip(&mut bases.0) {
                tensors.push(Tensor {
                    element: ElementType::F32,
                    spec: self.spec(),
                    target: bytes_of(target),
                    base: if number == 0 { TensorBase::None } else { TensorBase::Previous(bytes_of_mut(base)) },
                });
            }
            let links = find_links(&tensors).expect("aligned");
            let families = find_families(&tensors, &links, &known, number == 1, 0, &pool).expect("aligned");
            let mut encoder = SnapshotEncoder::with_families(families, links, 0);
            let (mut out, mut payload) = (vec![0; room], Vec::new());
            loop {
                let n = encoder.fill(&mut tensors, &mut out, &mut Crc::default(), &pool).expect("encodes");
                if n == 0 {
                    break;
                }
                payload.extend_from_slice(&out[..n]);
            }
            let headers = encoder.finish(&mut tensors).expect("all done").headers;
            known = self.layer(&headers).headers().iter().map(known_of).collect();
            saved.push(Saved { headers, payload });
            after.push(bases.clone());
        }
        (saved, after)
    }

    fn layer(&self, headers: &[u8]) -> Layer {
        let shapes = self.shapes();
        Layer::parse(headers, (0..shapes.len()).collect(), &shapes).expect("own headers")
    }

    fn chain(&self, saved: &[Saved]) -> Chain {
        let layers: Vec<Layer> = saved.iter().map(|s| self.layer(&s.headers)).collect();
        let chain = Chain::new(self.shapes(), layers).expect("own chain");
        assert!(saved.iter().map(|s| s.payload.len() as u64).eq(chain.payload_bytes().iter().copied()));
        chain
    }

    /// How many records of the last snapshot are predicted.
    fn predicted(&self, saved: &[Saved]) -> usize {
        let last = self.layer(&saved.last().expect("snapshots").headers);
        last.headers().iter().filter(|header| known_of(header).is_some()).count()
    }
}

fn known_of(header: &RecordHeader) -> Option<Known> {
    match &header.base {
        Base::Predicted(prediction) => Some((prediction.formula, prediction.siblings.clone())),
        _ => None,
    }
}

struct Saved {
    headers: Vec<u8>,
    payload: Vec<u8>,
}

fn bytes_of(values: &[f32]) -> &[u8] {
    bytemuck::cast_slice(values)
}

fn bytes_of_mut(values: &mut [f32]) -> &mut [u8] {
    bytemuck::cast_slice_mut(values)
}

fn restore(chain: &Chain, saved: &[Saved], selection: &Selection, budget: usize) -> Vec<f32> {
    let mut restored = vec![0f32; selection.elements.len()];
    for window in chain.windows(std::slice::from_ref(selection), budget) {
        let stored = window.segments().iter();
        let bytes = |s: &Segment| &saved[s.file].payload[s.offset as usize..s.offset as usize + s.length];
        let stored: Vec<Source<'_>> = stored.map(|segment| Source::Bytes(bytes(segment))).collect();
        let mut output = [Output { selection: selection.clone(), bytes: bytes_of_mut(&mut restored) }];
        let pool = Pool::new(1).expect("threads");
        chain.decode(&window, &stored, &mut output, budget.is_multiple_of(2), &pool).expect("own files");
    }
    restored
}

fn run() -> impl Strategy<Value = Run> {
    let sizes = prop::collection::vec(prop_oneof![1usize..900, Just(200), Just(700)], 1..5);
    let size = || prop::option::of((-7i32..-1).prop_map(|e| 10f64.powi(e)));
    let bound = (size(), size()).prop_map(|(absolute, relative)| Bound::of(absolute, relative));
    (sizes, any::<bool>(), any::<bool>(), bound, any::<u64>(), 2usize..5, 6u8..10).prop_map(
        |(sizes, adam, lossy, bound, seed, snapshots, chunk_log2)| Run {
            sizes,
            adam,
            lossy,
            bound,
            seed,
            snapshots,
            chunk_log2,
        },
    )
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn single_tensors_and_slices_restore_to_the_writers_base(
        run in run(), budget in 1usize..9000, cut: (prop::sample::Index, prop::sample::Index),
    ) {
        let (saved, after) = run.save(1, 1 << 16);
        for (last, state) in after.iter().enumerate() {
            prop_assert!(keeps(run.bound, &run.states()[last], state));
            let chain = run.chain(&saved[..=last]);
            for (tensor, values) in state.0.iter().enumerate() {
                let (a, b) = (cut.0.index(values.len() + 1), cut.1.index(values.len() + 1));
                for elements in [0..values.len(), a.min(b)..a.max(b)] {
                    let selection = Selection { tensor, elements: elements.clone() };
                    let restored = restore(&chain, &saved, &selection, budget);
                    prop_assert_eq!(bits(&restored), bits(&values[elements]), "tensor {} after {}", tensor, last);
                }
            }
        }
    }

    #[test]
    fn bytes_do_not_depend_on_threads_or_room(run in run()) {
        let (one, _) = run.save(1, 1 << 20);
        let (two, _) = run.save(3, 777);
        for (one, two) in one.iter().zip(&two) {
            prop_assert_eq!(&one.headers, &two.headers);
            prop_assert_eq!(&one.payload, &two.payload);
        }
    }
}

/// What training with this optimizer lets be predicted: of each tensor the weights, and with Adam the second moments, exactly.
#[test]
fn siblings_are_found_among_tensors_of_one_length() {
    for adam in [false, true] {
        let run = Run { sizes: vec![600; 4], adam, lossy: false, bound: None, seed: 7, snapshots: 3, chunk_log2: 9 };
        let (saved, after) = run.save(1, 1 << 20);
        assert_eq!(run.predicted(&saved), if adam { 8 } else { 4 });
        assert_eq!(bits(&after[2].0[0]), bits(&run.states()[2].0[0]));
        let layer = run.layer(&saved[2].headers);
        let bits_each = |record: usize| layer.headers()[record].payload_bytes() as f64 * 8.0 / 600.0;
        for record in 0..4 {
            let sibling = known_of(&layer.headers()[record]).expect("predicted").1;
            assert_eq!(sibling[0] as usize, if adam { 4 + 2 * record } else { 4 + record });
            assert!(bits_each(record) < 4.0, "{}", bits_each(record));
        }
    }
}

/// Where one step's gradient is all that is new, a lossy prediction takes less than half, at no larger error.
#[test]
fn lossy_predictions_take_less() {
    let run = of_momentum(5000, None);
    let (saved, after) = run.save(1, 1 << 20);
    let states = run.states();
    let (headers, error) = (run.layer(&saved[3].headers), distance(&after[3].0[0], &states[3].0[0]));
    assert!(known_of(&headers.headers()[0]).is_some());
    assert!(error < 0.5 * distance(&states[3].0[0], &states[2].0[0]), "{error}");
    let bytes = |record: usize| headers.headers()[record].payload_bytes();
    assert!(bytes(0) * 2 < bytes(1), "{} {}", bytes(0), bytes(1));
}

fn of_momentum(n: usize, bound: Option<Bound>) -> Run {
    Run { sizes: vec![n], adam: false, lossy: true, bound, seed: 3, snapshots: 4, chunk_log2: 16 }
}

/// Whether every entry is within the bound.
fn keeps(bound: Option<Bound>, state: &State, after: &State) -> bool {
    let Some(bound) = bound else { return true };
    let pairs = state.0.iter().flatten().zip(after.0.iter().flatten());
    pairs.into_iter().all(|(&target, &reconstruction)| bound.holds(target, reconstruction))
}

/// A bound is no hindrance, whether the plan is made from all entries or from samples.
#[test]
fn what_is_bounded_is_predicted_too() {
    let bound = Bound::of(Some(2e-6), None);
    for n in [5000, 300_000] {
        let run = of_momentum(n, bound);
        let (saved, after) = run.save(2, 1 << 20);
        let headers = run.layer(&saved[3].headers);
        assert!(known_of(&headers.headers()[0]).is_some() && headers.headers()[0].is_lossy());
        for (state, after) in run.states().iter().zip(&after) {
            assert!(keeps(bound, state, after));
        }
    }
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
}
