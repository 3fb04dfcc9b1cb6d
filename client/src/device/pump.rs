//! The copies of one loader: its stream, its page-locked buffers and its blocks.
//!
//! Its rules, each with a test:
//!
//! 1. A buffer, a registration and a lease are held until the event of their last copy is done.
//! 2. The consumer's stream waits for the event of a batch. The training loop does not.
//! 3. A block is written to only after the device has finished its last use.
//! 4. Memory dropped under a running copy is parked instead of freed.
//! 5. A forked child calls no driver function.
//! 6. After a device was lost, every call fails with that error, and no memory is freed.
//! 7. A loader page-locks at most [`BUFFERS_BESIDE`] buffers more than it has threads.
//!
//! Thread rule: the threads that fetch queue copies side by side on one stream. Non-goals: the
//! places of rows (see `loader::send`).

use std::{fmt, str::FromStr, sync::Arc};

use larder_extent::Attached;

use super::{
    CallerBlock, Companion, Device, DeviceBlock, Event, Staged, Stream, Transfer, blocks::Blocks,
    planted, staging::Staging,
};
use crate::{Error, ErrorKind, deadline::CancelToken};

/// Page-locked buffers beside those that threads gather into: one being copied, and one queued.
const BUFFERS_BESIDE: usize = 2;

/// The way of bytes to a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeviceWay {
    /// Direct where possible and worthwhile, otherwise staged.
    #[default]
    Auto,
    /// Gathered into a page-locked buffer, then copied.
    Staged,
    /// Copied from the cache's pages, which the driver registers. Short rows are still staged.
    Direct,
}

impl FromStr for DeviceWay {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "auto" => Ok(Self::Auto),
            "staged" => Ok(Self::Staged),
            "direct" => Ok(Self::Direct),
            _ => {
                let what = format!("'{text}' is no way to a device");
                let error = Error::new(ErrorKind::InvalidArgument, what);
                Err(error.hint("say device_way='auto', 'staged' or 'direct'"))
            }
        }
    }
}

/// Copies the batches of one loader to a device.
pub struct Pump {
    device: Device,
    way: DeviceWay,
    stream: Box<dyn Stream>,
    staging: Arc<Staging>,
    blocks: Arc<Blocks>,
}

/// A block that the caller gave, and the event after which it may be written.
pub struct ReadyBlock {
    memory: Box<dyn CallerBlock>,
    ready: Event,
}

impl Pump {
    /// Creates the pump of a loader with `threads` threads, of which `ahead` batches may be on the
    /// device.
    ///
    /// # Errors
    /// Errors of the driver.
    pub(crate) fn new(
        device: &Device,
        way: DeviceWay,
        threads: usize,
        ahead: usize,
    ) -> Result<Arc<Self>, Error> {
        let Device { driver, lot, .. } = device;
        driver.check()?;
        let buffers = threads + BUFFERS_BESIDE;
        let staging = Staging::new(Arc::clone(driver), Arc::clone(lot), buffers);
        // One for each batch on the device, and one in use.
        let blocks = Blocks::new(Arc::clone(driver), Arc::clone(lot), ahead + 1);
        let stream = driver.stream()?;
        Ok(Arc::new(Self { device: device.clone(), way, stream, staging, blocks }))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The way that the caller chose.
    pub fn way(&self) -> DeviceWay {
        self.way
    }

    /// The first reason why pages of the cache were not registered.
    pub fn refused(&self) -> Option<Error> {
        match self.way {
            DeviceWay::Staged => None,
            DeviceWay::Auto | DeviceWay::Direct => self.device.registrar.refused(),
        }
    }

    /// Accepts memory of the caller for one batch.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn given(&self, memory: Box<dyn CallerBlock>) -> Result<ReadyBlock, Error> {
        let driver = &self.device.driver;
        driver.check()?;
        let ready = driver.consumer(memory.stream())?.record()?;
        Ok(ReadyBlock { memory, ready })
    }

    /// Checks that the device is usable in this process.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.device.driver.check()
    }

    /// Marks the calling thread as one of Larder's.
    pub(crate) fn adopt_thread(&self) {
        self.device.driver.adopt_thread();
    }

    /// Takes a page-locked buffer. Waits for one until `cancel` is cancelled.
    pub(crate) fn stage(&self, bytes: usize, cancel: &CancelToken) -> Result<Staged, Error> {
        self.staging.take(bytes, cancel)
    }

    /// Takes a block, in memory of the caller if it is large enough.
    pub(crate) fn block(
        &self,
        bytes: usize,
        given: Option<ReadyBlock>,
        cancel: &CancelToken,
    ) -> Result<DeviceBlock, Error> {
        self.device.driver.check()?;
        let given =
            given.and_then(|ReadyBlock { memory, ready }| self.blocks.given(memory, ready, bytes));
        given.map_or_else(|| self.blocks.take(bytes, cancel), Ok)
    }

    /// The registration of an extent. Without one, queues the extent for registration unless it was
    /// refused.
    pub(crate) fn registration(&self, extent: &Arc<Attached>) -> Option<Companion> {
        let Device { registrar, driver, .. } = &self.device;
        registrar.get(extent, driver)
    }

    /// Waits for the registration of an extent.
    ///
    /// # Errors
    /// The extent is refused.
    pub(crate) fn registered(
        &self,
        extent: &Arc<Attached>,
        cancel: &CancelToken,
    ) -> Result<Companion, Error> {
        let Device { registrar, driver, .. } = &self.device;
        registrar.wait_for(extent, driver, cancel)
    }

    /// Queues the copies into a block, and holds the memory that they read until they are done.
    pub(crate) fn send(&self, transfer: Transfer, block: &mut DeviceBlock) -> Result<(), Error> {
        let driver = &self.device.driver;
        driver.check()?;
        let ready = block.ready().iter();
        for event in ready.filter(|_| !planted::is(planted::BLOCK_REUSED_EARLY)) {
            self.stream.wait(event)?;
        }
        let transfer = Arc::new(transfer);
        let queued = self.stream.copy(&transfer);
        // Also if only some were queued.
        match self.stream.record() {
            Ok(event) => {
                block.written_at(Arc::clone(&event));
                self.hold(event, transfer);
            }
            Err(error) => {
                std::mem::forget(transfer);
                // The copy may run, and no event marks its end.
                block.lose();
                return queued.and(Err(error));
            }
        }
        queued
    }

    fn hold(&self, event: Event, transfer: Arc<Transfer>) {
        self.device.lot.park(vec![event], planted::let_go(transfer));
    }
}

impl fmt::Debug for Pump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pump({}, {:?})", self.device.name(), self.way)
    }
}

impl fmt::Debug for ReadyBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadyBlock({} bytes)", self.memory.bytes())
    }
}
