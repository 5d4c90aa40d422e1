//! Fitting a formula's coefficients to sampled entries: least squares in f64, by basic operations in a fixed order, so that
//! every machine finds the same.

use super::Formula;

/// Entries of a tensor and of what a formula reads, at the same places.
#[derive(Debug, Clone, Default)]
pub struct Sampled {
    pub target: Vec<f64>,
    pub base: Vec<f64>,
    pub s: Vec<f64>,
    pub t: Vec<f64>,
    pub before: Vec<f64>,
}

/// Coefficients, and how good they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    pub coefficients: Vec<f64>,
    /// The share of the delta's energy that is left; of second moments, each entry relative to its size.
    pub left: f64,
}

/// Where the search for e begins: what most optimizers add.
const EPSILON: f64 = 1e-8;

/// Steps of Gauss-Newton for the one coefficient that a formula is not linear in.
const STEPS: usize = 3;

impl Formula {
    /// `None` where nothing can be fitted.
    pub fn fit(self, entries: &Sampled) -> Option<Fit> {
        match self {
            Formula::Direction => {
                let x = |i: usize| [entries.base[i], entries.s[i]];
                let ([kept, b], left) = solve(&entries.deltas(), x)?;
                Some(Fit { coefficients: vec![1.0 + kept, b], left })
            }
            Formula::AdaptiveDirection => fit_adaptive(entries),
            Formula::SecondMoment => fit_second_moment(entries),
        }
    }
}

impl Sampled {
    /// Whether neither target nor base has a sign bit set.
    pub fn is_non_negative(&self) -> bool {
        !self.target.iter().chain(&self.base).any(|value| value.is_sign_negative())
    }

    fn deltas(&self) -> Vec<Aim> {
        self.target.iter().zip(&self.base).map(|(t, b)| Aim { value: t - b, weight: 1.0, delta: t - b }).collect()
    }

    /// Targets, each with a weight that makes its size 1.
    fn relative(&self) -> Vec<Aim> {
        let weight = |t: f64| if t == 0.0 { 0.0 } else { 1.0 / t.abs() };
        self.target.iter().zip(&self.base).map(|(&t, b)| Aim { value: t, weight: weight(t), delta: t - b }).collect()
    }
}

fn fit_adaptive(entries: &Sampled) -> Option<Fit> {
    let aims = entries.deltas();
    let denominator = |i: usize, e: f64| entries.t[i].sqrt() + e;
    let fit = |e: f64| {
        let ([kept, b], left) = solve(&aims, |i| [entries.base[i], entries.s[i] / denominator(i, e)])?;
        Some(Fit { coefficients: vec![1.0 + kept, b, e], left })
    };
    let mut best = fit(EPSILON)?;
    for _ in 0..STEPS {
        let e = best.coefficients[2];
        let x = |i: usize| {
            let direction = entries.s[i] / denominator(i, e);
            [entries.base[i], direction, direction / denominator(i, e)]
        };
        let Some(([_, b, slope], _)) = solve(&aims, x) else { break };
        let better = fit(e - slope / b).filter(|fit| fit.coefficients[2] > 0.0 && fit.left < best.left);
        let Some(better) = better else { break };
        best = better;
    }
    Some(best)
}

fn fit_second_moment(entries: &Sampled) -> Option<Fit> {
    let (r, s, before) = (&entries.base, &entries.s, &entries.before);
    let aims = entries.relative();
    let products = |i: usize| [r[i], s[i] * s[i], s[i] * before[i], before[i] * before[i]];
    let ([_, square, mixed, _], _) = solve(&aims, products)?;
    let mut decay = mixed / (-2.0 * square);
    let fit = |d: f64| {
        let gradient = |i: usize| s[i] - d * before[i];
        let ([a, b], left) = solve(&aims, |i| [r[i], gradient(i) * gradient(i)])?;
        Some(Fit { coefficients: vec![a, b, d], left })
    };
    let mut best = fit(decay)?;
    for _ in 0..STEPS {
        let gradient = |i: usize| s[i] - decay * before[i];
        let x = |i: usize| [r[i], gradient(i) * gradient(i), gradient(i) * before[i]];
        let Some(([_, b, slope], _)) = solve(&aims, x) else { break };
        decay -= slope / (2.0 * b);
        let Some(better) = fit(decay).filter(|fit| fit.left < best.left) else { break };
        best = better;
    }
    Some(best)
}

/// What a fit aims at, and the delta that there would be without it.
struct Aim {
    value: f64,
    weight: f64,
    delta: f64,
}

/// Coefficients of the regressors `x(i)` for entry i, and the share of the deltas' energy that they leave. Entries that are not
/// finite do not count.
fn solve<const N: usize>(aims: &[Aim], x: impl Fn(usize) -> [f64; N]) -> Option<([f64; N], f64)> {
    let finite = || {
        aims.iter().enumerate().filter_map(|(i, aim)| {
            let (x, y, delta) = (x(i).map(|x| x * aim.weight), aim.value * aim.weight, aim.delta * aim.weight);
            let finite = y.is_finite() && delta.is_finite() && x.iter().all(|x| x.is_finite());
            finite.then_some((x, y, delta))
        })
    };
    let mut sums = [[0.0; N]; N];
    let mut rights = [0.0; N];
    for (x, y, _) in finite() {
        for row in 0..N {
            rights[row] += x[row] * y;
            (0..N).for_each(|column| sums[row][column] += x[row] * x[column]);
        }
    }
    let found = eliminate(sums, rights)?;
    let (mut energy, mut deltas) = (0.0, 0.0);
    for (x, y, delta) in finite() {
        let rest = y - found.iter().zip(x).map(|(c, x)| c * x).sum::<f64>();
        energy += rest * rest;
        deltas += delta * delta;
    }
    let left = energy / deltas;
    left.is_finite().then_some((found, left))
}

/// Solves symmetric equations by elimination; a regressor that adds (nearly) nothing to those before it gets 0.
fn eliminate<const N: usize>(mut rows: [[f64; N]; N], mut rights: [f64; N]) -> Option<[f64; N]> {
    let scales: [f64; N] = std::array::from_fn(|k| rows[k][k].sqrt());
    let mut used = [false; N];
    for k in 0..N {
        used[k] = rows[k][k] > 1e-14 * scales[k] * scales[k];
        if !used[k] {
            continue;
        }
        let (above, below) = rows.split_at_mut(k + 1);
        for (row, right) in below.iter_mut().zip(k + 1..) {
            let factor = row[k] / above[k][k];
            row[k..].iter_mut().zip(&above[k][k..]).for_each(|(entry, above)| *entry -= factor * above);
            rights[right] -= factor * rights[k];
        }
    }
    let mut found = [0.0; N];
    for k in (0..N).rev().filter(|&k| used[k]) {
        let rest: f64 = (k + 1..N).map(|column| rows[k][column] * found[column]).sum();
        found[k] = (rights[k] - rest) / rows[k][k];
    }
    found.iter().all(|c| c.is_finite()).then_some(found)
}
