//! One record, header and payload from any bytes, against any base: both decoders refuse it or agree.
#![no_main]

mod input;

use ckptz::float::{Element, ElementType};
use ckptz::parallel::{Pool, decode_record};
use ckptz::{Decoder, RecordHeader};
use half::{bf16, f16};
use input::{Aligned, Input};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (element, elements) = (input.element(), usize::from(input.u16()));
    let (header, payload) = (input.piece(), input.piece());
    let Ok(header) = RecordHeader::of_bytes(header, element, elements) else { return };
    let mut content = Aligned::new(elements * element.size(), input.0);
    let single = match element {
        ElementType::F16 => decode::<f16>(&header, payload, &content),
        ElementType::BF16 => decode::<bf16>(&header, payload, &content),
        ElementType::F32 => decode::<f32>(&header, payload, &content),
        ElementType::F64 => decode::<f64>(&header, payload, &content),
        ElementType::Bytes(_) => None,
    };
    let pool = Pool::new(1).expect("no thread is needed");
    let parallel = decode_record(&header, element, payload, content.get_mut(), &pool);
    if element.is_float() {
        assert_eq!(single.is_some(), parallel.is_ok(), "{parallel:?}");
    }
    if let Some(single) = single {
        assert_eq!(single, content.get());
    }
});

fn decode<E: Element>(header: &RecordHeader, payload: &[u8], base: &Aligned) -> Option<Vec<u8>> {
    let mut elements: Vec<E> = bytemuck::cast_slice(base.get()).to_vec();
    Decoder::new(header).ok()?.decode(payload, &mut elements).ok()?;
    Some(bytemuck::cast_slice(&elements).to_vec())
}
