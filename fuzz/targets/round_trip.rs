//! Any bits of any float type under every spec: a reader has what the writer has, and exactly where that was asked for.
#![no_main]

mod input;

use ckptz::bound::Bound;
use ckptz::coding::CodingChoice;
use ckptz::float::Element;
use ckptz::promote::{Promotion, Representative};
use ckptz::spec::{BaseChoice, DomainChoice, Lossy};
use ckptz::{Decoder, Encoder, RecordHeader, Spec};
use half::{bf16, f16};
use input::{Aligned, Input};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let spec = spec(&mut input);
    match input.u8() % 4 {
        0 => comes_back::<f16>(spec, input),
        1 => comes_back::<bf16>(spec, input),
        2 => comes_back::<f32>(spec, input),
        _ => comes_back::<f64>(spec, input),
    }
});

fn pick<T: Copy>(input: &mut Input<'_>, choices: &[T]) -> T {
    choices[usize::from(input.u8()) % choices.len()]
}

fn spec(input: &mut Input<'_>) -> Spec {
    let chunk_log2 = 6 + input.u8() % 8;
    let lossy = (input.u8() % 8 > 0).then(|| Lossy {
        domain: pick(input, &[DomainChoice::Auto, DomainChoice::Value, DomainChoice::Ordered]),
        promotion: promotion(input),
        non_negative: promotion(input),
        representative: pick(input, &[Representative::Mean, Representative::Midrange]),
        refinement: input.u8() % 24,
        base: pick(input, &[BaseChoice::Auto, BaseChoice::Previous]),
        coding: pick(
            input,
            &[
                CodingChoice::Cheapest,
                CodingChoice::Plain,
                CodingChoice::Mask,
                CodingChoice::Tokens,
                CodingChoice::Fixed,
                CodingChoice::Pairs,
            ],
        ),
        exact_fallback: input.u8() & 1 == 1,
        least_elements: pick(input, &[0, 16]),
        bound: pick(input, &[None, Bound::of(Some(1e-3), None), Bound::of(None, Some(1e-2))]),
    });
    // The paper's rule promotes by counts, and knows no bounds.
    let lossy = lossy.map(|lossy| match lossy.promotion {
        Promotion::Buckets { .. } => Lossy { bound: None, ..lossy },
        Promotion::Levels(_) => lossy,
    });
    Spec { lossy, links: false, predict: true, chunk_log2 }
}

fn promotion(input: &mut Input<'_>) -> Promotion {
    let number = input.u8();
    if number & 1 == 1 {
        Promotion::Buckets { bits: 1 + number / 2 % 4 }
    } else {
        Promotion::Levels(1 + number / 2 % 7)
    }
}

/// Target and base from halves of the input; a target may be repeated, to have several chunks of it.
fn comes_back<E: Element>(spec: Spec, mut input: Input<'_>) {
    let repeats = 1 + usize::from(input.u8() % 8);
    let near = input.u8() & 1 == 1;
    let half = input.0.len() / 2 / size_of::<E>() * size_of::<E>();
    let target = input.take(half).repeat(repeats);
    let mut base = input.take(half).repeat(repeats);
    if near {
        // Steps are small beside what they change.
        base.iter_mut().zip(&target).for_each(|(b, t)| *b = t ^ (*b & 3));
    }
    let (target, base) = (Aligned::new(target.len(), &target), Aligned::new(base.len(), &base));
    let (target, base): (&[E], &[E]) = (bytemuck::cast_slice(target.get()), bytemuck::cast_slice(base.get()));
    let encoder = Encoder::new(spec).expect("a valid spec");
    let (mut writer, mut payload) = (base.to_vec(), Vec::new());
    let header = encoder.encode(target, &mut writer, &mut payload).expect("same lengths");
    assert!(same(&writer, &decoded(&header, &payload, base)));
    assert!(spec.lossy.is_some() || same(&writer, target));
    let exact = Encoder::new(Spec { lossy: None, ..spec }).expect("a valid spec");
    let mut residual = Vec::new();
    let header = exact.encode_residual(target, &writer, &mut residual).expect("same lengths");
    assert!(same(target, &decoded(&header, &residual, &writer)));
    let mut alone = Vec::new();
    let header = encoder.encode_full(target, &mut alone).expect("no base");
    assert!(same(target, &decoded(&header, &alone, base)));
}

/// What a reader makes of a record, after a way through bytes.
fn decoded<E: Element>(header: &RecordHeader, payload: &[u8], base: &[E]) -> Vec<E> {
    let mut bytes = Vec::new();
    header.write(E::TYPE, &mut bytes);
    let read = RecordHeader::of_bytes(&bytes, E::TYPE, base.len()).expect("own header");
    let mut elements = base.to_vec();
    Decoder::new(&read).expect("alone").decode(payload, &mut elements).expect("own payload");
    elements
}

fn same<E: Element>(a: &[E], b: &[E]) -> bool {
    bytemuck::cast_slice::<E, u8>(a) == bytemuck::cast_slice::<E, u8>(b)
}
