use super::choose::CodingChoice;
use super::*;
use crate::naive;
use proptest::prelude::*;

/// Symbols of a chunk with a given share of zeros, in runs or not.
fn chunk(highest: u8) -> impl Strategy<Value = Vec<u8>> {
    let run = prop_oneof![0usize..4, 0usize..40, 0usize..3000];
    let burst = prop::collection::vec(0..=highest, 0..30);
    prop::collection::vec((run, burst), 0..12)
        .prop_map(|parts| parts.into_iter().flat_map(|(run, burst)| std::iter::repeat_n(0, run).chain(burst)).collect())
}

fn chunks() -> impl Strategy<Value = (u8, Vec<Vec<u8>>)> {
    (1u8..=15).prop_flat_map(|highest| (Just(highest), prop::collection::vec(chunk(highest), 1..4)))
}

fn histogram(chunks: &[Vec<u8>]) -> Histogram {
    let mut all = Histogram::with_pairs();
    for chunk in chunks {
        let mut one = Histogram::with_pairs();
        one.count(chunk);
        all.merge(one);
    }
    all
}

fn comes_back(candidate: &Candidate, highest: u8, chunks: &[Vec<u8>]) {
    let mut scratch = Scratch::default();
    let mut table = Vec::new();
    candidate.coding.write_tables(&mut table);
    let mut reader = Reader::new(&table);
    let coding = Coding::read_tables(candidate.coding.number(), highest, &mut reader).expect("own table");
    assert_eq!(reader.remaining(), 0);
    assert_eq!(coding, candidate.coding);
    let decoding = Decoding::new(coding, highest);
    for chunk in chunks {
        let mut out = Vec::new();
        candidate.coding.encode(chunk, &mut scratch, &mut out);
        let mut decoded = vec![99; chunk.len()];
        let mut reader = Reader::new(&out);
        decoding.decode(&mut reader, &mut decoded, &mut scratch).expect("own output");
        assert_eq!(reader.remaining(), 0);
        assert_eq!(&decoded, chunk);
        assert_eq!(naive::decode_symbols(&candidate.coding, highest, &out, chunk.len()), *chunk);
    }
}

/// Symbols of which a share is not 0, each as often as another.
fn uneven(count: usize, marked: u64, highest: u64) -> Vec<u8> {
    let mut state = 7u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    (0..count).map(|_| if below(100) < marked { 1 + below(highest) as u8 } else { 0 }).collect()
}

fn chosen(symbols: &[u8], highest: u8) -> (Candidate, u64) {
    let counts = histogram(&[symbols.to_vec()]);
    let least = choose::all(&counts, highest, FieldBits::default()).into_iter().map(|c| c.bits).min();
    let choice = Coding::choose(&counts, highest, FieldBits::default(), CodingChoice::Cheapest);
    (choice, least.expect("some"))
}

#[test]
fn large_tensors_take_pairs_where_these_cost_little() {
    let large = choose::LARGE_FROM as usize;
    for (marked, name) in [(30, "pairs"), (40, "pairs"), (90, "plain"), (10, "tokens"), (1, "tokens")] {
        let (choice, least) = chosen(&uneven(large, marked, 6), 6);
        assert_eq!(choice.coding.name(), name, "{marked}%");
        assert!(choice.bits <= least + least / 100, "{marked}%");
    }
    let (choice, least) = chosen(&uneven(large / 8, 40, 6), 6);
    assert_eq!(choice.bits, least, "smaller ones take what takes least");
}

#[test]
fn what_a_sample_of_pairs_lacks_has_a_codeword() {
    let mut counts = histogram(&[uneven(4096, 30, 2)]);
    counts.scale_up(1 << 20, 6, 16);
    let coding = Coding::choose(&counts, 6, FieldBits::default(), CodingChoice::Pairs).coding;
    let all: Vec<u8> = (0..7).flat_map(|first| (0..7).flat_map(move |second| [first, second])).collect();
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    coding.encode(&all, &mut scratch, &mut out);
    assert!(!scratch.unfit);
    assert_eq!(naive::decode_symbols(&coding, 6, &out, all.len()), all);
}

#[test]
fn pairs_that_the_plan_did_not_foresee_are_told() {
    let planned = [0, 1, 1, 0, 0, 0, 2, 1];
    let counts = histogram(&[planned.to_vec()]);
    let coding = Coding::choose(&counts, 2, FieldBits::default(), CodingChoice::Pairs).coding;
    let unfit = |symbols: &[u8]| {
        let mut scratch = Scratch::default();
        coding.encode(symbols, &mut scratch, &mut Vec::new());
        scratch.unfit
    };
    assert!(!unfit(&planned));
    assert!(unfit(&[0, 1, 2, 2]), "a pair without a codeword");
    assert!(unfit(&[3, 0, 0, 1]), "a symbol above K, whose pair would mean another");
}

#[test]
fn runs_that_the_plan_did_not_foresee_are_told() {
    // 14 symbols after runs of at most 15: runs of 128 and more have units from 19 * 14 = 266 on, beyond a byte.
    let symbols: Vec<u8> = (0..4000).map(|i| if i % 16 < i / 16 % 16 { 0 } else { 1 + (i % 14) as u8 }).collect();
    let counts = histogram(std::slice::from_ref(&symbols));
    let tokens = choose::all(&counts, 14, FieldBits::default())
        .into_iter()
        .find(|candidate| matches!(&candidate.coding, Coding::Tokens(tokens) if tokens.rho == 4));
    let coding = tokens.expect("tokens with rho = 4").coding;
    let unfit = |symbols: &[u8]| {
        let mut scratch = Scratch::default();
        coding.encode(symbols, &mut scratch, &mut Vec::new());
        scratch.unfit
    };
    assert!(!unfit(&symbols));
    for zeros in [16, 127, 128, 200, 255, 256, 5000] {
        assert!(unfit(&[&symbols[..1000], &vec![0; zeros], &symbols[1000..]].concat()), "{zeros} zeros");
    }
}

proptest! {
    #[test]
    fn every_coding_comes_back((highest, chunks) in chunks()) {
        let counts = histogram(&chunks);
        let candidates = choose::all(&counts, highest, FieldBits::default());
        let best = Coding::choose(&counts, highest, FieldBits::default(), CodingChoice::Cheapest);
        for candidate in &candidates {
            comes_back(candidate, highest, &chunks);
            prop_assert!(best.bits <= candidate.bits || best.coding.number() == 0);
        }
        comes_back(&best, highest, &chunks);
        comes_back(&Coding::choose(&counts, highest, FieldBits::default(), CodingChoice::Plain), highest, &chunks);
    }

    #[test]
    fn what_is_not_tried_would_not_be_taken(count in 2usize..6000, marked in 0u64..=100, highest in 1u64..=15, gap in 0usize..3000) {
        let mut symbols = uneven(count, marked, highest);
        symbols.splice(count / 2..count / 2, vec![0; gap]);
        let counts = histogram(&[symbols]);
        let best = Coding::choose(&counts, highest as u8, FieldBits::default(), CodingChoice::Cheapest);
        let all = choose::all(&counts, highest as u8, FieldBits::default());
        let least = all.into_iter().min_by_key(|candidate| candidate.bits);
        prop_assert!(best.coding.number() == 0 || Some(best) == least);
    }

    #[test]
    fn the_size_told_is_the_size_written((highest, symbols) in (1u8..=15).prop_flat_map(|k| (Just(k), chunk(k)))) {
        let counts = histogram(std::slice::from_ref(&symbols));
        for candidate in choose::all(&counts, highest, FieldBits::default()) {
            let (mut scratch, mut out) = (Scratch::default(), Vec::new());
            candidate.coding.write_tables(&mut out);
            candidate.coding.encode(&symbols, &mut scratch, &mut out);
            // Padding of up to eight streams of codes and fields, and of the tables.
            let written = out.len() as i64 * 8;
            prop_assert!((written - candidate.bits as i64).abs() <= 8 * 24, "{} {written} {}", candidate.coding.name(), candidate.bits);
        }
    }

    #[test]
    fn damaged_chunks_and_tables_never_panic(
        (highest, chunks) in chunks(), at: prop::sample::Index, flip in 1u8.., cut: prop::sample::Index, n in 0usize..2000,
    ) {
        let mut scratch = Scratch::default();
        for candidate in choose::all(&histogram(&chunks), highest, FieldBits::default()) {
            let mut table = Vec::new();
            candidate.coding.write_tables(&mut table);
            if !table.is_empty() {
                let at = at.index(table.len());
                table[at] ^= flip;
            }
            let coding = Coding::read_tables(candidate.coding.number(), highest, &mut Reader::new(&table));
            let coding = coding.unwrap_or(candidate.coding.clone());
            let mut out = Vec::new();
            candidate.coding.encode(&chunks[0], &mut scratch, &mut out);
            if !out.is_empty() {
                let at = at.index(out.len());
                out[at] ^= flip;
                out.truncate(cut.index(out.len()) + 1);
            }
            for n in [n, chunks[0].len()] {
                let mut decoded = vec![0; n];
                let decoding = Decoding::new(coding.clone(), highest);
                if decoding.decode(&mut Reader::new(&out), &mut decoded, &mut scratch).is_ok() {
                    prop_assert!(decoded.iter().all(|&symbol| symbol <= highest));
                }
            }
        }
    }
}
