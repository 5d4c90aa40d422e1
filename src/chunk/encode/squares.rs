//! The error of a record, from sums of squares.

use crate::float::{Arith, Element};

/// Sums of squares over finite entries, for the error of a record.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Squares {
    /// Of reconstruction - target.
    pub error: f64,
    /// Of target - previous reconstruction.
    pub delta: f64,
}

impl Squares {
    pub fn add(&mut self, next: Squares) {
        self.error += next.error;
        self.delta += next.delta;
    }

    /// The error of the record: 0/0 is 0, and what cannot be told is infinite.
    pub fn error_of_record(self) -> f32 {
        if self.error == 0.0 {
            return 0.0;
        }
        let ratio = (self.error / self.delta).sqrt() as f32;
        if ratio.is_nan() { f32::INFINITY } else { ratio }
    }
}

/// Sums squares of differences in eight lanes, entry i in lane i mod 8.
#[derive(Default)]
struct Lanes([f64; 8]);

impl Lanes {
    #[inline(always)]
    fn add(&mut self, i: usize, a: f64, b: f64) {
        let difference = a - b;
        if difference.is_finite() {
            self.0[i % 8] += difference * difference;
        }
    }

    fn total(&self) -> f64 {
        let l = self.0;
        ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
    }
}

pub fn sum_of_squares<E: Element>(target: &[E], other: &[E]) -> f64 {
    let mut lanes = Lanes::default();
    for (i, (t, o)) in target.iter().zip(other).enumerate() {
        lanes.add(i, t.to_arith().to_f64(), o.to_arith().to_f64());
    }
    lanes.total()
}
