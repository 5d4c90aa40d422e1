//! A stream of raw bits, many fields at a time. No vector instructions, but unchecked reads and writes.

use super::wide;

/// Fields that are written or read between two looks at the end.
const GROUP: usize = 16;

/// Bits that a field has at most.
pub const WIDEST: u8 = 32;

wide! {
    /// Writes as many fields as can be written without looking at the end of `out`, four or two (`fours`) at a time. Tells how many
    /// fields and whole bytes, and which bits (fewer than 8) wait and how many they are. A field has no bits above its width.
    pub fn pack[](fields: &[u32], widths: &[u8], fours: bool, out: &mut [u8]) -> Packed {
        let packed = Packed { fields: 0, bytes: 0, bits: 0, count: 0 };
        if widths.iter().fold(0, |most: u8, &width| most.max(width)) > WIDEST {
            return packed;
        }
        if fours { pack_joined::<4>(packed, fields, widths, out) } else { pack_joined::<2>(packed, fields, widths, out) }
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
    unsafe fn put(&mut self, value: u64, width: u32, out: *mut u8) {
        self.bits |= value << self.count;
        // SAFETY: the caller's.
        unsafe { out.add(self.bytes).cast::<u64>().write_unaligned(self.bits.to_le()) };
        let count = self.count + width;
        self.bytes += (count >> 3) as usize;
        self.bits >>= count & !7;
        self.count = count & 7;
    }
}

/// All widths are at most [`WIDEST`].
#[inline(always)]
fn pack_joined<const N: usize>(mut packed: Packed, fields: &[u32], widths: &[u8], out: &mut [u8]) -> Packed {
    let (groups, _) = fields.as_chunks::<GROUP>();
    let (group_widths, _) = widths.as_chunks::<GROUP>();
    let end = out.as_mut_ptr();
    for (fields, widths) in groups.iter().zip(group_widths) {
        if packed.bytes + 4 * GROUP + 8 > out.len() {
            break;
        }
        let (fields, _) = fields.as_chunks::<N>();
        let (widths, _) = widths.as_chunks::<N>();
        for (fields, widths) in fields.iter().zip(widths) {
            let (mut value, mut width) = (0u64, 0u32);
            for k in 0..N {
                value |= u64::from(fields[k]).wrapping_shl(width);
                width += u32::from(widths[k]);
            }
            // SAFETY: a group's fields have at most 4 * GROUP bytes, and as many and 8 more are left, as was looked at.
            unsafe {
                if width <= 56 {
                    packed.put(value, width, end);
                } else {
                    for k in 0..N {
                        packed.put(u64::from(fields[k]), u32::from(widths[k]), end);
                    }
                }
            }
        }
        packed.fields += GROUP;
    }
    packed
}

wide! {
    /// Reads as many fields as can be read without looking at the end of `bytes`, each with other bits above its width. Tells how
    /// many, and how many bits they have.
    pub fn unpack[](bytes: &[u8], widths: &[u8], fields: &mut [u32]) -> (usize, usize) {
        let (mut at, mut done) = (0usize, 0);
        if widths.iter().fold(0, |most: u8, &width| most.max(width)) > WIDEST {
            return (0, 0);
        }
        let (groups, _) = fields.as_chunks_mut::<GROUP>();
        let (group_widths, _) = widths.as_chunks::<GROUP>();
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
