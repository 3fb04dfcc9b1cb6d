//! The standard error of a served node. It is kept until the node has started, for the error of a
//! failed start. After that it goes to the standard error of this process.
//!
//! Thread rule: its own thread reads until the node ends. The thread never holds a lock while it
//! writes, so a child forked meanwhile finds no lock held.

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

/// The most bytes that are kept, the last ones.
const KEPT_BYTES_MAX: usize = 4 << 10;

/// How long a node may take to end after it was killed or its first line was useless.
const END_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Messages {
    /// Absent once the messages are passed on.
    kept: Arc<Mutex<Option<Vec<u8>>>>,
    /// Disconnected when the node has ended.
    ended: Receiver<()>,
}

impl Messages {
    /// Starts to read them.
    pub(super) fn of(stderr: ChildStderr) -> io::Result<Self> {
        let ours = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let kept = Arc::new(Mutex::new(Some(Vec::new())));
        let (end, ended) = sync_channel(0);
        let shared = Arc::clone(&kept);
        let reader = thread::Builder::new().name("larder-node-words".to_owned());
        reader.spawn(move || read(stderr, ours, &shared, end))?;
        Ok(Self { kept, ended })
    }

    /// Returns the last messages of a node that failed to start, once it has ended.
    pub(super) fn last(&self) -> String {
        // No value is ever sent. The wait ends with the reader.
        let _ = self.ended.recv_timeout(END_TIMEOUT);
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        launch::last_lines(&String::from_utf8_lossy(kept.as_deref().unwrap_or_default()))
    }

    /// Writes the kept messages to the standard error of this process, and all later ones too.
    pub(super) fn pass_on(self) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        // An error means that standard error is closed, so the messages are dropped.
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

/// Appends to the kept messages. Returns whether they are still kept.
fn keep(kept: &Mutex<Option<Vec<u8>>>, said: &[u8]) -> bool {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(kept) = kept.as_mut() else { return false };
    kept.extend_from_slice(said);
    kept.drain(..kept.len().saturating_sub(KEPT_BYTES_MAX));
    true
}
