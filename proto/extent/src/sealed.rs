//! An extent that is full and immutable, on the node that filled it.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use xxhash_rust::xxh3::Xxh3Default;

use crate::layout::Layout;
use crate::map::ReadMap;
use crate::{ExtentError, ExtentId, ExtentView, memfd, sys};

/// An extent that nobody can write to any more, this process included. Derefs to [`ExtentView`].
///
/// Dropping it lets go of the memory here; readers that have it mapped keep it. Where the memory
/// must be accounted for until they have let go too, [`retire`](Sealed::retire) it instead.
#[derive(Debug)]
pub struct Sealed {
    view: ExtentView,
    digest: u64,
    locked: bool,
    /// Read-only, and the description the mapping was made through: the one description that
    /// [`Retired`] later asks to be alone.
    file: File,
}

impl Sealed {
    /// Seals a written file that no writable mapping of exists any more.
    pub(crate) fn seal(id: ExtentId, layout: Layout, file: File) -> Result<Self, ExtentError> {
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

    /// XXH3-64 of the checksums of all units, each as a little-endian `u32`: what a manifest pins, and what holders of
    /// the same shard compare. Taken when the extent was sealed.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The file, read-only, for `sendfile`. Not for handing to another process: that would share
    /// this description, and [`Retired::is_free`] could not tell that process from this one.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A fresh read-only descriptor of the file, one for each process it is handed to.
    ///
    /// # Errors
    /// The kernel's, typically that this process has no descriptors left.
    pub fn open_for_peer(&self) -> io::Result<OwnedFd> {
        memfd::reopen_read_only(self.file.as_fd()).map(OwnedFd::from)
    }

    /// Whether the mapping is locked in memory; if not, the host may swap it out.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.locked
    }

    /// Unmaps the extent and keeps only what is needed to learn when its memory is free.
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

/// An extent this process is done with, whose memory other processes may still hold.
#[derive(Debug)]
pub struct Retired {
    id: ExtentId,
    bytes: u64,
    file: File,
}

impl Retired {
    /// Whether no other process has the extent mapped or open, so that dropping this frees its
    /// memory. Asks the kernel, which counts a forked child of a client that died as well as the
    /// client, and a descriptor still on its way through a socket. About a microsecond.
    ///
    /// The one it cannot see is a child that *this* process forked and that has not yet executed
    /// another program: it shares this description.
    #[must_use]
    pub fn is_free(&self) -> bool {
        sys::is_sole_description(self.file.as_fd())
    }

    /// The extent's id.
    #[must_use]
    pub fn id(&self) -> ExtentId {
        self.id
    }

    /// Bytes of memory the extent holds until it is free.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
