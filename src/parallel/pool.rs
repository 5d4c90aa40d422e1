//! Thread pools, one for each process and number of threads: a forked child has none of its parent's threads.

use crate::error::{Error, Result};
use crate::fenv;
use crate::plan::Workers;
use rayon::prelude::*;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// So many results are held before they are folded, for each thread.
const AHEAD: usize = 4;

/// The threads that work on a snapshot. One thread is the caller's own.
#[derive(Clone)]
pub struct Pool {
    threads: Option<Arc<rayon::ThreadPool>>,
}

type Known = Mutex<Vec<((u32, usize), Arc<rayon::ThreadPool>)>>;

fn known() -> &'static Known {
    static KNOWN: OnceLock<Known> = OnceLock::new();
    KNOWN.get_or_init(Known::default)
}

impl Pool {
    /// The pool of this many threads (at least one) in this process. The lock is held for moments, in Python by threads
    /// that hold the interpreter: no child that Python forks finds it held.
    pub fn new(threads: usize) -> Result<Self> {
        if threads <= 1 {
            return Ok(Pool { threads: None });
        }
        let key = (std::process::id(), threads);
        // A thread that has panicked meanwhile has not left the list half changed.
        let lock = || known().lock().unwrap_or_else(PoisonError::into_inner);
        let find = || lock().iter().find(|(k, _)| *k == key).map(|(_, pool)| pool.clone());
        if let Some(pool) = find() {
            return Ok(Pool { threads: Some(pool) });
        }
        let built = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("ckptz-{i}")).build();
        let pool = Arc::new(built.map_err(|_| Error::Threads)?);
        // Another process's pools are of no use here, and dropping them would wait for threads that do not exist.
        lock().push((key, pool.clone()));
        Ok(Pool { threads: Some(pool) })
    }

    pub fn threads(&self) -> usize {
        self.threads.as_ref().map_or(1, |pool| pool.current_num_threads())
    }

    /// The results of `work` for every item, in their order, perhaps computed at once; in the standard float environment.
    pub fn map<T: Send, R: Send>(&self, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        match &self.threads {
            Some(pool) if items.len() > 1 => {
                pool.install(|| items.into_par_iter().map(|item| fenv::standard(|| work(item))).collect())
            }
            _ => fenv::standard(|| items.into_iter().map(work).collect()),
        }
    }
}

impl Workers for Pool {
    fn in_order<R: Send>(&self, count: usize, work: impl Fn(usize) -> R + Sync, mut fold: impl FnMut(R)) {
        let Some(pool) = self.threads.as_ref().filter(|_| count > 1) else {
            return fenv::standard(|| (0..count).for_each(|i| fold(work(i))));
        };
        let batch = AHEAD * pool.current_num_threads();
        for start in (0..count).step_by(batch) {
            let numbers = start..(start + batch).min(count);
            let results: Vec<R> =
                pool.install(|| numbers.into_par_iter().map(|i| fenv::standard(|| work(i))).collect());
            results.into_iter().for_each(&mut fold);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_on_any_number_of_threads() {
        for threads in [1, 2, 5] {
            let pool = Pool::new(threads).expect("threads start");
            let mut seen = Vec::new();
            pool.in_order(100, |i| i * i, |square| seen.push(square));
            assert_eq!(seen, (0..100).map(|i| i * i).collect::<Vec<_>>());
        }
    }
}
