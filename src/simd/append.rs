//! Words of codes to a stream of bits. No vector instructions, but unchecked writes.

use crate::kernels::Pending;

/// Bits of a word of codes, at most: as many fit after fewer than 8 that wait.
pub const MOST_BITS: u64 = 56;

/// Writes at most [`MOST_BITS`] bits after those that wait; tells how many bytes are whole then.
///
/// # Safety
/// `out` is valid for writes of 8 bytes.
#[inline(always)]
pub unsafe fn append(waiting: &mut Pending, word: u64, length: u64, out: *mut u8) -> usize {
    let bits = waiting.bits | word << waiting.count;
    // SAFETY: the caller's.
    unsafe { out.cast::<u64>().write_unaligned(bits.to_le()) };
    let total = waiting.count + length as u32;
    *waiting = Pending { bits: bits >> (total & !7), count: total & 7 };
    (total >> 3) as usize
}
