//! The copies of one loader: its stream, its page-locked buffers and its blocks.
//!
//! The rules, each of which has a test:
//!
//! 1. A buffer, a registration and a lease are held until the event of their last copy is done.
//! 2. The consumer's stream waits for the event of a batch; the training loop does not.
//! 3. A block is written to only after its last user is done, as the device sees it.
//! 4. Memory that is let go of under a running copy is parked, and not freed.
//! 5. A forked child calls no driver function.
//! 6. After a device was lost every call ends with that error, and nothing more is freed.
//! 7. A loader page-locks at most [`BUFFERS_BESIDE`] buffers more than it has threads.
//!
//! Thread rule: the threads that fetch queue copies side by side, on one stream.
//! Non-goals: which rows go where (see `loader::send`).

use std::{fmt, str::FromStr, sync::Arc};

use larder_extent::Attached;

use super::{
    Block, CallerBlock, Companion, Device, Event, Staged, Stream, Transfer, blocks::Blocks,
    planted, staging::Staging,
};
use crate::{Error, ErrorKind, deadline::CancelToken};

/// Page-locked buffers beside those that threads gather into: one that is copied, and one in line.
const BUFFERS_BESIDE: usize = 2;

/// How bytes get to a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeviceWay {
    /// Direct where it can be and pays, else staged.
    #[default]
    Auto,
    /// Gathered into a page-locked buffer, and copied from there.
    Staged,
    /// Copied from the pages of the cache, which the driver registers. Short rows are staged all
    /// the same.
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

/// CopyStats the batches of one loader to a device.
pub struct Pump {
    device: Device,
    way: DeviceWay,
    stream: Box<dyn Stream>,
    staging: Arc<Staging>,
    blocks: Arc<Blocks>,
}

/// A block that the caller gave, and the moment from which it may be written to.
pub struct ReadyBlock {
    memory: Box<dyn CallerBlock>,
    ready: Event,
}

impl Pump {
    /// For a loader of so many threads, of which `ahead` batches may lie on the device.
    ///
    /// # Errors
    /// The driver's.
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
        // One more than lie on the device: the one in use.
        let blocks = Blocks::new(Arc::clone(driver), Arc::clone(lot), ahead + 1);
        let stream = driver.stream()?;
        Ok(Arc::new(Self { device: device.clone(), way, stream, staging, blocks }))
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// How bytes get there, as asked for.
    #[must_use]
    pub fn way(&self) -> DeviceWay {
        self.way
    }

    /// Why pages of the cache are not registered, if some were refused.
    #[must_use]
    pub fn refused(&self) -> Option<Error> {
        match self.way {
            DeviceWay::Staged => None,
            DeviceWay::Auto | DeviceWay::Direct => self.device.registrar.refused(),
        }
    }

    /// Memory of the caller's for one batch.
    ///
    /// # Errors
    /// The driver's.
    pub fn given(&self, memory: Box<dyn CallerBlock>) -> Result<ReadyBlock, Error> {
        let driver = &self.device.driver;
        driver.check()?;
        let ready = driver.consumer(memory.stream())?.record()?;
        Ok(ReadyBlock { memory, ready })
    }

    /// Whether the device can be used, in this process.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.device.driver.check()
    }

    /// Makes the calling thread one of Larder's own.
    pub(crate) fn adopt_thread(&self) {
        self.device.driver.adopt_thread();
    }

    /// A page-locked buffer; waits for one, unless `cancel` is used.
    pub(crate) fn stage(&self, bytes: usize, cancel: &CancelToken) -> Result<Staged, Error> {
        self.staging.take(bytes, cancel)
    }

    /// A block, in memory of the caller's if that is large enough.
    pub(crate) fn block(
        &self,
        bytes: usize,
        given: Option<ReadyBlock>,
        cancel: &CancelToken,
    ) -> Result<Block, Error> {
        self.device.driver.check()?;
        let given =
            given.and_then(|ReadyBlock { memory, ready }| self.blocks.given(memory, ready, bytes));
        given.map_or_else(|| self.blocks.take(bytes, cancel), Ok)
    }

    /// The registration of an extent, if it has one; else it gets one soon, unless that is refused.
    pub(crate) fn registration(&self, extent: &Arc<Attached>) -> Option<Companion> {
        let Device { registrar, driver, .. } = &self.device;
        registrar.get(extent, driver)
    }

    /// The same, waiting for it.
    ///
    /// # Errors
    /// When it is refused.
    pub(crate) fn registered(
        &self,
        extent: &Arc<Attached>,
        cancel: &CancelToken,
    ) -> Result<Companion, Error> {
        let Device { registrar, driver, .. } = &self.device;
        registrar.wait_for(extent, driver, cancel)
    }

    /// Queues the copies into a block, and holds what they read until they are done.
    pub(crate) fn send(&self, transfer: Transfer, block: &mut Block) -> Result<(), Error> {
        let driver = &self.device.driver;
        driver.check()?;
        let ready = block.ready().iter();
        for event in ready.filter(|_| !planted::is(planted::BLOCK_REUSED_EARLY)) {
            self.stream.wait(event)?;
        }
        let transfer = Arc::new(transfer);
        let queued = self.stream.copy(&transfer);
        // Also if not all were queued.
        match self.stream.record() {
            Ok(event) => {
                block.written_at(Arc::clone(&event));
                self.hold(event, transfer);
            }
            Err(error) => {
                std::mem::forget(transfer);
                // The copy may run, and no event says until when.
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
