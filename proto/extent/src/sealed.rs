//! A full, immutable extent on the node that filled it.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use xxhash_rust::xxh3::Xxh3Default;

use crate::layout::ExtentLayout;
use crate::memfd::map::ReadMap;
use crate::{ExtentError, ExtentId, ExtentView, memfd, sys};

/// An extent that no process can write to any more, this process included. Derefs to
/// [`ExtentView`].
///
/// Dropping it unmaps the memory here; readers that have it mapped keep it. If the caller must
/// account for the memory until readers have unmapped it too, [`retire`](Sealed::retire) it
/// instead.
#[derive(Debug)]
pub struct Sealed {
    view: ExtentView,
    digest: u64,
    locked: bool,
    /// Read-only: the description that the mapping was made through, and the only one this process
    /// keeps. [`Retired`] asks whether it is the last one.
    file: File,
}

impl Sealed {
    /// Seals a fully written file of which no writable mapping exists any more.
    pub(crate) fn seal(
        id: ExtentId,
        layout: ExtentLayout,
        file: File,
    ) -> Result<Self, ExtentError> {
        memfd::seal(&file)?;
        let read_only =
            memfd::reopen_read_only(file.as_fd()).map_err(ExtentError::os("reopening"))?;
        drop(file);
        let (map, locked) = ReadMap::shared_and_locked(&read_only)
            .map_err(ExtentError::os("mapping the sealed extent"))?;
        let view = ExtentView::new(id, layout, map);
        let mut digest = Xxh3Default::new();
        view.unit_crcs().for_each(|crc| digest.update(&crc.to_le_bytes()));
        Ok(Self { view, digest: digest.digest(), locked, file: read_only })
    }

    /// Returns the XXH3-64 of the checksums of all units, each as a little-endian `u32`. A manifest
    /// pins this digest, and nodes compare it between copies of one shard. Computed once, at
    /// sealing.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the read-only file, for `sendfile`. Do not hand it to another process: the process
    /// would share this description, and [`Retired::is_free`] could not notice it.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Opens a fresh read-only descriptor of the file. Each receiving process needs its own.
    ///
    /// # Errors
    /// The kernel's, typically that this process has no descriptors left.
    pub fn open_for_peer(&self) -> io::Result<OwnedFd> {
        memfd::reopen_read_only(self.file.as_fd()).map(OwnedFd::from)
    }

    /// Returns whether the mapping is locked in memory. If not, the host may swap it out.
    pub fn is_locked(&self) -> bool {
        self.locked
    }

    /// Unmaps the extent and keeps only the file, to learn when the memory is free.
    #[must_use]
    pub fn retire(self) -> Retired {
        Retired { bytes: self.view.total_bytes(), id: self.view.id(), file: self.file }
    }
}

impl Deref for Sealed {
    type Target = ExtentView;

    fn deref(&self) -> &ExtentView {
        &self.view
    }
}

/// An extent this process no longer uses. Other processes may still hold its memory.
#[derive(Debug)]
pub struct Retired {
    id: ExtentId,
    bytes: u64,
    file: File,
}

impl Retired {
    /// Returns whether no other process has the extent mapped or open, so that dropping this frees
    /// its memory. Takes about a microsecond. The kernel counts everything that holds the file:
    /// clients, a forked child of a client that died, a descriptor still in a socket's queue.
    ///
    /// The exception is a child that *this* process forked and that has not yet executed another
    /// program. It shares this description, so the kernel does not count it.
    pub fn is_free(&self) -> bool {
        sys::is_sole_description(self.file.as_fd())
    }

    /// Returns the extent's id.
    pub fn id(&self) -> ExtentId {
        self.id
    }

    /// Returns the bytes of memory that the extent holds until it is free.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
