//! Devices: copies batches to GPU memory while the program computes.
//!
//! ```text
//!  rows ──▶ page-locked buffer ──┐            ┌──▶ the consumer's stream waits for the event
//!                                ├──▶ Pump ───┤
//!  rows in registered extents ───┘  (stream)  └──▶ the event frees buffer, registration and lease
//! ```
//!
//! A [`Driver`] has exactly the calls that the rules need. Two drivers implement it: `cuda`, and
//! for tests `host`, which uses memory of this process as device memory. The rules of order and
//! lifetime are in [`pump`] and the modules below it, which know only the trait.
//!
//! Thread rule: everything is `Send + Sync`. A device belongs to the process that opened it: a
//! forked child calls no driver function and frees nothing. Non-goals: kernels, copies between
//! devices, copies to other hosts.

mod blocks;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "testing"))]
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
    Attached, Companion, ExtentId, ExtentLayout, Filling, PagePreference, PartSpec, Region,
};

use crate::{Error, ErrorKind};

pub use blocks::CallerBlock;
pub(crate) use blocks::DeviceBlock;
use lot::Lot;
pub use pump::{DeviceWay, Pump, ReadyBlock};
use registrar::Registrar;
pub use slice::DeviceSlice;
pub(crate) use staging::Staged;

/// An opened device of this host. Clones share it.
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
    /// Its number: `cuda:0` has 0.
    pub ordinal: u32,
    /// Its name, such as `NVIDIA H200`.
    pub name: String,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// The CUDA version of the driver, such as `12.8`.
    pub driver: String,
    /// Whether the driver registers pages that a process can only read. The cache's pages are such.
    pub registers_pages: bool,
}

/// The stream on which a program uses a batch, numbered as in DLPack: 1 is the legacy default
/// stream, 2 the default stream of the calling thread. Any other number is a handle of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerStream(pub u64);

impl ConsumerStream {
    /// The legacy default stream. It waits for all streams that are not non-blocking.
    pub const DEFAULT: Self = Self(1);
}

impl Device {
    /// Opens the GPU with this number.
    ///
    /// # Errors
    /// - `NotFound` without a driver or without such a GPU, or for a driver that is too old.
    /// - `InvalidArgument` in a process forked from a process that has opened a GPU.
    pub fn cuda(ordinal: u32) -> Result<Self, Error> {
        #[cfg(feature = "cuda")]
        return cuda::open(ordinal);
        #[cfg(not(feature = "cuda"))]
        Err(without_cuda(&format!("device 'cuda:{ordinal}' can't be used")))
    }

    /// Lists the GPUs of this host. Empty without a driver. Children forked from the calling
    /// process can't use a GPU.
    ///
    /// # Errors
    /// `NotFound` for a driver that is too old or unusable.
    pub fn list() -> Result<Vec<DeviceFacts>, Error> {
        #[cfg(feature = "cuda")]
        return cuda::list();
        #[cfg(not(feature = "cuda"))]
        Err(without_cuda("GPUs can't be listed"))
    }

    fn new(driver: Arc<dyn Driver>, registrar: Arc<Registrar>) -> Self {
        let lot = Lot::new(Arc::clone(&driver));
        Self { driver, lot, registrar }
    }

    /// Its name, such as `cuda:0`.
    pub fn name(&self) -> String {
        self.driver.name()
    }

    /// Its number in DLPack.
    pub fn ordinal(&self) -> u32 {
        self.driver.ordinal()
    }

    /// Tries to register a page like the cache's, a read-only map of a sealed file. Then
    /// unregisters it.
    ///
    /// # Errors
    /// The reason why the driver refuses.
    pub fn try_registering(&self) -> Result<(), Error> {
        let page = probe_page().map_err(|error| {
            Error::new(ErrorKind::Internal, "cannot make a page to register").because(error)
        })?;
        self.driver.register(&page).map(drop)
    }

    /// Creates a stream on which a program can use batches.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn new_stream(&self) -> Result<OwnStream, Error> {
        Ok(OwnStream(self.driver.stream()?))
    }
}

/// A stream of a device, for programs without their own.
pub struct OwnStream(Box<dyn Stream>);

impl OwnStream {
    /// Its number, valid while this value lives.
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
        .hint("build it with the feature 'cuda'")
}

fn probe_page() -> Result<Attached, Box<dyn std::error::Error>> {
    let layout = ExtentLayout::new(&[Region::Blocks { bytes: 1 }])?;
    let (id, parts) = (ExtentId::from_bytes([0; 16]), vec![PartSpec { region: 0, range: 0..1 }]);
    let filling = Filling::create(id, layout, parts, PagePreference::Small)?;
    let mut part = filling.take_part(0).expect("the only part");
    part.write(&[0])?;
    part.finish()?;
    Ok(Attached::shared(filling.seal()?.open_for_peer()?, id)?)
}

/// The error of `what` in a process that inherited a device by a fork.
pub(crate) fn forked(what: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, what)
        .because(
            "this process was forked from one that uses a GPU, and its driver works there only",
        )
        .hint("start processes by 'spawn' or 'forkserver', or use the device in the parent alone")
}

pub(crate) trait Driver: Send + Sync {
    /// The name as users write it.
    fn name(&self) -> String;

    fn ordinal(&self) -> u32;

    /// Host memory that the device reads asynchronously.
    fn page_locked(&self, bytes: usize) -> Result<Box<dyn PageLocked>, Error>;

    /// Device memory, aligned to at least 256 bytes.
    fn memory(&self, bytes: usize) -> Result<Arc<dyn DeviceMemory>, Error>;

    /// Lets the device read the pages of an extent in place until the result is dropped. The result
    /// must be dropped before the extent.
    ///
    /// # Errors
    /// The reason why the driver refuses.
    fn register(&self, extent: &Attached) -> Result<Companion, Error>;

    /// A new stream. No other work delays it.
    fn stream(&self) -> Result<Box<dyn Stream>, Error>;

    /// A stream of the program, valid until the result is dropped.
    fn consumer(&self, stream: ConsumerStream) -> Result<Box<dyn Stream>, Error>;

    /// Whether the driver may be called: not in a forked child, and not after the device was lost.
    fn check(&self) -> Result<(), Error>;

    /// Marks the calling thread as one of Larder's. A graph capture of the program then never
    /// blocks its calls.
    fn adopt_thread(&self);
}

/// Page-locked memory of the host. Freed when dropped.
pub(crate) trait PageLocked: Send + Sync {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Memory of a device. Freed when dropped.
pub(crate) trait DeviceMemory: Send + Sync {
    /// The device address of its first byte.
    fn address(&self) -> u64;

    fn bytes(&self) -> usize;
}

/// A queue of work that a device does in order.
pub(crate) trait Stream: Send + Sync {
    fn number(&self) -> ConsumerStream;

    /// Queues the copies. Their sources must stay unchanged until an event recorded later is done,
    /// unless the call returns an error that no copy was queued.
    fn copy(&self, transfer: &Arc<Transfer>) -> Result<(), Error>;

    /// Records the event that is done when all work queued so far is done.
    fn record(&self) -> Result<Event, Error>;

    /// Makes all work queued from now on wait for an event of any stream of the device.
    fn wait(&self, event: &Event) -> Result<(), Error>;

    /// Copies device memory to the host after all work queued so far. Waits.
    fn read(&self, from: u64, out: &mut [u8]) -> Result<(), Error>;
}

pub(crate) type Event = Arc<dyn Moment>;

pub(crate) trait Moment: Any + Send + Sync {
    /// Whether the work before it is done.
    ///
    /// # Errors
    /// The device was lost, so the work never ends.
    fn is_done(&self) -> Result<bool, Error>;
}

/// Copies that go to a device together, and the memory that they read.
pub(crate) struct Transfer {
    pub(crate) sources: Vec<CopySource>,
    pub(crate) runs: Vec<CopyRun>,
}

/// Memory that a device reads. It is held until the copies from it are done.
pub(crate) enum CopySource {
    Staged(Staged),
    /// The registration is dropped before the extent.
    Extent {
        registration: Companion,
        extent: Arc<Attached>,
    },
}

impl CopySource {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Staged(buffer) => buffer,
            Self::Extent { extent, .. } => extent.bytes(),
        }
    }
}

/// One copy of a transfer.
#[derive(Debug, Clone)]
pub(crate) struct CopyRun {
    /// The index among the sources.
    pub(crate) source: usize,
    /// The range of the source.
    pub(crate) from: Range<usize>,
    /// The device address of the target.
    pub(crate) to: u64,
}

impl Transfer {
    pub(crate) fn bytes(&self, run: &CopyRun) -> &[u8] {
        &self.sources[run.source].bytes()[run.from.clone()]
    }
}
