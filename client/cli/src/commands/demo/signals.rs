//! SIGINT and SIGTERM end the demo in order, so that nothing of it stays behind.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, sync_channel},
    },
    thread,
};

use nix::sys::signal::{SigSet, Signal};

use crate::error::{Exit, Failure};

/// Whether the user has had enough.
pub(super) struct Interrupt {
    came: Arc<AtomicBool>,
    word: Receiver<()>,
}

impl Interrupt {
    /// Watches for signals. To be called before any thread is started, which inherit that they are
    /// not interrupted by them. The second signal ends the process at once.
    pub(super) fn watch() -> Result<Self, Failure> {
        let failed =
            |error: String| Failure::new(Exit::Failed, "signals can't be watched").why(error);
        let mut awaited = SigSet::empty();
        awaited.add(Signal::SIGINT);
        awaited.add(Signal::SIGTERM);
        awaited.thread_block().map_err(|error| failed(error.to_string()))?;
        let came = Arc::new(AtomicBool::new(false));
        let (send, word) = sync_channel(1);
        let seen = Arc::clone(&came);
        let wait = move || {
            if awaited.wait().is_ok() {
                seen.store(true, Relaxed);
                let _ = send.try_send(());
            }
            if awaited.wait().is_ok() {
                std::process::exit(130);
            }
        };
        let thread = thread::Builder::new().name("larder-signals".to_owned()).spawn(wait);
        thread.map_err(|error| failed(error.to_string()))?;
        Ok(Self { came, word })
    }

    /// Whether a signal came.
    pub(super) fn came(&self) -> bool {
        self.came.load(Relaxed)
    }

    /// Fails once a signal came.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.came() { Err(interrupted()) } else { Ok(()) }
    }

    /// Waits for a signal.
    pub(super) fn wait(&self) {
        let _ = self.word.recv();
    }
}

pub(super) fn interrupted() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted")
}
