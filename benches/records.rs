//! Records, one thread, against memcpy of the same array in the same run: `cargo bench --bench records`.
//!
//! Rows: GB/s of original bytes (median of interleaved rounds), ratio to memcpy, bytes stored for each original one.

use ckptz::coding::CodingChoice;
use ckptz::spec::Lossy;
use ckptz::{Decoder, Encoder, RecordHeader, Spec};
use std::hint::black_box;
use std::time::Instant;

/// Rounds of each case; more for a profile.
fn rounds() -> usize {
    std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(7)
}

struct Row {
    name: String,
    times: Vec<f64>,
    ratio: f64,
}

/// Normal deviates by a sum of uniforms: plain, repeatable, good enough for a benchmark.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 24) as f32
    }
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform()).sum::<f32>() - 6.0
    }
    /// Heavier tails than normal, as the steps of real training have.
    fn step(&mut self) -> f32 {
        self.normal() / (0.15 + self.uniform())
    }
}

struct Case {
    target: Vec<f32>,
    before: Vec<f32>,
}

fn weights(n: usize) -> Case {
    let mut random = Random(7);
    let before: Vec<f32> = (0..n).map(|_| 0.02 * random.normal()).collect();
    let target = before.iter().map(|w| w + 1e-4 * random.step()).collect();
    Case { target, before }
}

fn moments(n: usize) -> Case {
    let mut random = Random(9);
    let before: Vec<f32> = (0..n).map(|_| (1e-3 * random.normal()).powi(2)).collect();
    let target = before.iter().map(|v| 0.99 * v + 0.01 * (1e-3 * random.normal()).powi(2)).collect();
    Case { target, before }
}

fn sparse(n: usize, share: f32) -> Case {
    let mut random = Random(11);
    let before: Vec<f32> = (0..n).map(|_| 0.02 * random.normal()).collect();
    let change = |w: &f32| if random.uniform() < share { w + 1e-4 * random.step() } else { *w };
    let target = before.iter().map(change).collect();
    Case { target, before }
}

fn time(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn encoded(spec: Spec, case: &Case) -> (RecordHeader, Vec<u8>) {
    let (mut base, mut payload) = (case.before.clone(), Vec::new());
    let header = Encoder::new(spec).expect("valid").encode(&case.target, &mut base, &mut payload).expect("encodes");
    (header, payload)
}

fn measure(name: &str, spec: Spec, case: &Case, full: bool, rows: &mut Vec<Row>) {
    let encoder = Encoder::new(spec).expect("valid");
    let n = case.target.len();
    let (mut base, mut payload) = (case.before.clone(), Vec::with_capacity(8 * n));
    let (header, stored) = if full {
        let mut stored = Vec::new();
        (encoder.encode_full(&case.target, &mut stored).expect("encodes"), stored)
    } else {
        encoded(spec, case)
    };
    let ratio = 4.0 * n as f64 / stored.len() as f64;
    let what = format!("{name} [{} {}]", header.kind_name(), header.coding().map_or("-", |c| c.name()));
    let mut encode = Row { name: format!("{what} encode"), times: Vec::new(), ratio };
    let mut decode = Row { name: format!("{what} decode"), times: Vec::new(), ratio };
    let mut copy = Row { name: "memcpy".into(), times: Vec::new(), ratio: 1.0 };
    for _ in 0..rounds() {
        copy.times.push(time(|| base.copy_from_slice(black_box(&case.before))));
        payload.clear();
        encode.times.push(time(|| {
            if full {
                black_box(encoder.encode_full(&case.target, &mut payload)).expect("encodes");
            } else {
                black_box(encoder.encode(&case.target, &mut base, &mut payload)).expect("encodes");
            }
        }));
        base.copy_from_slice(&case.before);
        let decoder = Decoder::new(&header).expect("alone");
        decode.times.push(time(|| decoder.decode(black_box(&stored), &mut base).expect("own output")));
    }
    let memcpy = median(&copy.times);
    for row in [copy, encode, decode] {
        let median = median(&row.times);
        let speed = 4e-9 * n as f64 / median;
        println!("{:<64} {speed:7.2} GB/s {:6.1}% {:8.2}x", row.name, 100.0 * memcpy / median, row.ratio);
        rows.push(row);
    }
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Three levels in a coding that is not chosen.
fn with_coding(coding: CodingChoice) -> Spec {
    let spec = Spec::lossy(3);
    Spec { lossy: spec.lossy.map(|lossy| Lossy { coding, ..lossy }), ..spec }
}

/// Arguments: the number of elements, and texts that a case's name must contain.
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let n = arguments.iter().find_map(|a| a.parse::<usize>().ok()).unwrap_or(16 << 20);
    let texts: Vec<&String> = arguments.iter().filter(|a| a.parse::<usize>().is_err()).collect();
    let mut rows = Vec::new();
    let mut run = |name: &str, spec: Spec, make: &dyn Fn(usize) -> Case, full: bool| {
        if texts.iter().all(|text| name.contains(text.as_str())) {
            measure(name, spec, &make(n), full, &mut rows);
        }
    };
    run("weights, levels 3", Spec::lossy(3), &weights, false);
    for coding in [CodingChoice::Plain, CodingChoice::Pairs, CodingChoice::Mask, CodingChoice::Tokens] {
        run("weights, levels 3, coding", with_coding(coding), &weights, false);
    }
    run("weights, levels 2", Spec::lossy(2), &weights, false);
    run("weights, paper 3", Spec::paper(3), &weights, false);
    run("weights, full", Spec::exact(), &weights, true);
    run("weights, exact delta", Spec::exact(), &weights, false);
    run("second moments", Spec::lossy(3), &moments, false);
    run("1% changed", Spec::lossy(3), &|n| sparse(n, 0.01), false);
}
