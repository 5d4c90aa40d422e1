//! Thread pools, one for each process and number of threads: a forked child has none of its parent's threads.
//!
//! The caller works too. What it starts with is in its cache, it need not wait until another thread has woken up, and one thread
//! less can be put on a core that is taken.

use crate::error::{Error, Result};
use crate::fenv;
use crate::plan::Workers;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// So many results are held before they are folded, for each thread.
const AHEAD: usize = 8;

/// The threads that work on a snapshot. The first is the caller's own.
#[derive(Clone)]
pub struct Pool {
    others: Option<Arc<rayon::ThreadPool>>,
}

type Known = Mutex<Vec<((u32, usize), Arc<rayon::ThreadPool>)>>;

fn known() -> &'static Known {
    static KNOWN: OnceLock<Known> = OnceLock::new();
    KNOWN.get_or_init(Known::default)
}

/// Locks, whether or not a thread has panicked with the lock: none leaves what is under it half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// The pool of this many threads (at least one) in this process. The lock is held for moments, in Python by threads
    /// that hold the interpreter: no child that Python forks finds it held.
    pub fn new(threads: usize) -> Result<Self> {
        if threads <= 1 {
            return Ok(Pool { others: None });
        }
        let key = (std::process::id(), threads);
        let find = || lock(known()).iter().find(|(k, _)| *k == key).map(|(_, pool)| pool.clone());
        if let Some(pool) = find() {
            return Ok(Pool { others: Some(pool) });
        }
        let named = rayon::ThreadPoolBuilder::new().thread_name(|i| format!("ckptz-{i}"));
        let pool = Arc::new(named.num_threads(threads - 1).build().map_err(|_| Error::Threads)?);
        // Another process's pools are of no use here, and dropping them would wait for threads that do not exist.
        lock(known()).push((key, pool.clone()));
        Ok(Pool { others: Some(pool) })
    }

    pub fn threads(&self) -> usize {
        self.others.as_ref().map_or(1, |pool| pool.current_num_threads() + 1)
    }

    /// The results of `work` for every item, in their order, perhaps computed at once; in the standard float environment.
    pub fn map<T: Send, R: Send>(&self, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        let count = items.len();
        let Some(others) = self.others.as_ref().filter(|_| count > 1) else {
            return fenv::standard(|| items.into_iter().map(work).collect());
        };
        let waiting = Mutex::new(items.into_iter().enumerate());
        let done = Mutex::new(Vec::with_capacity(count));
        let help = || {
            let mut own = Vec::new();
            fenv::standard(|| {
                while let Some((number, item)) = take(&waiting) {
                    own.push((number, work(item)));
                }
            });
            lock(&done).append(&mut own);
        };
        others.in_place_scope(|scope| {
            (1..self.threads().min(count)).for_each(|_| scope.spawn(|_| help()));
            help();
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_unstable_by_key(|(number, _)| *number);
        done.into_iter().map(|(_, result)| result).collect()
    }
}

/// The next of what waits, without holding the lock while it is worked on.
fn take<I: Iterator>(waiting: &Mutex<I>) -> Option<I::Item> {
    lock(waiting).next()
}

impl Workers for Pool {
    fn in_order<R: Send>(&self, count: usize, work: impl Fn(usize) -> R + Sync, mut fold: impl FnMut(R)) {
        if self.others.is_none() {
            return fenv::standard(|| (0..count).for_each(|i| fold(work(i))));
        }
        let batch = AHEAD * self.threads();
        for start in (0..count).step_by(batch) {
            let numbers = (start..(start + batch).min(count)).collect();
            self.map(numbers, &work).into_iter().for_each(&mut fold);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::AssertUnwindSafe;

    #[test]
    fn results_come_in_order_on_any_number_of_threads() {
        for threads in [1, 2, 5] {
            let pool = Pool::new(threads).expect("threads start");
            let mut seen = Vec::new();
            pool.in_order(100, |i| i * i, |square| seen.push(square));
            assert_eq!(seen, (0..100).map(|i| i * i).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
        let pool = Pool::new(3).expect("threads start");
        for bad in [0, 7, 63] {
            let work = |i: usize| if i == bad { panic!("piece {i}") } else { i };
            let found = std::panic::catch_unwind(AssertUnwindSafe(|| pool.map((0..64).collect(), work)));
            assert!(found.is_err());
            assert_eq!(pool.map((0..64).collect(), |i: usize| i), (0..64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn many_callers_share_a_pool() {
        let call = |of: usize| {
            let pool = Pool::new(2).expect("threads start");
            let squares =
                |_| pool.map((0..50).collect(), |i: usize| i * of) == (0..50).map(|i| i * of).collect::<Vec<_>>();
            (0..20).all(squares)
        };
        let all = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..6).map(|of| scope.spawn(move || call(of))).collect();
            callers.into_iter().all(|caller| caller.join().is_ok_and(|fine| fine))
        });
        assert!(all);
    }

    #[test]
    fn pieces_of_pieces_are_done() {
        let pool = Pool::new(2).expect("threads start");
        let sums = pool.map((0..8).collect(), |i: u64| pool.map((0..i).collect(), |k: u64| k).iter().sum::<u64>());
        assert_eq!(sums, [0, 0, 1, 3, 6, 10, 15, 21]);
    }
}
