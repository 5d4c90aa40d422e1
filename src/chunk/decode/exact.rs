//! Exact records: classes and fields, together again.

#[cfg(target_arch = "x86_64")]
use crate::checksum::ContentSum;
use crate::chunk::Scratch;
use crate::coding::{Coding, FieldReader, unpack};
use crate::error::Parsed;
#[cfg(target_arch = "x86_64")]
use crate::exact::ExponentClass;
use crate::exact::{Cut, ESCAPE, LaneCut, WINDOW, Window, find_escapes, has_byte_fields};
use crate::float::{Element, ElementType};
#[cfg(target_arch = "x86_64")]
use crate::kernels::GROUP;
#[cfg(target_arch = "x86_64")]
use crate::simd::{self, FIELD_BYTES};
use crate::wire::Reader;

/// The class of each symbol in this window; symbol 0 and those that have none have none.
fn classes_of(window: Window) -> [Option<u16>; WINDOW as usize + 1] {
    std::array::from_fn(|symbol| if symbol == 0 { None } else { window.class(symbol as u8) })
}

/// Elements from their symbols in `scratch`, and escapes and fields in `input`. Returns the content sum if it is asked for
/// and can be taken on the way.
pub fn apply_exact<E: Element, C: LaneCut<E>>(
    cut: C,
    window: Window,
    coding: &Coding,
    input: &mut Reader<'_>,
    base: &mut [E],
    sum: bool,
    scratch: &mut Scratch,
) -> Parsed<Option<u64>> {
    let Scratch { symbols, escapes, cuts, .. } = scratch;
    find_escapes(symbols, &mut cuts.marks, &mut cuts.escaped);
    read_escapes(E::TYPE, cuts.escaped.len(), escapes, input)?;
    #[cfg(target_arch = "x86_64")]
    if let (Some(avx2), true, ElementType::F32, false) =
        (simd::avx2(), C::ZEROS_HAVE_FIELDS, E::TYPE, coding.skips_zeros())
    {
        let base = bytemuck::cast_slice_mut(base);
        return Joiner { window, symbols, escapes: escapes.iter() }.join(avx2, input, base, sum);
    }
    let classes = classes_of(window);
    let zeros_too = C::ZEROS_HAVE_FIELDS && !coding.skips_zeros();
    if E::BITS <= 32 && cuts.classify::<E, C>(window, symbols, zeros_too, escapes) {
        if zeros_too && has_byte_fields::<E>() {
            let clean = cuts.join_bytes(symbols, input.slice(symbols.len())?, base);
            return if clean { Ok(None) } else { Err(input.flaw("a zero with bits")) };
        }
        unpack(input, &cuts.widths, &mut cuts.fields)?;
        let clean = cuts.join::<E, C>(symbols, zeros_too, base);
        return if clean { Ok(None) } else { Err(input.flaw("a zero with bits")) };
    }
    let zeros = symbols.iter().filter(|symbol| **symbol == 0).count();
    let mut fields = FieldReader::new(input, symbols.len() - if zeros_too { 0 } else { zeros });
    let mut escaped = escapes.iter();
    for (b, &symbol) in base.iter_mut().zip(symbols.iter()) {
        if symbol == 0 {
            if zeros_too {
                if fields.get(cut.field_width(0)) != 0 {
                    return Err(input.flaw("a zero with bits"));
                }
                *b = E::ZERO;
            }
            continue;
        }
        let class = if symbol == ESCAPE { escaped.next().copied() } else { classes[usize::from(symbol)] };
        let class = class.filter(|class| usize::from(*class) < C::CLASSES);
        let joined = class.and_then(|class| cut.join(class, fields.get(cut.field_width(class)), *b));
        *b = joined.ok_or_else(|| input.flaw("a symbol or a field that no element has"))?;
    }
    fields.finish(input)?;
    Ok(None)
}

/// Classes of f32 where every element has a field of 24 bits.
#[cfg(target_arch = "x86_64")]
struct Joiner<'a> {
    window: Window,
    symbols: &'a [u8],
    /// Classes of the escapes still to come.
    escapes: std::slice::Iter<'a, u16>,
}

#[cfg(target_arch = "x86_64")]
impl Joiner<'_> {
    fn join(&mut self, avx2: simd::Avx2, input: &mut Reader<'_>, target: &mut [f32], sum: bool) -> Parsed<Option<u64>> {
        let fields = input.slice(3 * target.len())?;
        let mut taken = ContentSum::default();
        // The vector code reads up to 8 bytes past the fields of its last group.
        let mut done = fields.len().saturating_sub(8) / FIELD_BYTES * GROUP;
        if let (1.., 13.., Ok(top)) = (done, self.window.top, u8::try_from(self.window.top)) {
            let symbols = self.symbols;
            let mut whole = true;
            avx2.join_classes(
                top,
                &symbols[..done],
                fields,
                &mut target[..done],
                &mut taken.lanes,
                |number, symbols, target| {
                    whole = self.join_plain(symbols, &fields[FIELD_BYTES * number..], target);
                    whole
                },
            );
            if !whole {
                return Err(input.flaw("a field that no element has"));
            }
            taken.bytes = 4 * done as u64;
        } else {
            done = 0;
        }
        let symbols = self.symbols;
        if !self.join_plain(&symbols[done..], &fields[3 * done..], &mut target[done..]) {
            return Err(input.flaw("a field that no element has"));
        }
        Ok(sum.then(|| {
            taken.update(bytemuck::cast_slice(&target[done..]));
            taken.value()
        }))
    }

    /// False where a symbol has no class, or a zero has bits.
    fn join_plain(&mut self, symbols: &[u8], fields: &[u8], target: &mut [f32]) -> bool {
        for ((t, &symbol), field) in target.iter_mut().zip(symbols).zip(fields.chunks_exact(3)) {
            let field = u64::from(field[0]) | u64::from(field[1]) << 8 | u64::from(field[2]) << 16;
            let class = match symbol {
                0 if field == 0 => Some(0),
                0 => None,
                ESCAPE => self.escapes.next().copied(),
                _ => self.window.class(symbol),
            };
            match class.and_then(|class| ExponentClass.join(class, field, 0.0)) {
                Some(element) => *t = element,
                None => return false,
            }
        }
        true
    }
}

fn read_escapes(element: ElementType, count: usize, escapes: &mut Vec<u16>, input: &mut Reader<'_>) -> Parsed<()> {
    escapes.clear();
    if element == ElementType::F64 {
        let bytes = input.slice(2 * count)?;
        escapes.extend(bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])));
    } else {
        escapes.extend(input.slice(count)?.iter().map(|&byte| u16::from(byte)));
    }
    Ok(())
}
