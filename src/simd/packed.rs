//! A stream of raw bits, many fields at a time. No vector instructions, but unchecked reads and writes.

use super::{bits, highest_of};

/// Fields that are written or read between two looks at the end.
pub const GROUP: usize = 16;

/// Bits that a field has at most.
pub const WIDEST: u8 = 32;

/// Writes as many fields as can be written without looking at the end of `out`, eight or four (`fours`), or two at a time. Tells how many
/// fields and whole bytes, and which bits (fewer than 8) wait and how many they are. A field has no bits above its width.
pub fn pack(fields: &[u32], widths: &[u8], fours: bool, out: &mut [u8]) -> Packed {
    match super::avx2() {
        #[cfg(target_arch = "x86_64")]
        Some(avx2) => avx2.pack(fields, widths, fours, out),
        _ => pack_groups(fields, widths, out, |packed, fields, widths, out| {
            // SAFETY: as `pack_groups` has it.
            unsafe { packed.put_group(fields, widths, &Pairs::of(fields, widths), fours, out) };
        }),
    }
}

/// What has been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    pub fields: usize,
    pub bytes: usize,
    pub bits: u64,
    pub count: u32,
}

impl Packed {
    /// Adds at most 56 bits.
    ///
    /// # Safety
    /// `out` is valid for writes from `bytes` on for 8 bytes.
    #[inline(always)]
    pub unsafe fn put(&mut self, value: u64, width: u32, out: *mut u8) {
        self.bits |= value << self.count;
        // SAFETY: the caller's.
        unsafe { out.add(self.bytes).cast::<u64>().write_unaligned(self.bits.to_le()) };
        let count = self.count + width;
        self.bytes += (count >> 3) as usize;
        self.bits >>= count & !7;
        self.count = count & 7;
    }

    /// Adds a group's fields: eight or four (`fours`), two or one at a time.
    ///
    /// # Safety
    /// `out` is valid for writes from `bytes` on for [`GROUP_BYTES`].
    #[inline(always)]
    pub unsafe fn put_group(
        &mut self,
        fields: &[u32; GROUP],
        widths: &[u8; GROUP],
        pairs: &Pairs,
        fours: bool,
        out: *mut u8,
    ) {
        // SAFETY: a group's fields have at most 4 * GROUP bytes.
        unsafe {
            if fours && pairs.widest <= 14 {
                for k in (0..PAIRS).step_by(4) {
                    let (value, width) = join(pairs.four(k), pairs.four(k + 2));
                    self.put(value, width as u32, out);
                }
            } else if fours && pairs.widest <= 28 {
                for k in (0..PAIRS).step_by(2) {
                    let (value, width) = pairs.four(k);
                    self.put(value, width as u32, out);
                }
            } else if pairs.widest <= 56 {
                for k in 0..PAIRS {
                    self.put(pairs.values[k], pairs.widths[k] as u32, out);
                }
            } else {
                for k in 0..GROUP {
                    self.put(u64::from(fields[k]), u32::from(widths[k]), out);
                }
            }
        }
    }
}

/// As [`pack`]. `put` writes a group: `out` is valid for [`GROUP_BYTES`] from where it goes.
#[inline(always)]
pub fn pack_groups(
    fields: &[u32],
    widths: &[u8],
    out: &mut [u8],
    put: impl Fn(&mut Packed, &[u32; GROUP], &[u8; GROUP], *mut u8),
) -> Packed {
    let mut packed = Packed { fields: 0, bytes: 0, bits: 0, count: 0 };
    if highest_of(widths) > WIDEST {
        return packed;
    }
    let (groups, _) = fields.as_chunks::<GROUP>();
    let (group_widths, _) = widths.as_chunks::<GROUP>();
    let end = out.as_mut_ptr();
    for (fields, widths) in groups.iter().zip(group_widths) {
        if packed.bytes + GROUP_BYTES > out.len() {
            break;
        }
        put(&mut packed, fields, widths, end);
        packed.fields += GROUP;
    }
    packed
}

/// Bytes that a group's fields have at most, and a word that the last goes into.
pub const GROUP_BYTES: usize = 4 * GROUP + 8;

pub const PAIRS: usize = GROUP / 2;

/// Two fields of a group in a word each.
pub struct Pairs {
    pub values: [u64; PAIRS],
    pub widths: [u64; PAIRS],
    /// The largest of these.
    pub widest: u64,
}

impl Pairs {
    #[inline(always)]
    pub fn of(fields: &[u32; GROUP], widths: &[u8; GROUP]) -> Self {
        let mut pairs = Pairs { values: [0; PAIRS], widths: [0; PAIRS], widest: 0 };
        for k in 0..PAIRS {
            let first = u64::from(widths[2 * k] & 63);
            pairs.values[k] = u64::from(fields[2 * k]) | u64::from(fields[2 * k + 1]) << first;
            pairs.widths[k] = first + u64::from(widths[2 * k + 1]);
            pairs.widest = pairs.widest.max(pairs.widths[k]);
        }
        pairs
    }

    /// Two pairs from this one on, together.
    #[inline(always)]
    fn four(&self, k: usize) -> (u64, u64) {
        join((self.values[k], self.widths[k]), (self.values[k + 1], self.widths[k + 1]))
    }
}

/// Reads as many fields as can be read without looking at the end of `bytes`, each with other bits above its width. Tells how
/// many, and how many bits they have.
pub fn unpack(bytes: &[u8], widths: &[u8], fields: &mut [u32]) -> (usize, usize) {
    if highest_of(widths) > WIDEST {
        return (0, 0);
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the widths have been looked at.
    let from = super::avx512().map_or((0, 0), |avx512| unsafe { avx512.unpack(bytes, widths, fields) });
    #[cfg(not(target_arch = "x86_64"))]
    let from = (0, 0);
    unpack_groups(bytes, widths, fields, from)
}

/// Two runs of bits, one after the other.
#[inline(always)]
fn join((first, length): (u64, u64), (second, second_length): (u64, u64)) -> (u64, u64) {
    (first | second << length, length + second_length)
}

bits! {
    /// The same of fields up to [`WIDEST`], where some are read already.
    fn unpack_groups[](bytes: &[u8], widths: &[u8], fields: &mut [u32], from: (usize, usize)) -> (usize, usize) {
        let (mut done, mut at) = from;
        let (groups, _) = fields[done..].as_chunks_mut::<GROUP>();
        let (group_widths, _) = widths[done..].as_chunks::<GROUP>();
        let start = bytes.as_ptr();
        for (fields, widths) in groups.iter_mut().zip(group_widths) {
            if at / 8 + 4 * GROUP + 8 > bytes.len() {
                break;
            }
            for (field, &width) in fields.iter_mut().zip(widths) {
                // SAFETY: the fields of a group before this one have less than 4 * GROUP bytes, and as many and 8 more are left.
                let word = unsafe { start.add(at >> 3).cast::<u64>().read_unaligned() };
                *field = (u64::from_le(word) >> (at & 7)) as u32;
                at += usize::from(width);
            }
            done += GROUP;
        }
        (done, at)
    }
}
