//! Devices: copies batches to GPU memory while the program goes on.
//!
//! ```text
//!  rows ──▶ page-locked buffer ──┐            ┌──▶ the consumer's stream waits for the event
//!                                ├──▶ Pump ───┤
//!  rows in registered extents ───┘  (stream)  └──▶ the event frees buffer, registration and lease
//! ```
//!
//! This file is the seam: a [`Driver`] has the calls that the rules need, and no more. Two drivers
//! implement it: [`host`], whose device memory is memory of this process, and `cuda`. The rules of
//! order and lifetime stand in [`pump`] and the modules below it, which know only the seam.
//!
//! Thread rule: everything is `Send + Sync`. A device belongs to the process that opened it: a
//! forked child calls no driver function, and frees nothing. Non-goals: kernels, copies between
//! devices, copies to other hosts.

mod blocks;
#[cfg(feature = "cuda")]
mod cuda;
mod host;
mod lot;
mod planted;
mod pump;
mod registrar;
mod slice;
mod staging;
#[cfg(feature = "testing")]
pub mod testing;

use std::{any::Any, fmt, ops::Range, sync::Arc};

use larder_extent::{
    Attached, Companion, ExtentId, Filling, Layout, PagePreference, PartSpec, Region,
};

use crate::{Error, ErrorKind};

pub(crate) use blocks::Block;
pub use blocks::CallerBlock;
use lot::Lot;
pub use pump::{DeviceWay, Pump, ReadyBlock};
use registrar::Registrar;
pub use slice::DeviceSlice;
pub(crate) use staging::Staged;

/// A device of this host, opened. Clones are the same one.
#[derive(Clone)]
pub struct Device {
    driver: Arc<dyn Driver>,
    lot: Arc<Lot>,
    registrar: Arc<Registrar>,
}

/// A device of this host, as the driver describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceFacts {
    /// Its number: that of `cuda:0` is 0.
    pub ordinal: u32,
    /// Its name, such as `NVIDIA H200`.
    pub name: String,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// The CUDA version that the driver is for, such as `12.8`.
    pub driver: String,
    /// Whether the driver registers pages that a process can only read, as those of the cache.
    pub registers_pages: bool,
}

/// The stream on which a program uses a batch, as DLPack numbers streams: 1 is the legacy default
/// stream, 2 the default stream of the calling thread, any other number a handle of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerStream(pub u64);

impl ConsumerStream {
    /// The legacy default stream, which waits for all others that are not non-blocking.
    pub const DEFAULT: Self = Self(1);
}

impl Device {
    /// Opens the GPU with this number.
    ///
    /// # Errors
    /// `NotFound` where there is no driver, a driver that is too old, or no such GPU;
    /// `InvalidArgument` in a process that was forked from one that had opened a GPU.
    pub fn cuda(ordinal: u32) -> Result<Self, Error> {
        #[cfg(feature = "cuda")]
        return cuda::open(ordinal);
        #[cfg(not(feature = "cuda"))]
        Err(without_cuda(&format!("device 'cuda:{ordinal}' can't be used")))
    }

    /// The GPUs of this host: none where there is no driver. A process that asks for them can't
    /// fork children that use one.
    ///
    /// # Errors
    /// `NotFound` for a driver that is too old, or is none.
    pub fn list() -> Result<Vec<DeviceFacts>, Error> {
        #[cfg(feature = "cuda")]
        return cuda::list();
        #[cfg(not(feature = "cuda"))]
        Err(without_cuda("GPUs can't be listed"))
    }

    /// A device whose memory is memory of this process, and whose streams are threads: to test what
    /// uses devices.
    #[must_use]
    pub fn host() -> Self {
        Self::new(Arc::new(host::Host::new()), Registrar::new())
    }

    fn new(driver: Arc<dyn Driver>, registrar: Arc<Registrar>) -> Self {
        let lot = Lot::new(Arc::clone(&driver));
        Self { driver, lot, registrar }
    }

    /// Its name, such as `cuda:0`.
    #[must_use]
    pub fn name(&self) -> String {
        self.driver.name()
    }

    /// Its number, as DLPack counts devices.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.driver.ordinal()
    }

    /// Registers a page as the cache has them, a read-only map of a sealed file, and lets go of it.
    ///
    /// # Errors
    /// The reason for which the driver refuses.
    pub fn try_registering(&self) -> Result<(), Error> {
        let page = probe_page().map_err(|error| {
            Error::new(ErrorKind::Internal, "cannot make a page to register").because(error)
        })?;
        self.driver.register(&page).map(drop)
    }

    /// A stream that a program could use batches on.
    ///
    /// # Errors
    /// The driver's.
    pub fn new_stream(&self) -> Result<OwnStream, Error> {
        Ok(OwnStream(self.driver.stream()?))
    }
}

/// A stream of a device, for programs that have none of their own.
pub struct OwnStream(Box<dyn Stream>);

impl OwnStream {
    /// Its number, valid as long as this value.
    #[must_use]
    pub fn consumer(&self) -> ConsumerStream {
        self.0.number()
    }
}

impl fmt::Debug for OwnStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnStream({:#x})", self.0.number().0)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name())
    }
}

#[cfg(not(feature = "cuda"))]
fn without_cuda(what: &str) -> Error {
    Error::new(ErrorKind::NotFound, what)
        .because("this build of larder-client has no support for GPUs")
        .hint("build it with the feature `cuda`")
}

/// The smallest extent.
fn probe_page() -> Result<Attached, Box<dyn std::error::Error>> {
    let layout = Layout::new(&[Region::Blocks { bytes: 1 }])?;
    let (id, parts) = (ExtentId::from_bytes([0; 16]), vec![PartSpec { region: 0, range: 0..1 }]);
    let filling = Filling::create(id, layout, parts, PagePreference::Small)?;
    let mut part = filling.take_part(0).expect("the only part");
    part.write(&[0])?;
    part.finish()?;
    Ok(Attached::shared(filling.seal()?.open_for_peer()?, id)?)
}

/// `what` can't be done in a process that inherited a device by a fork.
pub(crate) fn forked(what: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, what)
        .because(
            "this process was forked from one that uses a GPU, and its driver works there only",
        )
        .hint("start processes by 'spawn' or 'forkserver', or use the device in the parent alone")
}

/// The calls of a device that the rules need.
pub(crate) trait Driver: Send + Sync {
    /// As users write it.
    fn name(&self) -> String;

    fn ordinal(&self) -> u32;

    /// Host memory that the device reads while the program goes on.
    fn page_locked(&self, bytes: usize) -> Result<Box<dyn PageLocked>, Error>;

    /// Device memory, aligned to 256 bytes at least.
    fn memory(&self, bytes: usize) -> Result<Arc<dyn DeviceMemory>, Error>;

    /// Has the device read the pages of an extent where they lie, until the result is dropped. That
    /// must be before the extent is.
    ///
    /// # Errors
    /// The reason for which the driver refuses.
    fn register(&self, extent: &Attached) -> Result<Companion, Error>;

    /// A stream of its own, which no other work delays.
    fn stream(&self) -> Result<Box<dyn Stream>, Error>;

    /// A stream of the program's, valid until the result is dropped.
    fn consumer(&self, stream: ConsumerStream) -> Result<Box<dyn Stream>, Error>;

    /// Whether the driver may be called: not in a forked child, not after the device was lost.
    fn check(&self) -> Result<(), Error>;

    /// Makes the calling thread one of Larder's own: a capture of the program's forbids it no call.
    fn adopt_thread(&self);
}

/// Page-locked memory of the host. Freed when dropped.
pub(crate) trait PageLocked: Send + Sync {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Memory of a device. Freed when dropped.
pub(crate) trait DeviceMemory: Send + Sync {
    /// Where it begins, as the device counts.
    fn address(&self) -> u64;

    /// Its bytes.
    fn bytes(&self) -> usize;
}

/// Work that a device does in order.
pub(crate) trait Stream: Send + Sync {
    fn number(&self) -> ConsumerStream;

    /// Queues the copies. Their sources must stay as they are until an event that is recorded after
    /// this, or an error says that no copy was queued.
    fn copy(&self, transfer: &Arc<Transfer>) -> Result<(), Error>;

    /// The moment at which all that is queued now is done.
    fn record(&self) -> Result<Event, Error>;

    /// Has what is queued from now on wait for an event, of any stream of the device.
    fn wait(&self, event: &Event) -> Result<(), Error>;

    /// CopyStats device memory back to the host, after what is queued now. Waits.
    fn read(&self, from: u64, out: &mut [u8]) -> Result<(), Error>;
}

/// A moment in the work of a stream.
pub(crate) type Event = Arc<dyn Moment>;

/// The one question to an [`Event`].
pub(crate) trait Moment: Any + Send + Sync {
    /// Whether the work before it is done.
    ///
    /// # Errors
    /// When the device was lost: then it never will be.
    fn is_done(&self) -> Result<bool, Error>;
}

/// CopyStats that go to a device together, and the memory that they read.
pub(crate) struct Transfer {
    pub(crate) sources: Vec<Source>,
    pub(crate) runs: Vec<Run>,
}

/// Memory that a device reads: held until the copies from it are done.
pub(crate) enum Source {
    Staged(Staged),
    /// The registration is dropped before the extent.
    Extent {
        registration: Companion,
        extent: Arc<Attached>,
    },
}

impl Source {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Staged(buffer) => buffer,
            Self::Extent { extent, .. } => extent.bytes(),
        }
    }
}

/// One copy of a transfer.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// Index among the sources.
    pub(crate) source: usize,
    /// The bytes of it.
    pub(crate) from: Range<usize>,
    /// The device address that they go to.
    pub(crate) to: u64,
}

impl Transfer {
    /// The bytes of a run.
    pub(crate) fn bytes(&self, run: &Run) -> &[u8] {
        &self.sources[run.source].bytes()[run.from.clone()]
    }
}
