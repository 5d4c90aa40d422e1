use super::*;
use crate::huffman::coded_bits;
use crate::simd::highest_of;
use proptest::prelude::*;

fn symbols() -> impl Strategy<Value = Vec<u8>> {
    // Even ones, and ones of which some are rare: with long codes among short ones.
    let of = |k: u8| prop_oneof![0..=k, (0..=k, 0u32..8).prop_map(|(symbol, shift)| symbol >> shift)];
    (0usize..3000, prop_oneof![1u8..=255, 1u8..=129]).prop_flat_map(move |(n, k)| prop::collection::vec(of(k), n))
}

proptest! {
    #[test]
    fn groups_come_back(symbols in symbols()) {
        let alphabet = 2.max(1 + usize::from(highest_of(&symbols)));
        let mut counts = vec![0u64; alphabet];
        symbols.iter().for_each(|&s| counts[usize::from(s)] += 1);
        let code = Code::of_counts(&counts);
        let (mut scratch, mut out) = (Vec::new(), Vec::new());
        prop_assert!(encode_group(&symbols, &code, &mut scratch, &mut out));
        prop_assert!(out.len() as u64 * 8 <= group_bits(symbols.len(), coded_bits(&counts, code.lengths())));
        let mut decoded = vec![0; symbols.len()];
        let mut reader = Reader::new(&out);
        decode_group(&mut reader, &quick(Decoder::new(&code)), &mut decoded, &mut Ahead::default()).expect("own output");
        prop_assert_eq!(reader.remaining(), 0);
        prop_assert_eq!(decoded, symbols);
    }

    #[test]
    fn groups_of_pairs_come_back(mut symbols in prop::collection::vec(0u8..4, 0..6000), rare: bool) {
        // The second half is coded in fewer bits, so that streams end one long before the other.
        let half = symbols.len() / 2;
        symbols[half..].iter_mut().for_each(|symbol| *symbol &= if rare { 0 } else { 3 });
        let meanings: Box<[[u8; 2]; 256]> = Box::new(std::array::from_fn(|unit| [unit as u8 & 3, unit as u8 >> 2 & 3]));
        let units: Vec<u8> = symbols.chunks(2).map(|pair| pair[0] | pair.get(1).map_or(0, |second| second << 2)).collect();
        let mut counts = [1u64; 16];
        units.iter().for_each(|&unit| counts[usize::from(unit)] += 1);
        let code = Code::of_counts(&counts);
        let (mut scratch, mut out) = (Vec::new(), Vec::new());
        prop_assert!(encode_group(&units, &code, &mut scratch, &mut out));
        let mut decoded = vec![9; symbols.len()];
        let mut reader = Reader::new(&out);
        let decoder = quick(Decoder::of_meanings(&code, meanings));
        decode_group(&mut reader, &decoder, &mut decoded, &mut Ahead::default()).expect("own output");
        prop_assert_eq!(reader.remaining(), 0);
        prop_assert_eq!(decoded, symbols);
    }

    #[test]
    fn damage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..3000), n in 0usize..6000) {
        let code = Code::of_counts(&[9, 5, 3, 1, 1]);
        let pairs: Box<[[u8; 2]; 256]> = Box::new(std::array::from_fn(|unit| [unit as u8, 4 - unit as u8 % 5]));
        stays_within(&Decoder::new(&code), &bytes, n);
        stays_within(&Decoder::of_meanings(&code, pairs), &bytes, n);
    }

    /// From where any codeword of a stream starts, alone and beside others.
    #[test]
    fn several_symbols_a_look_up_as_one_by_one(
        units in prop::collection::vec((0u8..5, 0u8..5).prop_map(|(a, b)| a.min(b)), 1..900), starts in prop::array::uniform4(any::<prop::sample::Index>()),
    ) {
        let code = Code::of_counts(&[9, 5, 3, 1, 1]);
        let mut stream = vec![0; 2 * units.len() + STREAM_SLACK];
        let length = encode_stream(&units, &code, &mut stream);
        let (stream, decoder) = (&stream[..length], quick(Decoder::new(&code)));
        let from = starts.map(|start| {
            let symbols = start.index(units.len());
            let bits = units[..symbols].iter().map(|unit| usize::from(code.lengths()[usize::from(*unit)])).sum();
            Stand { bits, symbols }
        });
        let entries = decoder.entries(1).expect("made");
        let mut outputs = [(); 4].map(|()| vec![9; units.len()]);
        let mut from = from.into_iter();
        let mut lanes = outputs.each_mut().map(|output| Lane { stream, output, stand: from.next().unwrap_or_default() });
        let before = lanes.each_ref().map(|lane| lane.stand);
        decode_lanes(entries, &mut lanes, &mut Ahead::default());
        for (lane, before) in lanes.iter_mut().zip(before) {
            let mut least = before.symbols;
            for end in [false, true] {
                if end {
                    entries.decode_end(lane);
                }
                let Stand { bits, symbols } = lane.stand;
                prop_assert!(symbols >= least && symbols <= units.len() && bits <= 8 * length);
                prop_assert!(lane.output[..before.symbols].iter().all(|symbol| *symbol == 9));
                prop_assert_eq!(&lane.output[before.symbols..symbols], &units[before.symbols..symbols]);
                least = symbols;
            }
            // All but what is less than an entry.
            prop_assert!(units.len() - least < 6 || 8 * length - lane.stand.bits < 11);
            prop_assert_eq!(decode_rest(lane, &decoder), Ok(length));
            prop_assert_eq!(&lane.output[before.symbols..], &units[before.symbols..]);
        }
    }
}

/// With the table of several symbols, which short groups do not repay.
fn quick<const N: usize>(decoder: Decoder<N>) -> Decoder<N> {
    assert!(decoder.entries(1 << 16).is_some());
    decoder
}

/// `decoder`: of symbols below 5. With and without the table of several symbols any bytes give the same.
fn stays_within<const N: usize>(decoder: &Decoder<N>, bytes: &[u8], n: usize) {
    let read = || {
        let mut decoded = vec![0; n];
        let told = decode_group(&mut Reader::new(bytes), decoder, &mut decoded, &mut Ahead::default());
        assert!(told.is_err() || decoded.iter().all(|&s| s < 5 || N == 2));
        told.map(|()| decoded)
    };
    let slow = read();
    assert!(decoder.entries(1 << 16).is_some());
    assert_eq!(read(), slow);
}

#[test]
fn a_pair_past_the_end_is_refused() {
    let code = Code::of_counts(&[5, 3, 2, 2]);
    let decoder =
        Decoder::of_meanings(&code, Box::new(std::array::from_fn(|unit| [unit as u8 & 1, unit as u8 >> 1 & 1])));
    let (mut scratch, mut out) = (Vec::new(), Vec::new());
    assert!(encode_group(&[0, 1, 3], &code, &mut scratch, &mut out));
    let mut decoded = [9; 6];
    assert!(decode_group(&mut Reader::new(&out), &decoder, &mut decoded, &mut Ahead::default()).is_ok());
    assert_eq!(decoded, [0, 0, 1, 0, 1, 1]);
    let told = decode_group(&mut Reader::new(&out), &decoder, &mut decoded[..5], &mut Ahead::default());
    assert!(told.is_err_and(|flaw| flaw == Flaw::new(out.len(), "a codeword's symbols go past the end")));
}

#[test]
fn the_streams_of_the_smallest_large_group() {
    assert_eq!(stream_ends(1023), [1023; 4]);
    assert_eq!(stream_ends(1024), [256, 512, 768, 1024]);
    assert_eq!(stream_ends(1025), [288, 576, 864, 1025]);
}
