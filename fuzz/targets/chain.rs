//! Chains of snapshots of several tensors, all from any bytes, whole and in part.
#![no_main]

mod input;

use ckptz::parallel::{Chain, Layer, Output, Pool, Segment, Selection, Shape, Source};
use input::{Aligned, Input};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let tensors = 1 + usize::from(input.u8() % 4);
    let shape = |_| Shape { element: input.element(), elements: input.u16().into() };
    let shapes: Vec<Shape> = (0..tensors).map(shape).collect();
    let (mut layers, mut payloads) = (Vec::new(), Vec::new());
    for _ in 0..=input.u8() % 4 {
        let present = input.u8();
        let order = (0..tensors).filter(|tensor| present >> tensor & 1 == 1);
        let Ok(layer) = Layer::parse(input.piece(), order.collect(), &shapes) else { return };
        let payload = input.piece();
        layers.push(layer);
        payloads.push(payload);
    }
    let Ok(chain) = Chain::new(shapes.clone(), layers) else { return };
    // Whoever opens a file sees to that.
    if !payloads.iter().map(|payload| payload.len() as u64).eq(chain.payload_bytes().iter().copied()) {
        return;
    }
    let (from, to) = (usize::from(input.u16()), usize::from(input.u16()));
    let selections: Vec<Selection> = shapes
        .iter()
        .enumerate()
        .map(|(tensor, shape)| Selection {
            tensor,
            elements: from.min(shape.elements)..to.clamp(from, from.max(shape.elements)).min(shape.elements),
        })
        .collect();
    restore(&chain, &shapes, &selections, &payloads, input.u8() & 1 == 1);
});

fn restore(chain: &Chain, shapes: &[Shape], selections: &[Selection], payloads: &[&[u8]], check_each: bool) {
    let size = |selection: &Selection| selection.elements.len() * shapes[selection.tensor].element.size();
    let mut rooms: Vec<Aligned> = selections.iter().map(|selection| Aligned::new(size(selection), &[])).collect();
    let pool = Pool::new(1).expect("no thread is needed");
    for window in chain.windows(selections, 1 << 12) {
        let bytes = |segment: &Segment| &payloads[segment.file][segment.offset as usize..][..segment.length];
        let stored: Vec<Source<'_>> = window.segments().iter().map(|segment| Source::Bytes(bytes(segment))).collect();
        let mut outputs: Vec<Output<'_>> = rooms
            .iter_mut()
            .zip(selections)
            .map(|(room, selection)| Output { selection: selection.clone(), bytes: room.get_mut() })
            .collect();
        if chain.decode(&window, &stored, &mut outputs, check_each, &pool).is_err() {
            return;
        }
    }
}
