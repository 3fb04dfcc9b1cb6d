//! What a seat keeps, in memory and on disk alike: the one place where it changes.
//!
//! A change is computed on a copy, saved, and only then seen by anybody, so that nothing is told
//! that a crash would take back. Changes take turns.
//!
//! Thread rule: reading takes a lock for as long as it takes to look; changing goes to a blocking
//! thread and, once begun, ends also when nobody waits for it any more.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use larder_base::{Error, ErrorKind};
use tokio::sync::Semaphore;

use super::folder::{Folder, WriteError};
use super::message::Kept;
use super::types::CoordinatorError;

/// What is kept, with the folder it is kept in.
#[derive(Debug)]
pub(super) struct Ledger {
    folder: Folder,
    kept: Mutex<Kept>,
    /// One change at a time.
    turn: Arc<Semaphore>,
    /// Set when the disk failed so that what lies on it is not known.
    failed: OnceLock<Error>,
    /// Whether the folder had been used before.
    used: bool,
}

impl Ledger {
    /// Takes a folder and loads what it holds.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let folder = Folder::open(path)?;
        let kept = folder.load()?;
        Ok(Self {
            folder,
            used: kept.is_some(),
            kept: Mutex::new(kept.unwrap_or_default()),
            turn: Arc::new(Semaphore::new(1)),
            failed: OnceLock::new(),
        })
    }

    /// Whether anything was kept here when it was opened.
    pub(super) fn was_used(&self) -> bool {
        self.used
    }

    /// What is kept now. Held for a look only.
    pub(super) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Why nothing can be kept any more, if so.
    pub(super) fn check(&self) -> Result<(), CoordinatorError> {
        self.failed.get().map_or(Ok(()), |why| Err(CoordinatorError::Unknown(why.clone())))
    }

    /// Runs `step` on a copy of what is kept, and keeps what became of it. `then` sees the result
    /// before any other change begins.
    ///
    /// # Errors
    /// The step's own; [`CoordinatorError::Refused`] when the disk takes nothing, and [`CoordinatorError::Unknown`] from
    /// then on when it is not known what it took.
    pub(super) async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        step: impl FnOnce(&Self, &mut Kept) -> Result<T, CoordinatorError> + Send + 'static,
        then: impl FnOnce(&Kept) + Send + 'static,
    ) -> Result<T, CoordinatorError> {
        let turn = Arc::clone(&self.turn).acquire_owned().await;
        let ledger = Arc::clone(self);
        let work = move || {
            let _turn = turn;
            ledger.change_now(step, then)
        };
        let worked = tokio::task::spawn_blocking(work).await;
        worked.unwrap_or_else(|why| Err(CoordinatorError::unknown(why.to_string())))
    }

    fn change_now<T>(
        &self,
        step: impl FnOnce(&Self, &mut Kept) -> Result<T, CoordinatorError>,
        then: impl FnOnce(&Kept),
    ) -> Result<T, CoordinatorError> {
        self.check()?;
        let before = self.kept().clone();
        let mut after = before.clone();
        let done = step(self, &mut after)?;
        if after != before {
            self.folder.save(&after).map_err(|why| self.not_saved(why))?;
            *self.kept() = after.clone();
        }
        then(&after);
        Ok(done)
    }

    /// What to say of a write that failed. When its outcome is open nothing is kept or told any
    /// more: what a restart finds on the disk is then what counts.
    pub(super) fn not_saved(&self, why: WriteError) -> CoordinatorError {
        match why {
            WriteError::Unchanged(why) => {
                let why = format!("its disk takes nothing: {why}; make room, or mend it");
                CoordinatorError::refused(ErrorKind::ResourceExhausted, why)
            }
            WriteError::InDoubt(why) => {
                let why = format!(
                    "its disk failed and what it holds is open: {why}; mend it and restart the node"
                );
                let why = Error::new(ErrorKind::Unavailable, why);
                CoordinatorError::Unknown(self.failed.get_or_init(|| why).clone())
            }
        }
    }
}
