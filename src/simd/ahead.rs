//! Memory that is needed soon, asked for a little at a time beside work that touches other memory.

/// A line of cache.
pub const LINE: usize = 64;

/// Stretches of memory, as addresses: they are asked for and never read, so that nothing depends on what is there.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ahead {
    next: [usize; 2],
    /// Lines left of each.
    lines: usize,
}

impl Ahead {
    /// Two stretches of a length; or the two halves of one.
    pub fn of<T>(first: &[T], second: &[T]) -> Self {
        let next = [first, second].map(|stretch| stretch.as_ptr().addr());
        Ahead { next, lines: size_of_val(first) / LINE }
    }

    /// Asks for the next lines of both stretches.
    #[inline(always)]
    pub fn step(&mut self, lines: usize) {
        if lines > self.lines {
            return;
        }
        for next in &mut self.next {
            for line in 0..lines {
                ask(*next + LINE * line);
            }
            *next += LINE * lines;
        }
        self.lines -= lines;
    }
}

/// A prefetch of an address that is not mapped does nothing.
#[inline(always)]
fn ask(address: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: every x86-64 has SSE, and nothing is read.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(std::ptr::without_provenance(address)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
