//! The state that a coordinator keeps, in memory and on disk alike. All changes go through here.
//!
//! A change is computed on a copy, saved, and only then published, so a crash never takes back a
//! published change. Changes run one after the other.
//!
//! Thread rule: reading holds a lock for microseconds. A change runs on a blocking thread and, once
//! begun, ends even if its caller is gone.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use larder_base::{Error, ErrorKind};
use tokio::sync::Semaphore;

use super::state_dir::{StateDir, WriteError};
use crate::message::PersistedState;
use crate::types::CoordinatorError;

/// The state, with the folder it is kept in.
#[derive(Debug)]
pub(crate) struct DurableState {
    folder: StateDir,
    kept: Mutex<PersistedState>,
    /// Held for one change at a time.
    turn: Arc<Semaphore>,
    /// Set when a disk error leaves the contents of the disk unknown.
    failed: OnceLock<Error>,
    /// Why the disk refused the last write, if it did.
    refused: Mutex<Option<Arc<str>>>,
    /// True if the folder was used before.
    used: bool,
}

impl DurableState {
    /// Opens a folder and loads its state.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let folder = StateDir::open(path)?;
        let kept = folder.load()?;
        Ok(Self {
            folder,
            used: kept.is_some(),
            kept: Mutex::new(kept.unwrap_or_default()),
            turn: Arc::new(Semaphore::new(1)),
            failed: OnceLock::new(),
            refused: Mutex::default(),
        })
    }

    /// Returns true if the folder held a state when it was opened.
    pub(super) fn was_used(&self) -> bool {
        self.used
    }

    /// Returns the state. Hold the guard only briefly.
    pub(crate) fn kept(&self) -> MutexGuard<'_, PersistedState> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn folder(&self) -> &StateDir {
        &self.folder
    }

    /// Returns the disk error after which nothing can be saved, if there was one.
    pub(super) fn check(&self) -> Result<(), CoordinatorError> {
        self.failed.get().map_or(Ok(()), |why| Err(CoordinatorError::Unknown(why.clone())))
    }

    /// Returns why the disk refused the last write, if it did.
    pub(super) fn disk_fault(&self) -> Option<Arc<str>> {
        self.refused().clone()
    }

    fn refused(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Saves the same state again after a refused write, to find out whether the disk takes it now.
    pub(super) async fn retry_disk(self: &Arc<Self>) {
        if self.disk_fault().is_some() {
            let again = |durable: &Self, kept: &mut PersistedState| durable.save(kept);
            // The fault is kept until a write succeeds.
            let _ = self.change(again, |_| ()).await;
        }
    }

    fn save(&self, kept: &PersistedState) -> Result<(), CoordinatorError> {
        self.folder.save(kept).map_err(|why| self.not_saved(why))?;
        *self.refused() = None;
        Ok(())
    }

    /// Runs `step` on a copy of the state, and saves the result. `then` sees the result before any
    /// other change begins.
    ///
    /// # Errors
    /// - The step's own error.
    /// - [`CoordinatorError::Refused`] when the disk refuses the write.
    /// - [`CoordinatorError::Unknown`] from then on, when the outcome of a write is unknown.
    pub(super) async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        step: impl FnOnce(&Self, &mut PersistedState) -> Result<T, CoordinatorError> + Send + 'static,
        then: impl FnOnce(&PersistedState) + Send + 'static,
    ) -> Result<T, CoordinatorError> {
        let turn = Arc::clone(&self.turn).acquire_owned().await;
        let durable = Arc::clone(self);
        let work = move || {
            let _turn = turn;
            durable.change_now(step, then)
        };
        let worked = tokio::task::spawn_blocking(work).await;
        worked.unwrap_or_else(|why| Err(CoordinatorError::unknown(why.to_string())))
    }

    fn change_now<T>(
        &self,
        step: impl FnOnce(&Self, &mut PersistedState) -> Result<T, CoordinatorError>,
        then: impl FnOnce(&PersistedState),
    ) -> Result<T, CoordinatorError> {
        self.check()?;
        let before = self.kept().clone();
        let mut after = before.clone();
        let done = step(self, &mut after)?;
        if after != before {
            self.save(&after)?;
            *self.kept() = after.clone();
        }
        then(&after);
        Ok(done)
    }

    /// Maps a failed write to an error. After an unknown outcome nothing is saved or published any
    /// more: a restart then takes the state that it finds on the disk.
    pub(super) fn not_saved(&self, why: WriteError) -> CoordinatorError {
        match why {
            WriteError::Unchanged(why) => {
                let why = format!("its disk takes nothing: {why}; make room, or mend it");
                *self.refused() = Some(why.as_str().into());
                CoordinatorError::refused(ErrorKind::ResourceExhausted, why)
            }
            WriteError::InDoubt(why) => {
                let why = format!(
                    "its disk failed and its contents are unknown: {why}; mend it and restart the node"
                );
                let why = Error::new(ErrorKind::Unavailable, why);
                CoordinatorError::Unknown(self.failed.get_or_init(|| why).clone())
            }
        }
    }
}
