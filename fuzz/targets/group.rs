//! A group of Huffman streams from any bytes, under any code.
#![no_main]

mod input;

use ckptz::testing::decode_group;
use input::Input;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (alphabet, pairs) = (1 + usize::from(input.u8()), input.u8() & 1 == 1);
    let mut symbols = vec![0; usize::from(input.u16())];
    let lengths = input.take(alphabet);
    let decode = if pairs { decode_group::<2> } else { decode_group::<1> };
    if let Some(taken) = decode(lengths, input.0, &mut symbols) {
        assert!(taken <= input.0.len());
        assert!(symbols.iter().all(|&symbol| lengths[usize::from(symbol)] > 0));
    }
});
