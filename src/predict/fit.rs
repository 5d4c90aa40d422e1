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
                let (found, left) = Aims::deltas(entries).fit([&entries.base, &entries.s])?;
                Some(Fit { coefficients: vec![1.0 + found[0], found[1]], left })
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
}

fn fit_adaptive(entries: &Sampled) -> Option<Fit> {
    let (aims, r, s) = (Aims::deltas(entries), &entries.base, &entries.s);
    let roots: Vec<f64> = entries.t.iter().map(|t| t.sqrt()).collect();
    // `of / (sqrt(t) + e)`
    let over = |of: &[f64], e: f64| combined(of, &roots, |of, root| of / (root + e));
    let fit = |e: f64| {
        let directions = over(s, e);
        let (found, left) = aims.fit([r, &directions])?;
        Some((Fit { coefficients: vec![1.0 + found[0], found[1], e], left }, directions))
    };
    let (mut best, mut directions) = fit(EPSILON)?;
    for _ in 0..STEPS {
        let e = best.coefficients[2];
        let Some([_, b, slope]) = aims.solve([r, &directions, &over(&directions, e)]) else { break };
        let better = fit(e - slope / b).filter(|(fit, _)| fit.coefficients[2] > 0.0 && fit.left < best.left);
        let Some(better) = better else { break };
        (best, directions) = better;
    }
    Some(best)
}

fn fit_second_moment(entries: &Sampled) -> Option<Fit> {
    let Sampled { base: r, s, before, .. } = entries;
    let aims = Aims::relative(entries);
    let product = |x: &[f64], y: &[f64]| combined(x, y, |x, y| x * y);
    let [_, square, mixed, _] = aims.solve([r, &product(s, s), &product(s, before), &product(before, before)])?;
    let mut decay = mixed / (-2.0 * square);
    let gradients = |d: f64| combined(s, before, |s, before| s - d * before);
    let fit = |d: f64| {
        let gradients = gradients(d);
        let (found, left) = aims.fit([r, &product(&gradients, &gradients)])?;
        Some(Fit { coefficients: vec![found[0], found[1], d], left })
    };
    let mut best = fit(decay)?;
    for _ in 0..STEPS {
        let gradients = gradients(decay);
        let (squares, slopes) = (product(&gradients, &gradients), product(&gradients, before));
        let Some([_, b, slope]) = aims.solve([r, &squares, &slopes]) else { break };
        decay -= slope / (2.0 * b);
        let Some(better) = fit(decay).filter(|fit| fit.left < best.left) else { break };
        best = better;
    }
    Some(best)
}

fn combined(x: &[f64], y: &[f64], with: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    x.iter().zip(y).map(|(x, y)| with(*x, *y)).collect()
}

/// What a fit aims at, by entry.
struct Aims {
    values: Vec<f64>,
    /// Of a regressor's entries.
    weights: Option<Vec<f64>>,
    /// The delta that there would be without the fit.
    deltas: Vec<f64>,
}

impl Aims {
    fn deltas(of: &Sampled) -> Self {
        let deltas = combined(&of.target, &of.base, |target, base| target - base);
        Aims { values: deltas.clone(), weights: None, deltas }
    }

    /// Targets, each with a weight that makes its size 1.
    fn relative(of: &Sampled) -> Self {
        let weights: Vec<f64> = of.target.iter().map(|&t| if t == 0.0 { 0.0 } else { 1.0 / t.abs() }).collect();
        let deltas = combined(&of.target, &of.base, |target, base| target - base);
        let values = combined(&of.target, &weights, |value, weight| value * weight);
        Aims { values, deltas: combined(&deltas, &weights, |delta, weight| delta * weight), weights: Some(weights) }
    }

    /// Entry `i` of the regressors, the value that they aim at and the delta, all weighted. `None` where one is not finite: such
    /// an entry does not count.
    #[inline(always)]
    fn entry<const N: usize>(&self, x: [&[f64]; N], i: usize) -> Option<([f64; N], f64, f64)> {
        let weight = self.weights.as_ref().map_or(1.0, |weights| weights[i]);
        let (x, y, delta) = (x.map(|x| x[i] * weight), self.values[i], self.deltas[i]);
        // Zero times what is finite is zero, all else is NaN.
        let none = x.iter().fold(0.0 * y + 0.0 * delta, |none, x| none + 0.0 * x);
        (none == 0.0).then_some((x, y, delta))
    }

    /// The coefficients of regressors that come closest.
    fn solve<const N: usize>(&self, x: [&[f64]; N]) -> Option<[f64; N]> {
        let mut sums = [[0.0; N]; N];
        let mut rights = [0.0; N];
        for i in 0..self.values.len() {
            let Some((x, y, _)) = self.entry(x, i) else { continue };
            for row in 0..N {
                rights[row] += x[row] * y;
                // The other half is the same.
                (row..N).for_each(|column| sums[row][column] += x[row] * x[column]);
            }
        }
        (0..N).for_each(|row| (0..row).for_each(|column| sums[row][column] = sums[column][row]));
        eliminate(sums, rights)
    }

    /// The same, and the share of the deltas' energy that they leave.
    fn fit<const N: usize>(&self, x: [&[f64]; N]) -> Option<([f64; N], f64)> {
        let found = self.solve(x)?;
        let (mut energy, mut deltas) = (0.0, 0.0);
        for i in 0..self.values.len() {
            let Some((x, y, delta)) = self.entry(x, i) else { continue };
            let rest = y - found.iter().zip(x).map(|(c, x)| c * x).sum::<f64>();
            energy += rest * rest;
            deltas += delta * delta;
        }
        let left = energy / deltas;
        left.is_finite().then_some((found, left))
    }
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
