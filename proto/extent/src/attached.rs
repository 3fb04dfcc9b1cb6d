//! The reader's side of an extent that another process filled.

mod pagemap;
mod private_view;
mod private_views;

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::layout::{EXTENT_BYTES_MAX, ExtentLayout, FIXED_BYTES, FixedHeader, decode};
use crate::memfd::map::{PrivateMap, ReadMap};
use crate::{ExtentError, ExtentId, ExtentView, memfd};

pub use private_view::PrivateView;
use private_views::PrivateViews;

/// An extent received from the process that filled it, checked and mapped. Derefs to
/// [`ExtentView`].
///
/// Dropping it unmaps the memory and so releases it. The descriptor is closed as soon as the
/// mapping exists, because the mapping holds the file by itself.
///
/// Attaching checks the file before it trusts any number in it:
///
/// * The file is sealed, so its contents cannot change after the checks.
/// * The header is intact and names the extent asked for.
/// * The file's size equals the size computed from its regions.
#[derive(Debug)]
pub struct Attached {
    /// Dropped first.
    companion: CompanionSlot,
    view: ExtentView,
    private_views: Option<PrivateViews>,
    /// Dropped last.
    _kept: Option<Box<dyn Any + Send + Sync>>,
}

impl Attached {
    /// Maps an extent shared and read-only. DMA registration uses this mapping.
    ///
    /// # Errors
    /// If the file is not a sealed, intact extent named `id`, or the kernel refuses to map it.
    pub fn shared(fd: OwnedFd, id: ExtentId) -> Result<Self, ExtentError> {
        Self::attach(&File::from(fd), id)
    }

    /// Maps an extent a second time, private and writable, for [private views](Self::private_view)
    /// of rows. The second mapping costs no memory until the first view.
    ///
    /// # Errors
    /// As [`Attached::shared`].
    pub fn with_private_views(fd: OwnedFd, id: ExtentId) -> Result<Self, ExtentError> {
        let file = File::from(fd);
        let mut attached = Self::attach(&file, id)?;
        let map =
            PrivateMap::new(&file).map_err(ExtentError::os("mapping the extent privately"))?;
        attached.private_views = Some(PrivateViews::new(map, attached.layout()));
        Ok(attached)
    }

    /// Sets the companion: a value that is dropped right before the memory is unmapped, such as a
    /// registration of its addresses. Returns the companion it replaces.
    pub fn accompany(&self, companion: Option<Companion>) -> Option<Companion> {
        std::mem::replace(&mut *self.companion.lock(), companion)
    }

    /// Returns the current companion.
    pub fn companion(&self) -> Option<Companion> {
        self.companion.lock().clone()
    }

    /// Returns the same extent, which drops `kept` after the memory is unmapped.
    #[must_use]
    pub fn kept_with(self, kept: impl Any + Send + Sync) -> Self {
        Self { _kept: Some(Box::new(kept)), ..self }
    }

    fn attach(file: &File, id: ExtentId) -> Result<Self, ExtentError> {
        memfd::check_sealed(file)?;
        let layout = read_header(file, id)?;
        let map = ReadMap::shared(file).map_err(ExtentError::os("mapping the extent"))?;
        let view = ExtentView::new(id, layout, map);
        Ok(Self { companion: CompanionSlot::default(), view, private_views: None, _kept: None })
    }
}

/// A value bound to the addresses of a mapping, which must be dropped before the mapping.
pub type Companion = Arc<dyn Any + Send + Sync>;

#[derive(Default)]
struct CompanionSlot(Mutex<Option<Companion>>);

impl CompanionSlot {
    fn lock(&self) -> MutexGuard<'_, Option<Companion>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for CompanionSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slot")
    }
}

/// Reads and checks the header of a sealed file. Takes no more memory than the largest header.
fn read_header(file: &File, id: ExtentId) -> Result<ExtentLayout, ExtentError> {
    let metadata = file.metadata().map_err(ExtentError::os("fstat"))?;
    let size = metadata.len();
    if size > EXTENT_BYTES_MAX {
        return Err(ExtentError::NotAnExtent { reason: "it is larger than any extent" });
    }
    if metadata.blocks() < size / 512 {
        return Err(ExtentError::NotAnExtent {
            reason: "it has holes, and reading those would take memory here",
        });
    }
    let mut fixed_bytes = [0; FIXED_BYTES];
    let too_short = |_| ExtentError::NotAnExtent { reason: "it is shorter than its header" };
    file.read_exact_at(&mut fixed_bytes, 0).map_err(too_short)?;
    let fixed = FixedHeader::decode(&fixed_bytes)?;
    let mut header = vec![0; fixed.header_bytes()];
    file.read_exact_at(&mut header, 0).map_err(too_short)?;
    let layout = decode(&fixed, &header)?;
    if layout.total_bytes() != size {
        return Err(ExtentError::NotAnExtent { reason: "its size is not that of its regions" });
    }
    if fixed.id != id {
        return Err(ExtentError::WrongId { expected: id, found: fixed.id });
    }
    Ok(layout)
}

impl Deref for Attached {
    type Target = ExtentView;

    fn deref(&self) -> &ExtentView {
        &self.view
    }
}
