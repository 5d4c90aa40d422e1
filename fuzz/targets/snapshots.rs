//! Two snapshots of several tensors, some of them equal to others or their roundings: saved, restored; then damaged.
#![no_main]

mod input;

use ckptz::Spec;
use ckptz::float::ElementType;
use ckptz::checksum::Crc;
use ckptz::parallel::{
    Chain, Layer, Output, Pool, Segment, Selection, Shape, SnapshotEncoder, Source, Tensor, TensorBase, find_families,
    find_links,
};
use half::bf16;
use input::{Aligned, Input};
use libfuzzer_sys::fuzz_target;

struct Saved {
    headers: Vec<u8>,
    payload: Vec<u8>,
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let tensors = 1 + usize::from(input.u8() % 4);
    let elements = usize::from(input.u16() % 2048);
    let room = 1 + usize::from(input.u16());
    let kinds: Vec<ElementType> = (0..tensors).map(|_| input.element()).collect();
    let specs: Vec<Spec> = (0..tensors).map(|_| spec(&mut input)).collect();
    let shapes: Vec<Shape> = kinds.iter().map(|&element| Shape { element, elements }).collect();
    let bytes = |shape: &Shape| shape.elements * shape.element.size();
    let mut bases: Vec<Aligned> = shapes.iter().map(|shape| Aligned::new(bytes(shape), &[])).collect();
    let mut saved = Vec::new();
    for snapshot in 0..2 {
        let mut targets: Vec<Aligned> = Vec::new();
        for shape in &shapes {
            let given = input.piece();
            let target = match targets.last() {
                Some(last) if given.is_empty() => derived(last, &shapes[targets.len() - 1], shape),
                _ => Aligned::new(bytes(shape), &given.repeat(bytes(shape) / given.len().max(1) + 1)),
            };
            targets.push(target);
        }
        saved.push(save(&shapes, &specs, &targets, &mut bases, snapshot == 0, room));
    }
    let restored = restore(&shapes, &saved).expect("own snapshots");
    for (restored, base) in restored.iter().zip(&bases) {
        assert_eq!(restored.get(), base.get());
    }
    damage(&mut input, &mut saved);
    let _ = restore(&shapes, &saved);
});

fn spec(input: &mut Input<'_>) -> Spec {
    let spec = match input.u8() % 4 {
        0 => Spec::exact(),
        1 => Spec::paper(1 + input.u8() % 4),
        _ => Spec::lossy(1 + input.u8() % 7),
    };
    Spec { chunk_log2: 6 + input.u8() % 4, ..spec }
}

/// Equal to another tensor, or its rounding, where their types allow it.
fn derived(last: &Aligned, of: &Shape, shape: &Shape) -> Aligned {
    let bytes = shape.elements * shape.element.size();
    if (of.element, shape.element) == (ElementType::F32, ElementType::BF16) {
        let wide: &[f32] = bytemuck::cast_slice(last.get());
        let rounded: Vec<bf16> = wide.iter().map(|&x| bf16::from_f32(x)).collect();
        return Aligned::new(bytes, bytemuck::cast_slice(&rounded));
    }
    Aligned::new(bytes, last.get())
}

fn save(
    shapes: &[Shape],
    specs: &[Spec],
    targets: &[Aligned],
    bases: &mut [Aligned],
    full: bool,
    room: usize,
) -> Saved {
    let parts = shapes.iter().zip(specs).zip(targets.iter().zip(&mut *bases));
    let mut tensors: Vec<Tensor<'_>> = parts
        .map(|((shape, &spec), (target, base))| Tensor {
            element: shape.element,
            spec,
            target: target.get(),
            base: if full { TensorBase::None } else { TensorBase::Previous(base.get_mut()) },
        })
        .collect();
    let pool = Pool::new(1).expect("no thread is needed");
    let links = find_links(&tensors).expect("aligned");
    let families = find_families(&tensors, &links, &[], !full, 0, &pool).expect("aligned");
    let mut encoder = SnapshotEncoder::with_families(families, links, 0);
    let (mut out, mut payload, mut crc) = (vec![0; room], Vec::new(), Crc::default());
    loop {
        let written = encoder.fill(&mut tensors, &mut out, &mut crc, &pool).expect("encodes");
        if written == 0 {
            break;
        }
        payload.extend_from_slice(&out[..written]);
    }
    let mut expected = Crc::default();
    expected.update(&payload);
    assert_eq!(crc.value(), expected.value());
    let headers = encoder.finish(&mut tensors).expect("all done").headers;
    if full {
        bases.iter_mut().zip(targets).for_each(|(base, target)| base.get_mut().copy_from_slice(target.get()));
    }
    Saved { headers, payload }
}

/// The tensors after the last snapshot, or `None` where anything is refused.
fn restore(shapes: &[Shape], saved: &[Saved]) -> Option<Vec<Aligned>> {
    let all = || (0..shapes.len()).collect();
    let layers: Vec<Layer> =
        saved.iter().map(|snapshot| Layer::parse(&snapshot.headers, all(), shapes).ok()).collect::<Option<_>>()?;
    let chain = Chain::new(shapes.to_vec(), layers).ok()?;
    if !saved.iter().map(|snapshot| snapshot.payload.len() as u64).eq(chain.payload_bytes().iter().copied()) {
        return None;
    }
    let whole = |(tensor, shape): (usize, &Shape)| Selection { tensor, elements: 0..shape.elements };
    let selections: Vec<Selection> = shapes.iter().enumerate().map(whole).collect();
    let mut found: Vec<Aligned> =
        shapes.iter().map(|shape| Aligned::new(shape.elements * shape.element.size(), &[])).collect();
    let pool = Pool::new(1).expect("no thread is needed");
    for window in chain.windows(&selections, 1 << 12) {
        let bytes = |s: &Segment| &saved[s.file].payload[s.offset as usize..][..s.length];
        let stored: Vec<Source<'_>> = window.segments().iter().map(|s| Source::Bytes(bytes(s))).collect();
        let places = found.iter_mut().zip(&selections);
        let mut outputs: Vec<Output<'_>> =
            places.map(|(room, s)| Output { selection: s.clone(), bytes: room.get_mut() }).collect();
        chain.decode(&window, &stored, &mut outputs, false, &pool).ok()?;
    }
    Some(found)
}

fn damage(input: &mut Input<'_>, saved: &mut [Saved]) {
    while input.0.len() >= 4 {
        let (what, at, value) = (input.u8(), usize::from(input.u16()), input.u8());
        let snapshot = &mut saved[usize::from(what & 1)];
        let bytes = if what & 2 == 0 { &mut snapshot.headers } else { &mut snapshot.payload };
        if let Some(byte) = bytes.len().checked_sub(1).map(|last| &mut bytes[at.min(last)]) {
            *byte ^= value;
        }
    }
}
