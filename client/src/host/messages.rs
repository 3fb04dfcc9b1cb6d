//! What a served node says on its standard error: kept until it has started, so that it can stand
//! in the error if it does not; from then on passed on to our own.
//!
//! Thread rule: a thread of its own reads until the node ends, and never holds a lock while it
//! writes, so that a child forked meanwhile finds none held.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::AsFd as _,
    process::ChildStderr,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use super::launch;

/// Most bytes that are kept, the last ones.
const KEPT_BYTES_MAX: usize = 4 << 10;

/// So long a node that was killed, or has said nothing to the point, may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The words of one node.
pub(super) struct Messages {
    /// Absent once they are passed on.
    kept: Arc<Mutex<Option<Vec<u8>>>>,
    /// Disconnected when the node has ended.
    ended: Receiver<()>,
}

impl Messages {
    /// Reads them from now on.
    pub(super) fn of(stderr: ChildStderr) -> io::Result<Self> {
        let ours = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let kept = Arc::new(Mutex::new(Some(Vec::new())));
        let (end, ended) = sync_channel(0);
        let shared = Arc::clone(&kept);
        let reader = thread::Builder::new().name("larder-node-words".to_owned());
        reader.spawn(move || read(stderr, ours, &shared, end))?;
        Ok(Self { kept, ended })
    }

    /// What a node that does not start said last, once it has ended.
    pub(super) fn last(&self) -> String {
        // Nothing is ever sent: this ends when the reader does.
        let _ = self.ended.recv_timeout(END_TIMEOUT);
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        launch::last_lines(&String::from_utf8_lossy(kept.as_deref().unwrap_or_default()))
    }

    /// From now on they go to the standard error of this process, with what was kept.
    pub(super) fn pass_on(self) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Whoever closed it does not want to know.
        let _ = io::stderr().write_all(&kept.unwrap_or_default());
    }
}

fn read(
    mut stderr: ChildStderr,
    mut ours: File,
    kept: &Mutex<Option<Vec<u8>>>,
    end: SyncSender<()>,
) {
    let mut bytes = [0; 1024];
    while let Ok(got @ 1..) = stderr.read(&mut bytes) {
        let said = &bytes[..got];
        if !keep(kept, said) {
            let _ = ours.write_all(said);
        }
    }
    drop(end);
}

/// Whether words are still kept, these as well.
fn keep(kept: &Mutex<Option<Vec<u8>>>, said: &[u8]) -> bool {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(kept) = kept.as_mut() else { return false };
    kept.extend_from_slice(said);
    kept.drain(..kept.len().saturating_sub(KEPT_BYTES_MAX));
    true
}
