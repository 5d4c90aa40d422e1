//! Golden records of format version 1: they decode for ever.

use ckptz::float::{Element, ElementType};
use ckptz::{Decoder, RecordHeader};
use std::fs;
use std::path::{Path, PathBuf};

/// Header, payload, base and expected content.
fn parts(path: &Path) -> [Vec<u8>; 4] {
    let bytes = fs::read(path).expect("a golden file");
    let lengths: [usize; 4] = std::array::from_fn(|k| {
        u32::from_le_bytes([bytes[4 * k], bytes[4 * k + 1], bytes[4 * k + 2], bytes[4 * k + 3]]) as usize
    });
    let mut at = 16;
    lengths.map(|length| {
        at += length;
        bytes[at - length..at].to_vec()
    })
}

fn golden() -> Vec<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden");
    let files = |folder: &str| fs::read_dir(top.join(folder)).expect("a golden folder");
    let entries = files("arrays").chain(files("paired/arrays")).map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "parts")).collect();
    paths.sort();
    paths
}

fn decodes<E: Element>(path: &Path) {
    let [header, payload, base, expected] = parts(path);
    let count = expected.len() / size_of::<E>();
    let header = RecordHeader::of_bytes(&header, E::TYPE, count).expect("a golden header");
    let mut elements = vec![E::ZERO; count];
    if !base.is_empty() {
        bytemuck::cast_slice_mut(&mut elements).copy_from_slice(&base);
    }
    Decoder::new(&header).expect("alone").decode(&payload, &mut elements).expect("a golden payload");
    assert_eq!(bytemuck::cast_slice::<E, u8>(&elements), expected, "{path:?}");
    let mut again = Vec::new();
    header.write(E::TYPE, &mut again);
    assert_eq!(again, parts(path)[0], "{path:?}");
}

#[test]
fn golden_records_decode() {
    let mut seen = 0;
    for path in golden() {
        let name = path.file_stem().and_then(|s| s.to_str()).expect("a name").to_owned();
        match name.rsplit_once('.').expect("a dtype").1 {
            "float16" => decodes::<half::f16>(&path),
            "bfloat16" => decodes::<half::bf16>(&path),
            "float32" => decodes::<f32>(&path),
            "float64" => decodes::<f64>(&path),
            // Opaque elements: the package's own tests decode their frames.
            _ => {
                let [header, _, _, expected] = parts(&path);
                let size = if name.ends_with("int64") { 8 } else { 1 + u8::from(name.ends_with("16")) };
                let count = expected.len() / usize::from(size);
                RecordHeader::of_bytes(&header, ElementType::Bytes(size), count).expect("a golden header");
            }
        }
        seen += 1;
    }
    assert!(seen >= 84, "{seen} golden records");
}
