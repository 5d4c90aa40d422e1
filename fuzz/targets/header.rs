//! A record header from any bytes: refused, or one that comes back from what it is written as.
#![no_main]

mod input;

use ckptz::RecordHeader;
use ckptz::float::ElementType;
use input::Input;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (element, elements) = (input.element(), usize::from(input.u16()) << (input.u8() % 16));
    if let Ok(header) = RecordHeader::of_bytes(input.0, element, elements) {
        let _ = (header.payload_bytes(), header.representatives(), header.table_bytes(element), header.needs_base());
        // Not always as it was read: a token table can be longer than it need be.
        let bytes = written(&header, element);
        assert!(bytes.len() <= input.0.len());
        let again = RecordHeader::of_bytes(&bytes, element, elements).expect("own header");
        assert_eq!(written(&again, element), bytes);
    }
});

fn written(header: &RecordHeader, element: ElementType) -> Vec<u8> {
    let mut bytes = Vec::new();
    header.write(element, &mut bytes);
    bytes
}
