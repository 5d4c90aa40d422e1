//! Code tables in a record header (format.md, section 6).

use super::{Coding, Pairs, Tokens};
use crate::bits::{BitReader, BitWriter};
use crate::error::Parsed;
use crate::huffman::Code;
use crate::wire::Reader;

/// Bits of a length that nothing is known about.
pub const FIRST_LENGTH_BITS: u64 = 4;

impl Coding {
    /// Appends the tables.
    pub fn write_tables(&self, out: &mut Vec<u8>) {
        match self {
            Coding::Constant(symbol) => out.push(*symbol),
            Coding::Plain(code) => write_nibbles(code.lengths(), out),
            Coding::Mask { masks, symbols } => {
                write_nibbles(masks.lengths(), out);
                if let Some(code) = symbols {
                    write_nibbles(code.lengths(), out);
                }
            }
            Coding::Tokens(tokens) => {
                let row = usize::from(tokens.highest);
                out.push(tokens.rho as u8);
                out.push((tokens.code.lengths().len() / row) as u8);
                write_packed(tokens.code.lengths(), row, out);
            }
            Coding::Fixed(_) => {}
            Coding::Pairs(pairs) => write_nibbles(pairs.code.lengths(), out),
        }
    }

    /// Reads the tables of the coding with this number, for the highest symbol K.
    pub fn read_tables(number: u8, highest: u8, input: &mut Reader<'_>) -> Parsed<Self> {
        Ok(match number {
            0 => {
                let symbol = input.u8()?;
                if symbol > highest {
                    return Err(input.flaw("the constant symbol is above the highest"));
                }
                Coding::Constant(symbol)
            }
            1 => Coding::Plain(read_nibbles(usize::from(highest) + 1, input)?),
            2 if highest == 1 => Coding::Mask { masks: read_nibbles(256, input)?, symbols: None },
            2 if highest > 1 => Coding::Mask {
                masks: read_nibbles(256, input)?,
                symbols: Some(read_nibbles(usize::from(highest), input)?),
            },
            3 => read_tokens(highest, input)?,
            4 if highest > 0 => Coding::Fixed(8 - highest.leading_zeros()),
            5 if highest > 0 => Coding::Pairs(Pairs { highest, code: read_nibbles(Pairs::units(highest), input)? }),
            2 | 4 | 5 => return Err(input.flaw("a coding that needs symbols without any")),
            _ => return Err(input.flaw("an unknown coding")),
        })
    }
}

fn code_of(lengths: &[u8], input: &Reader<'_>) -> Parsed<Code> {
    Code::of_lengths(lengths).ok_or_else(|| input.flaw("code lengths that are not a complete code"))
}

fn write_nibbles(lengths: &[u8], out: &mut Vec<u8>) {
    for pair in lengths.chunks(2) {
        out.push(pair[0] | pair.get(1).map_or(0, |length| length << 4));
    }
}

fn read_nibbles(count: usize, input: &mut Reader<'_>) -> Parsed<Code> {
    let bytes = input.slice(count.div_ceil(2))?;
    let mut lengths: Vec<u8> = bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]).collect();
    if lengths[count..].iter().any(|&rest| rest != 0) {
        return Err(input.flaw("the last half byte of a table is not zero"));
    }
    lengths.truncate(count);
    code_of(&lengths, input)
}

fn read_tokens(highest: u8, input: &mut Reader<'_>) -> Parsed<Coding> {
    let rho = u32::from(input.u8()?);
    let rows = u32::from(input.u8()?);
    let count = usize::from(highest) * rows as usize;
    if rho > 4 || !(2..=256).contains(&count) || rows > (1 << rho) + 24 - rho {
        return Err(input.flaw("a token table of an impossible shape"));
    }
    let lengths = read_packed(count, usize::from(highest), input)?;
    Ok(Coding::Tokens(Tokens { rho, highest, code: code_of(&lengths, input)? }))
}

/// A length against the one in the row above: prefix, its width, and whether four more bits follow.
fn step(length: u8, above: u8) -> (u64, u32, bool) {
    match i16::from(length) - i16::from(above) {
        0 => (0b0, 1, false),
        1 => (0b01, 2, false),
        -1 => (0b011, 3, false),
        _ => (0b111, 3, true),
    }
}

/// Bits that [`write_packed`] takes.
pub fn packed_bits(lengths: &[u8], row: usize, first: u64) -> u64 {
    let rest = lengths.iter().zip(lengths.iter().skip(row));
    let bits = rest.map(|(&above, &length)| {
        let (_, width, more) = step(length, above);
        u64::from(width) + if more { 4 } else { 0 }
    });
    first * row.min(lengths.len()) as u64 + bits.sum::<u64>()
}

/// Bits that [`write_packed`] takes at least, whatever lengths these counts get.
pub fn least_packed_bits(counts: &[u64], row: usize, first: u64) -> u64 {
    let rest = counts.iter().zip(counts.iter().skip(row));
    // A step between a symbol that is used and one that is not is written out, unless the length is 1: two can have that one,
    // with two steps each.
    let bits: u64 = rest.map(|(above, count)| if (*above > 0) == (*count > 0) { 1 } else { 7 }).sum();
    let short = 4 * (7 - 2);
    first * row.min(counts.len()) as u64 + bits.saturating_sub(short)
}

fn write_packed(lengths: &[u8], row: usize, out: &mut Vec<u8>) {
    let mut writer = BitWriter::new(out);
    for (i, &length) in lengths.iter().enumerate() {
        if i < row {
            writer.put(u64::from(length), 4);
            continue;
        }
        let (prefix, width, more) = step(length, lengths[i - row]);
        writer.put(prefix, width);
        if more {
            writer.put(u64::from(length), 4);
        }
    }
    writer.finish();
}

fn read_packed(count: usize, row: usize, input: &mut Reader<'_>) -> Parsed<Vec<u8>> {
    let start = input.position();
    let mut peeked = input.clone();
    let mut reader = BitReader::new(peeked.slice(peeked.remaining())?);
    let mut lengths: Vec<u8> = Vec::with_capacity(count);
    for i in 0..count {
        let length = if i < row { reader.get(4)? as u8 } else { read_step(&mut reader, lengths[i - row])? };
        lengths.push(length);
    }
    let used = reader.finish().map_err(|flaw| flaw.shifted(start))?;
    input.slice(used)?;
    Ok(lengths)
}

fn read_step(reader: &mut BitReader<'_>, above: u8) -> Parsed<u8> {
    if reader.get(1)? == 0 {
        return Ok(above);
    }
    if reader.get(1)? == 0 {
        return Ok(above.wrapping_add(1));
    }
    if reader.get(1)? == 0 {
        // A wrapped length fails the check of the whole code.
        return Ok(above.wrapping_sub(1));
    }
    Ok(reader.get(4)? as u8)
}
