//! The async runtime of the control channel and of reads from the origin: one per process, made at
//! first use, on a thread of its own.
//!
//! The data path does not come here. After a fork the child makes its own; the parent's is left
//! alone, since shutting it down would wait for threads that the child does not have.

use std::{future::Future, sync::Arc, thread};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::process::{Owned, PerProcess};

static RUNTIME: PerProcess<Runtime> = PerProcess::new();

/// Drives the sockets and timers; futures themselves run on the callers' threads.
const WORKERS: usize = 1;

fn runtime() -> Arc<Owned<Runtime>> {
    RUNTIME.get(|_| {
        larder_dataset::install_crypto();
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(WORKERS).thread_name("larder-control").enable_all();
        builder.build().expect("a process that can start a thread can start a runtime")
    })
}

/// Runs a future to its end on this thread. Inside somebody's async task, where waiting is not
/// allowed, a thread is borrowed for it.
pub(crate) fn block_on<F>(future: F) -> F::Output
where
    F: Future + Send,
    F::Output: Send,
{
    let runtime = runtime();
    if Handle::try_current().is_err() {
        return runtime.handle().block_on(future);
    }
    thread::scope(|scope| {
        let run = scope.spawn(|| runtime.handle().block_on(future));
        run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Lets a future run by itself.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    drop(runtime().spawn(future));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_can_be_waited_for_outside_and_inside_of_async_code() {
        assert_eq!(block_on(async { 7 }), 7);
        assert_eq!(block_on(async { block_on(async { 7 }) }), 7);
    }
}
