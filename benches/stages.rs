//! Stages alone, one thread, arrays of several sizes: `cargo bench --bench stages`.

use ckptz::coding::CodingChoice;
use ckptz::testing::{CodingStage, QuantizeStage};
use std::hint::black_box;
use std::time::Instant;

fn best(mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..9 {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 24) as f32
    }
}

fn quantize() {
    let mut random = Random(7);
    let mut uniform = || random.uniform() - 0.5;
    for n in [1usize << 14, 1 << 17, 1 << 20, 1 << 24] {
        let before: Vec<f32> = (0..n).map(|_| uniform()).collect();
        let target: Vec<f32> = before.iter().map(|b| b + 1e-3 * uniform() * uniform() * uniform()).collect();
        let stage = QuantizeStage::new(3, &target, &before);
        let mut base = before.clone();
        let repeat = (1 << 22) / n.min(1 << 22);
        let copy = best(|| (0..repeat).for_each(|_| black_box(&mut base).copy_from_slice(black_box(&before))));
        let quantize = best(|| {
            (0..repeat).for_each(|_| {
                black_box(stage.run(&target, &mut base));
            })
        });
        let per = |seconds: f64| 1e9 * seconds / (n * repeat) as f64;
        println!("{n:>9} entries: memcpy {:.3} ns, quantize {:.3} ns an entry", per(copy), per(quantize));
    }
}

/// Symbols 0..=6 of which a share is not 0, in chunks.
fn codings() {
    const ENTRIES: usize = 1 << 20;
    for share in [0.5f32, 0.3, 0.2, 0.1, 0.05, 0.01, 0.001] {
        let mut random = Random(9);
        let mut symbol = || {
            let marked = random.uniform() < share;
            u8::from(marked) * (1 + (6.0 * random.uniform() * random.uniform()) as u8)
        };
        let symbols: Vec<u8> = (0..ENTRIES).map(|_| symbol()).collect();
        for choice in [CodingChoice::Plain, CodingChoice::Pairs, CodingChoice::Mask, CodingChoice::Tokens] {
            let stage = CodingStage::new(choice, 6, &symbols);
            let (mut stored, mut decoded) = (Vec::new(), vec![0; ENTRIES]);
            let encode = best(|| stage.encode(black_box(&symbols), &mut stored));
            let decode = best(|| stage.decode(black_box(&stored), &mut decoded));
            assert!(decoded == symbols);
            let per = |seconds: f64| 1e9 * seconds / ENTRIES as f64;
            let bits = stored.iter().map(|chunk| 8.0 * chunk.len() as f64).sum::<f64>() / ENTRIES as f64;
            println!(
                "{share:>6} not 0, {:<6}: encode {:.3} ns, decode {:.3} ns, {bits:.3} bits an entry",
                stage.name(),
                per(encode),
                per(decode),
            );
        }
    }
}

fn main() {
    quantize();
    codings();
}
