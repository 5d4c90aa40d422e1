//! A group of Huffman streams from any bytes, under any code.
#![no_main]

mod input;

use ckptz::testing::decode_group;
use input::Input;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let alphabet = 1 + usize::from(input.u8());
    let mut symbols = vec![0; usize::from(input.u16())];
    let lengths = input.take(alphabet);
    if let Some(taken) = decode_group(lengths, input.0, &mut symbols) {
        assert!(taken <= input.0.len());
        assert!(symbols.iter().all(|&symbol| lengths[usize::from(symbol)] > 0));
    }
});
