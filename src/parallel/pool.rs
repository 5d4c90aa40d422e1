//! Thread pools, one for each process and number of threads: a forked child has none of its parent's threads.
//!
//! The caller works too. What it starts with is in its cache, it need not wait until another thread has woken up, and one thread
//! less can be put on a core that is taken.

use crate::error::{Error, Result};
use crate::fenv;
use crate::plan::Workers;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

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
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
        let mut results = Vec::with_capacity(items.len());
        self.map_each(items, work, |result| results.push(result));
        results
    }

    /// Calls `take`, in the calling thread, with each of these results in their order, while others are computed. `work` may call
    /// this again, but what that works on may not: whoever waits must not be waited for.
    pub fn map_each<T: Send, R: Send>(&self, items: Vec<T>, work: impl Fn(T) -> R + Sync, mut take: impl FnMut(R)) {
        let count = items.len();
        let Some(others) = self.others.as_ref().filter(|_| count > 1) else {
            return fenv::standard(|| items.into_iter().for_each(|item| take(work(item))));
        };
        let waiting = Mutex::new(items.into_iter().enumerate());
        let results = Results::new(count);
        let do_one = || {
            // Without holding the lock while it is worked on.
            let Some((number, item)) = ({ lock(&waiting).next() }) else { return false };
            results.put(number, work(item));
            true
        };
        others.in_place_scope(|scope| {
            for _ in 1..self.threads().min(count) {
                scope.spawn(|_| {
                    let _tell = TellOfPanic(&results);
                    fenv::standard(|| while do_one() {});
                });
            }
            fenv::standard(|| {
                let mut next = 0;
                while next < count {
                    // Whatever is ready goes before more work: it is still in some cache.
                    if let Some(result) = results.ready(next) {
                        take(result);
                        next += 1;
                    } else if !do_one() && !results.wait_for(next) {
                        // The scope goes on with the panic.
                        break;
                    }
                }
            });
        });
    }
}

/// What has been computed and not yet been taken.
struct Results<R> {
    state: Mutex<State<R>>,
    changed: Condvar,
}

struct State<R> {
    by_number: Vec<Option<R>>,
    /// Whether the caller waits: waking up nobody costs as much as waking up somebody.
    awaited: bool,
    panicked: bool,
}

impl<R> Results<R> {
    fn new(count: usize) -> Self {
        let by_number = std::iter::repeat_with(|| None).take(count).collect();
        Results { state: Mutex::new(State { by_number, awaited: false, panicked: false }), changed: Condvar::new() }
    }

    fn put(&self, number: usize, result: R) {
        self.change(|state| state.by_number[number] = Some(result));
    }

    fn change(&self, change: impl FnOnce(&mut State<R>)) {
        let mut state = lock(&self.state);
        change(&mut state);
        if state.awaited {
            self.changed.notify_all();
        }
    }

    fn ready(&self, number: usize) -> Option<R> {
        lock(&self.state).by_number[number].take()
    }

    /// Waits for what another thread is working on; false if one has panicked.
    fn wait_for(&self, number: usize) -> bool {
        let mut state = lock(&self.state);
        state.awaited = true;
        while state.by_number[number].is_none() && !state.panicked {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.awaited = false;
        !state.panicked
    }
}

/// Tells whoever waits for results that one will not come.
struct TellOfPanic<'a, R>(&'a Results<R>);

impl<R> Drop for TellOfPanic<'_, R> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.change(|state| state.panicked = true);
        }
    }
}

impl Workers for Pool {
    fn in_order<R: Send>(&self, count: usize, work: impl Fn(usize) -> R + Sync, fold: impl FnMut(R)) {
        self.map_each((0..count).collect(), work, fold);
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
    fn results_are_taken_while_others_are_computed() {
        let pool = Pool::new(2).expect("threads start");
        let taken = std::sync::atomic::AtomicUsize::new(0);
        let order = std::sync::atomic::Ordering::SeqCst;
        // The last piece is not done before the first has been taken, if that is waited for in vain the test hangs.
        let work = |i: usize| {
            while i == 63
                && taken.load(order) == 0
                && std::thread::current().name().is_some_and(|n| n.starts_with("ckptz"))
            {
                std::thread::yield_now();
            }
            i
        };
        let mut seen = Vec::new();
        pool.map_each((0..64).collect(), work, |i| {
            taken.fetch_add(1, order);
            seen.push(i);
        });
        assert_eq!(seen, (0..64).collect::<Vec<_>>());
    }

    #[test]
    fn a_panic_of_another_thread_ends_the_wait() {
        let pool = Pool::new(2).expect("threads start");
        let caller = std::thread::current().id();
        for _ in 0..50 {
            let work = |_: usize| {
                if std::thread::current().id() != caller {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    panic!("not the caller");
                }
                std::thread::sleep(std::time::Duration::from_micros(200));
            };
            let mut taken = 0;
            let map = AssertUnwindSafe(|| pool.map_each((0..3).collect(), work, |()| taken += 1));
            // The other thread may have come too late to get a piece.
            assert!(std::panic::catch_unwind(map).is_err() || taken == 3);
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
