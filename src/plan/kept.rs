//! Memory for samples, which threads keep from plan to plan: fresh pages would cost more than what is done with them.

use crate::float::Element;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Buffers that a thread keeps, and the words that one of them has at most: a sample of f64. Of f32 all have 1.5 MiB.
const MOST: usize = 6;
const LARGEST: usize = 1 << 16;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u64>>> = const { RefCell::new(Vec::new()) };
}

/// Some entries, in memory that the thread that drops them keeps.
pub struct Kept<E> {
    words: Vec<u64>,
    entries: usize,
    of: PhantomData<E>,
}

impl<E: Element> Kept<E> {
    /// Room for so many entries, whatever they are.
    pub fn with_room(entries: usize) -> Self {
        let needed = (entries * size_of::<E>()).div_ceil(8);
        let mut words = Vec::new();
        if needed > 0 {
            words = KEPT.with_borrow_mut(Vec::pop).unwrap_or_default();
            words.reserve_exact(needed.saturating_sub(words.len()));
            words.resize(words.len().max(needed), 0);
        }
        Kept { words, entries, of: PhantomData }
    }
}

impl<E: Element> Deref for Kept<E> {
    type Target = [E];

    fn deref(&self) -> &[E] {
        &bytemuck::cast_slice(&self.words)[..self.entries]
    }
}

impl<E: Element> DerefMut for Kept<E> {
    fn deref_mut(&mut self) -> &mut [E] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.entries]
    }
}

impl<E> Drop for Kept<E> {
    fn drop(&mut self) {
        let words = std::mem::take(&mut self.words);
        if words.is_empty() || words.capacity() > LARGEST {
            return;
        }
        // At the end of a thread there is nothing left to keep it.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < MOST {
                kept.push(words);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn memory_is_used_again() {
        let first = Kept::<f32>::with_room(1000);
        let place = first.words.as_ptr();
        assert_eq!(first.len(), 1000);
        drop(first);
        let mut second = Kept::<f16>::with_room(999);
        assert_eq!((second.words.as_ptr(), second.len()), (place, 999));
        second[998] = f16::ONE;
        drop((0..2 * MOST).map(|_| Kept::<f64>::with_room(10)).collect::<Vec<_>>());
        drop(second);
        assert!(Kept::<f32>::with_room(0).is_empty());
        drop(Kept::<f64>::with_room(LARGEST + 1));
        assert!(KEPT.with_borrow(|kept| kept.len() <= MOST && kept.iter().all(|words| words.capacity() <= LARGEST)));
    }
}
