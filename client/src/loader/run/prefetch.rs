//! Numbered pieces of work, done ahead by a few threads and handed out in order.
//!
//! ```text
//!              handed out  |   in flight or ready: at most `window`   |  not begun
//!   0 1 2 3 ...            ^ next_out                                 ^ next_claim      end
//! ```
//!
//! A thread claims the next number while there is room in the window, works without a lock, and
//! puts the outcome into its place. Taking the front outcome makes room for one more piece. If the
//! window is wider than the number of threads, the next piece begins without a wakeup. An error or
//! a panic is an outcome too: it comes in its turn, it is the last, and no piece begins after it.
//!
//! Thread rule: one consumer and a few threads. The threads end after the last piece, or after
//! their current piece once the consumer is gone. The consumer does not wait for them. A forked
//! child has no such threads: its consumer gets an error, and the lock is left alone. Non-goals:
//! stopping in the middle of a piece.

use std::{
    any::Any,
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use larder_extent::fork_count;

use crate::{Error, ErrorKind};

/// The consumer's end. Dropping it stops the threads.
pub(super) struct Prefetch<T> {
    shared: Arc<SharedWindow<T>>,
    /// The [`fork_count`] of the process that created it.
    process: u32,
    /// An error was handed out. No outcome follows it.
    failed: bool,
}

struct SharedWindow<T> {
    work: Box<dyn Fn(u64) -> Result<T, Error> + Send + Sync>,
    width: usize,
    window: Mutex<Window<T>>,
    /// There is room for another piece, or no more work.
    room: Condvar,
    /// The front outcome is complete.
    ready: Condvar,
}

struct Window<T> {
    next_out: u64,
    /// Outcomes from `next_out` on. `None` while in flight.
    outcomes: VecDeque<Option<Result<T, Error>>>,
    /// The number of pieces to do. An error lowers it, and so does the end of the consumer.
    end: u64,
}

impl<T: Send + 'static> Prefetch<T> {
    /// Begins pieces `0..count` on `threads` threads, at least one. Up to `ready` further pieces
    /// may lie ready.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(super) fn start(
        count: u64,
        threads: usize,
        ready: usize,
        work: impl Fn(u64) -> Result<T, Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let width = threads + ready;
        let window = Window { next_out: 0, outcomes: VecDeque::with_capacity(width), end: count };
        let shared = Arc::new(SharedWindow {
            work: Box::new(work),
            width,
            window: Mutex::new(window),
            room: Condvar::new(),
            ready: Condvar::new(),
        });
        // From here on an early return stops the threads that were started.
        let prefetch = Self { shared, process: fork_count(), failed: false };
        let threads = usize::try_from(count).unwrap_or(threads).min(threads);
        for _ in 0..threads {
            let shared = Arc::clone(&prefetch.shared);
            let builder = thread::Builder::new().name("larder-prefetch".to_owned());
            builder.spawn(move || shared.run()).map_err(|error| {
                Error::new(ErrorKind::ResourceExhausted, "cannot start a thread of the loader")
                    .with_source(error)
                    .hint("raise the limit on threads (ulimit -u), or lower the prefetch depth")
            })?;
        }
        Ok(prefetch)
    }

    /// Waits for the outcome of the next piece. `None` after the last piece, and after the first
    /// error.
    pub(super) fn next(&mut self) -> Option<Result<T, Error>> {
        if self.failed {
            return None;
        }
        let outcome = self.take();
        self.failed = matches!(outcome, Some(Err(_)));
        outcome
    }

    /// Waits at most `patience` until [`next`](Self::next) has an answer. Returns whether it has.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        if self.failed || self.process != fork_count() {
            return true;
        }
        let waiting = |window: &mut Window<T>| {
            window.next_out < window.end && !matches!(window.outcomes.front(), Some(Some(_)))
        };
        let waited = self.shared.ready.wait_timeout_while(self.shared.lock(), patience, waiting);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    pub(super) fn failed(&self) -> bool {
        self.failed
    }

    fn take(&self) -> Option<Result<T, Error>> {
        if self.process != fork_count() {
            let what =
                "this epoch was begun in the parent process, whose threads a fork leaves behind";
            return Some(Err(Error::new(ErrorKind::InvalidArgument, what).hint(
                "begin the epoch after the fork; a loader itself can be used on both sides",
            )));
        }
        let mut window = self.shared.lock();
        loop {
            if window.next_out == window.end {
                return None;
            }
            if let Some(outcome) = window.outcomes.front_mut().and_then(Option::take) {
                window.outcomes.pop_front();
                window.next_out += 1;
                drop(window);
                self.shared.room.notify_one();
                return Some(outcome);
            }
            window = self.shared.ready.wait(window).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        if self.process != fork_count() {
            return;
        }
        let mut window = self.shared.lock();
        window.end = window.next_out;
        let outcomes = std::mem::take(&mut window.outcomes);
        drop(window);
        self.shared.room.notify_all();
        drop(outcomes);
    }
}

impl<T> SharedWindow<T> {
    fn lock(&self) -> MutexGuard<'_, Window<T>> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while let Some(piece) = self.claim() {
            let outcome = catch_unwind(AssertUnwindSafe(|| (self.work)(piece)));
            self.put(piece, outcome.unwrap_or_else(|panic| Err(panicked(piece, &*panic))));
        }
    }

    /// Claims the next piece, and waits for room. `None` if no piece is left.
    fn claim(&self) -> Option<u64> {
        let mut window = self.lock();
        loop {
            let next_claim = window.next_out + window.outcomes.len() as u64;
            if next_claim >= window.end {
                return None;
            }
            if window.outcomes.len() < self.width {
                window.outcomes.push_back(None);
                return Some(next_claim);
            }
            window = self.room.wait(window).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn put(&self, piece: u64, outcome: Result<T, Error>) {
        let mut window = self.lock();
        if piece >= window.end {
            drop(window); // the consumer is gone, or an earlier piece failed
            drop(outcome);
            return;
        }
        if outcome.is_err() {
            window.end = piece + 1;
        }
        let failed = outcome.is_err();
        let place = usize::try_from(piece - window.next_out).expect("a place within the window");
        window.outcomes[place] = Some(outcome);
        drop(window);
        if place == 0 {
            self.ready.notify_one();
        }
        if failed {
            self.room.notify_all();
        }
    }
}

fn panicked(piece: u64, panic: &(dyn Any + Send)) -> Error {
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::new(ErrorKind::Internal, format!("a thread of the loader panicked at batch {piece}"))
        .because(message.unwrap_or("no message"))
        .hint("this is a defect of the program: please report it with its backtrace")
}

impl<T> fmt::Debug for Prefetch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prefetch({} ahead)", self.shared.width)
    }
}

#[cfg(test)]
mod tests;
