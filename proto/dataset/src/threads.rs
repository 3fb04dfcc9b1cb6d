//! Finds out whether this process can start threads, before a runtime needs them: tokio panics
//! without its first thread, and waits for ever without a second.

use std::{
    sync::{Mutex, PoisonError},
    thread,
};

/// Bytes of a stack that is not used.
const STACK_BYTES: usize = 64 << 10;

/// Starts this many threads for a moment.
///
/// # Errors
/// Why the system refuses one of them, and the remedy.
pub fn check_threads(count: usize) -> Result<(), String> {
    let gate = Mutex::new(());
    thread::scope(|scope| {
        // Each thread waits until all have started.
        let closed = gate.lock().unwrap_or_else(PoisonError::into_inner);
        let mut threads = Vec::with_capacity(count);
        for started in 0..count {
            let pass = || drop(gate.lock());
            let spawned = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, pass);
            threads.push(spawned.map_err(|why| {
                format!(
                    "{count} threads are needed, and the system allows {started} ({why}); raise the \
                     limit on processes: ulimit -u, TasksMax in a unit, or pids.max of a container \
                     (--pids-limit)"
                )
            })?);
        }
        drop(closed);
        // The scope waits for their work alone. A thread that has not ended could take a signal.
        threads.into_iter().for_each(|thread| drop(thread.join()));
        Ok(())
    })
}
