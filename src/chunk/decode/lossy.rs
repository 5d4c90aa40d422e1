//! Lossy records: symbols and base -> reconstruction.

use crate::checksum::ContentSum;
use crate::chunk::Scratch;
use crate::coding::FieldReader;
use crate::delta::{Domain, Ordered, Value};
use crate::error::Parsed;
use crate::float::{Arith, Element, ElementType, Wide};
#[cfg(target_arch = "x86_64")]
use crate::halves::{self, BLOCK};
use crate::header::Meaning;
#[cfg(target_arch = "x86_64")]
use crate::kernels::GROUP;
use crate::kernels::Steps;
use crate::quantize::Quantizer;
#[cfg(target_arch = "x86_64")]
use crate::simd;
use crate::simd::places::{add_runs, at_runs};
use crate::wire::Reader;

/// A quantizer, and its representatives for the fast loops where they serve.
pub struct LossyDecoder<E: Element, D: Domain<E>> {
    quantizer: Quantizer<E, D>,
    steps: Option<Steps>,
}

impl<E: Element> LossyDecoder<E, Value> {
    pub fn of_values(meaning: &Meaning, refinement: u32) -> Self {
        LossyDecoder::new(value_quantizer(meaning, refinement))
    }
}

impl<E: Element, const NON_NEGATIVE: bool> LossyDecoder<E, Ordered<NON_NEGATIVE>> {
    pub fn of_integers(meaning: &Meaning, refinement: u32) -> Self {
        LossyDecoder::new(ordered_quantizer(meaning, refinement))
    }
}

impl<E: Element, D: Domain<E>> LossyDecoder<E, D> {
    fn new(quantizer: Quantizer<E, D>) -> Self {
        let plain = quantizer.refinement() == 0;
        let steps = plain.then(|| D::new().steps(quantizer.representatives())).flatten();
        LossyDecoder { quantizer, steps }
    }

    /// Applies the symbols in `scratch`, with their refinement fields from `input`. Returns the content sum if it is asked for and
    /// can be taken on the way.
    pub fn apply(
        &self,
        input: &mut Reader<'_>,
        base: &mut [E],
        sum: bool,
        scratch: &mut Scratch,
    ) -> Parsed<Option<u64>> {
        if let Some(steps) = &self.steps {
            return Ok(self.apply_steps(steps, base, sum, &scratch.symbols));
        }
        apply_lossy(&self.quantizer, input, base, &scratch.symbols)?;
        Ok(None)
    }

    /// Of so many entries, how many may have a symbol where [`LossyDecoder::add`] is quicker than [`LossyDecoder::apply`].
    pub fn most_added(&self, entries: usize) -> usize {
        match &self.steps {
            Some(Steps::Value(_)) if E::TYPE == ElementType::F32 => entries / 4,
            Some(_) => entries / 32,
            None if self.quantizer.refinement() == 0 => entries,
            None => 0,
        }
    }

    /// As [`LossyDecoder::apply`] does without refinement, of the symbols `found`, with as many entries before each as `runs` tells. All lie
    /// within `base`.
    pub fn add(&self, runs: &[u16], found: &[u8], base: &mut [E]) {
        if let (Some(Steps::Value(steps)), ElementType::F32) = (&self.steps, E::TYPE) {
            add_runs(runs, found, steps, bytemuck::cast_slice_mut(base));
            return;
        }
        at_runs(runs, found, base, |entry, symbol| *entry = self.quantizer.element(*entry, symbol, 0));
    }

    fn apply_steps(&self, steps: &Steps, base: &mut [E], sum: bool, symbols: &[u8]) -> Option<u64> {
        let mut taken = ContentSum::default();
        let (mut done, mut summed) = (0, 0);
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = simd::avx2() {
            done = base.len() / GROUP * GROUP;
            let sums = sum.then_some(&mut taken.lanes);
            let (symbols, base) = (&symbols[..done], &mut base[..done]);
            summed = done;
            match steps {
                Steps::Value(steps) if halves::are_halves::<E>() => {
                    apply_halves(avx2, steps, symbols, base);
                    summed = 0;
                }
                Steps::Value(steps) => avx2.apply_values(steps, symbols, bytemuck::cast_slice_mut(base), sums),
                Steps::Ordered(steps) => {
                    let slow = |base: &mut [i32; GROUP], symbols: &[u8; GROUP]| {
                        self.apply_plain(bytemuck::cast_slice_mut(base), symbols);
                    };
                    avx2.apply_ordered(steps, symbols, bytemuck::cast_slice_mut(base), sums, slow);
                }
            }
            taken.bytes = (summed * size_of::<E>()) as u64;
        }
        let _ = steps;
        self.apply_plain(&mut base[done..], &symbols[done..]);
        sum.then(|| {
            taken.update(bytemuck::cast_slice(&base[summed..]));
            taken.value()
        })
    }

    /// Without refinement.
    fn apply_plain(&self, base: &mut [E], symbols: &[u8]) {
        for (b, &symbol) in base.iter_mut().zip(symbols).filter(|(_, symbol)| **symbol != 0) {
            *b = self.quantizer.element(*b, symbol, 0);
        }
    }
}

/// 16-bit floats, whole groups, by way of f32.
#[cfg(target_arch = "x86_64")]
fn apply_halves<E: Element>(avx2: simd::Avx2, steps: &[f32; 16], symbols: &[u8], base: &mut [E]) {
    let mut wide = [0.0; BLOCK];
    for (symbols, base) in symbols.chunks(BLOCK).zip(base.chunks_mut(BLOCK)) {
        let wide = &mut wide[..base.len()];
        halves::widen(base, wide);
        avx2.apply_values(steps, symbols, wide, None);
        halves::narrow(wide, symbols, base);
    }
}

fn value_quantizer<E: Element>(meaning: &Meaning, refinement: u32) -> Quantizer<E, Value> {
    match meaning {
        Meaning::Buckets(buckets) => Quantizer::of_buckets(Value, refinement, buckets.clone()),
        Meaning::Values(values) => {
            Quantizer::of_representatives(Value, values.iter().map(|&value| E::A::of_f64(value)).collect())
        }
        Meaning::Integers(_) => Quantizer::of_representatives(Value, Vec::new()),
    }
}

fn ordered_quantizer<E: Element, const NON_NEGATIVE: bool>(
    meaning: &Meaning,
    refinement: u32,
) -> Quantizer<E, Ordered<NON_NEGATIVE>> {
    match meaning {
        Meaning::Buckets(buckets) => Quantizer::of_buckets(Ordered, refinement, buckets.clone()),
        Meaning::Integers(integers) => {
            Quantizer::of_representatives(Ordered, integers.iter().map(|&integer| E::Wide::of_i128(integer)).collect())
        }
        Meaning::Values(_) => Quantizer::of_representatives(Ordered, Vec::new()),
    }
}

/// With refinement fields from `input`, if there are any.
fn apply_lossy<E: Element, D: Domain<E>>(
    quantizer: &Quantizer<E, D>,
    input: &mut Reader<'_>,
    base: &mut [E],
    symbols: &[u8],
) -> Parsed<()> {
    let refined = quantizer.refinement() > 0;
    let count = if refined { symbols.iter().filter(|symbol| **symbol != 0).count() } else { 0 };
    let mut fields = FieldReader::new(input, count);
    for (b, &symbol) in base.iter_mut().zip(symbols).filter(|(_, symbol)| **symbol != 0) {
        let field = if refined { fields.get(quantizer.field_width(symbol)) } else { 0 };
        *b = quantizer.element(*b, symbol, field);
    }
    fields.finish(input)
}
