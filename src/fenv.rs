//! The floating-point environment: every thread that computes runs with subnormals kept and rounding to nearest even,
//! whatever its caller has set (a training framework may flush subnormals to zero), and puts the caller's setting back.

/// Runs `work` in the standard environment.
pub fn standard<T>(work: impl FnOnce() -> T) -> T {
    let _restore = Standard::enter();
    isolated(work)
}

/// A call that is not inlined: arithmetic in registers cannot be moved across the change of environment.
#[inline(never)]
fn isolated<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Puts the caller's environment back when dropped, also by a panic.
struct Standard {
    #[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(dead_code))]
    before: u64,
}

#[cfg(target_arch = "x86_64")]
mod register {
    use std::arch::asm;

    /// All exceptions masked, round to nearest even, no flush to zero, no denormals as zero.
    pub const STANDARD: u64 = 0x1f80;

    pub fn read() -> u64 {
        let mut value = 0u32;
        // SAFETY: stores the 32 bits of MXCSR to a local variable and touches nothing else.
        unsafe { asm!("stmxcsr [{}]", in(reg) &mut value, options(nostack, preserves_flags)) };
        u64::from(value)
    }

    pub fn write(value: u64) {
        let value = value as u32;
        // SAFETY: `value` is STANDARD, or came from `read`, so no reserved bit is set; or it is that with the two flush bits, which
        // every x86-64 has, for a test that runs under them and expects their results. Rust code may not rely on another
        // environment than the standard one, and that is the one in force while our own code computes.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &value, options(nostack, preserves_flags)) };
    }
}

#[cfg(target_arch = "aarch64")]
mod register {
    use std::arch::asm;

    /// Round to nearest even, no flush to zero, no default NaN, no traps.
    pub const STANDARD: u64 = 0;

    pub fn read() -> u64 {
        let value: u64;
        // SAFETY: reads the control register FPCR only.
        unsafe { asm!("mrs {}, fpcr", out(reg) value, options(nomem, nostack, preserves_flags)) };
        value
    }

    pub fn write(value: u64) {
        // SAFETY: `value` is STANDARD or came from `read`; see the contract on x86-64.
        unsafe { asm!("msr fpcr, {}", in(reg) value, options(nomem, nostack, preserves_flags)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod register {
    pub const STANDARD: u64 = 0;

    pub fn read() -> u64 {
        STANDARD
    }

    pub fn write(_value: u64) {}
}

/// The bits that change results; sticky exception flags are the caller's own business.
#[cfg(target_arch = "x86_64")]
const CONTROL: u64 = 0xffc0;
#[cfg(not(target_arch = "x86_64"))]
const CONTROL: u64 = u64::MAX;

impl Standard {
    fn enter() -> Self {
        let before = register::read();
        if before & CONTROL != register::STANDARD & CONTROL {
            register::write(register::STANDARD);
        }
        Standard { before }
    }
}

impl Drop for Standard {
    fn drop(&mut self) {
        if register::read() & CONTROL != self.before & CONTROL {
            register::write(self.before);
        }
    }
}

/// Runs `work` with subnormals flushed to zero, as a framework may leave a thread. For tests alone: what `work` computes outside
/// [`standard`] is not what Rust promises.
#[doc(hidden)]
#[cfg(target_arch = "x86_64")]
pub fn flushing<T>(work: impl FnOnce() -> T) -> T {
    let restore = Standard { before: register::read() };
    register::write(restore.before | 0x8040);
    let result = isolated(work);
    drop(restore);
    result
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use std::hint::black_box;

    fn halves_a_subnormal() -> bool {
        black_box(f32::MIN_POSITIVE) * black_box(0.5) != 0.0
    }

    #[test]
    fn subnormals_are_kept_inside_and_the_caller_keeps_its_setting() {
        flushing(|| {
            assert!(!halves_a_subnormal());
            assert!(standard(halves_a_subnormal));
            assert!(!halves_a_subnormal());
            let panicked = std::panic::catch_unwind(|| standard(|| panic!("in the middle")));
            assert!(panicked.is_err());
            assert!(!halves_a_subnormal());
        });
        assert!(halves_a_subnormal());
    }
}
