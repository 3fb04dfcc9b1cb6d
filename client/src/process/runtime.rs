//! The async runtime of control calls and of reads from the origin. Each process has one, made at
//! first use, with its own thread.
//!
//! The data path does not use it. A forked child makes its own and leaves the parent's alone:
//! shutting that down would wait for threads that the child lacks.

use std::{future::Future, sync::Arc, thread};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::{
    Error, ErrorKind,
    process::{self, Owned, PerProcess},
};

static RUNTIME: PerProcess<Runtime> = PerProcess::new();

/// Drives sockets and timers. The futures themselves run on the callers' threads.
const WORKERS: usize = 1;

/// Threads that a process must be able to start: the worker, and some for calls that block.
const THREADS_MIN: usize = 4;

fn runtime() -> Result<Arc<Owned<Runtime>>, Error> {
    RUNTIME.try_get(|_| {
        // Tokio panics if it finds no file descriptor for its signals.
        process::check_files()?;
        larder_dataset::check_threads(THREADS_MIN).map_err(|why| {
            let what = "this process can't start the threads that reads need";
            Error::new(ErrorKind::ResourceExhausted, what).because(why)
        })?;
        larder_dataset::install_crypto();
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(WORKERS).thread_name("larder-control").enable_all();
        builder.build().map_err(|error| {
            let what = "the threads for connections can't be started";
            Error::new(ErrorKind::ResourceExhausted, what).with_source(error)
        })
    })
}

/// Makes the runtime now, so that its absence is not taken for a failed node.
///
/// # Errors
/// `ResourceExhausted` if this process has too few file descriptors or threads left.
pub(crate) fn start() -> Result<(), Error> {
    runtime().map(drop)
}

/// Runs a future to its end on this thread. Inside an async task, which must not block, it uses
/// another thread.
///
/// # Errors
/// As [`start`].
pub(crate) fn block_on<F>(future: F) -> Result<F::Output, Error>
where
    F: Future + Send,
    F::Output: Send,
{
    let runtime = runtime()?;
    if Handle::try_current().is_err() {
        return Ok(runtime.handle().block_on(future));
    }
    Ok(thread::scope(|scope| {
        let run = scope.spawn(|| runtime.handle().block_on(future));
        run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }))
}

/// Runs a future in the background.
///
/// # Errors
/// As [`start`]. The future then never runs.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
    runtime().map(|runtime| drop(runtime.spawn(future)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_on_works_outside_and_inside_of_async_code() {
        assert_eq!(block_on(async { 7 }).unwrap(), 7);
        assert_eq!(block_on(async { block_on(async { 7 }).unwrap() }).unwrap(), 7);
    }
}
