//! Stages alone, one thread, arrays of several sizes: `cargo bench --bench stages`.

use ckptz::testing::QuantizeStage;
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

fn main() {
    let mut state = 7u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
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
