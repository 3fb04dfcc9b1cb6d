//! Device memory for batches: blocks of the loader's own, used again, or blocks that the caller
//! gave.
//!
//! ```text
//!  idle ──take──▶ Block ──send──▶ written ──users──▶ dropped ──▶ idle, until its users are done
//! ```
//!
//! A block remembers the event after which its bytes are there, and an event for each use that
//! ended. The next copy into the block waits for these on the device; no thread does. A block that
//! the caller gave is held until its copy is done, and then dropped: its framework orders what
//! comes after.
//!
//! Thread rule: shared by the tensors of a batch, and dropped in any thread.
//! Non-goals: queueing copies (see [`Pump`](super::Pump)).

use std::{
    any::Any,
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{ConsumerStream, DeviceMemory, Driver, Event, lot::Lot, planted};
use crate::{Error, ErrorKind, deadline::CancelToken, process};

/// How long a loader that finds the device full waits for memory under copies that still run.
const PARKED_PATIENCE: Duration = Duration::from_secs(5);

/// Device memory that the caller gives for one batch. Dropped when no copy writes to it and no
/// tensor is in it any more, in any thread.
pub trait CallerBlock: Any + Send + Sync {
    /// The device address at which it begins: a multiple of 256.
    fn address(&self) -> u64;

    /// Its bytes.
    fn bytes(&self) -> usize;

    /// The stream after whose work it is free now, and after whose work its owner uses it again.
    fn stream(&self) -> ConsumerStream;
}

/// The blocks of a loader that lie idle.
pub(super) struct Blocks {
    driver: Arc<dyn Driver>,
    lot: Arc<Lot>,
    idle_max: usize,
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    memory: Arc<dyn DeviceMemory>,
    /// Until these are done the device may still use it.
    until: Vec<Event>,
}

/// Device memory of one batch.
pub(crate) struct Block {
    home: Arc<Blocks>,
    /// Taken when dropped.
    memory: Option<Home>,
    address: u64,
    bytes: usize,
    /// Events that the copy into it waits for.
    ready: Vec<Event>,
    /// The event after which its bytes are there.
    written: Option<Event>,
    uses: Mutex<Uses>,
}

/// Where a block is from.
enum Home {
    Own(Arc<dyn DeviceMemory>),
    Caller(Box<dyn CallerBlock>),
}

/// The program's uses of a block.
#[derive(Default)]
struct Uses {
    live: Vec<ConsumerStream>,
    /// The last end of a use on each stream: it comes after those before.
    ended: BTreeMap<ConsumerStream, Event>,
    /// The end of a use could not be recorded, so the block never counts as free again.
    is_lost: bool,
}

impl Blocks {
    pub(super) fn new(driver: Arc<dyn Driver>, lot: Arc<Lot>, idle_max: usize) -> Arc<Self> {
        Arc::new(Self { driver, lot, idle_max, idle: Mutex::default() })
    }

    /// A block of `bytes` bytes: an idle one if there is any that is large enough.
    ///
    /// # Errors
    /// `ResourceExhausted` when the device has not so much memory.
    pub(super) fn take(
        self: &Arc<Self>,
        bytes: usize,
        cancel: &CancelToken,
    ) -> Result<Block, Error> {
        let idle = {
            let mut idle = self.lock();
            // The one that was given back first is the one whose users are most likely done.
            let index = idle.iter().position(|idle| idle.memory.bytes() >= bytes);
            index.map(|index| idle.remove(index))
        };
        let Idle { memory, until } = match idle {
            Some(idle) => idle,
            None => Idle { memory: self.make(bytes, cancel)?, until: Vec::new() },
        };
        let address = memory.address();
        Ok(self.block(Home::Own(memory), address, bytes, until))
    }

    /// A block of `bytes` bytes in memory that the caller gave, and that is free after `ready`.
    /// None if that is not so large.
    pub(super) fn given(
        self: &Arc<Self>,
        memory: Box<dyn CallerBlock>,
        ready: Event,
        bytes: usize,
    ) -> Option<Block> {
        let address = memory.address();
        let fits = memory.bytes() >= bytes;
        fits.then(|| self.block(Home::Caller(memory), address, bytes, vec![ready]))
    }

    fn block(
        self: &Arc<Self>,
        memory: Home,
        address: u64,
        bytes: usize,
        ready: Vec<Event>,
    ) -> Block {
        let (home, uses) = (Arc::clone(self), Mutex::default());
        Block { home, memory: Some(memory), address, bytes, ready, written: None, uses }
    }

    /// New memory. Where there is none left, idle blocks and parked ones are freed first.
    fn make(&self, bytes: usize, cancel: &CancelToken) -> Result<Arc<dyn DeviceMemory>, Error> {
        let is_full = |error: &Error| error.kind() == ErrorKind::ResourceExhausted;
        let mut made = self.driver.memory(bytes);
        let until = process::after(PARKED_PATIENCE);
        while made.as_ref().is_err_and(is_full) {
            cancel.check()?;
            let idle = mem::take(&mut *self.lock());
            self.park(idle);
            let more = self.lot.sweep_once_more();
            made = self.driver.memory(bytes);
            if !more || process::now() > until {
                break;
            }
        }
        made
    }

    /// Keeps memory for the next block. Beyond `idle_max`, the smallest is freed after its last
    /// use.
    fn put_back(&self, memory: Arc<dyn DeviceMemory>, until: Vec<Event>) {
        let mut idle = self.lock();
        idle.push(Idle { memory, until });
        let smallest = match idle.len() > self.idle_max {
            true => idle.iter().enumerate().min_by_key(|(_, idle)| idle.memory.bytes()),
            false => None,
        };
        let smallest = smallest.map(|(index, _)| index).map(|index| idle.remove(index));
        drop(idle);
        self.park(smallest);
    }

    fn park(&self, idle: impl IntoIterator<Item = Idle>) {
        idle.into_iter().for_each(|Idle { memory, until }| self.lot.park(until, memory));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        if self.lot.is_of_this_process() {
            let idle = mem::take(&mut *self.lock());
            self.park(idle);
        } else {
            mem::forget(mem::take(self.idle.get_mut().unwrap_or_else(PoisonError::into_inner)));
        }
    }
}

impl Block {
    /// Where it begins, as the device counts.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of its device.
    pub(crate) fn ordinal(&self) -> u32 {
        self.home.driver.ordinal()
    }

    /// Events that must be done before a copy writes to it.
    pub(super) fn ready(&self) -> &[Event] {
        &self.ready
    }

    /// Its bytes are there after this event. The copy has waited for all events of `ready`.
    pub(super) fn written_at(&mut self, event: Event) {
        self.written = Some(event);
        self.ready.clear();
    }

    /// Has a stream of the program wait until the bytes are there. The program uses them on that
    /// stream until [`end_use`](Self::end_use).
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn begin_use(&self, stream: ConsumerStream) -> Result<(), Error> {
        self.home.driver.check()?;
        if let Some(written) = &self.written
            && !planted::is(planted::NO_CONSUMER_WAIT)
        {
            self.home.driver.consumer(stream)?.wait(written)?;
        }
        self.uses().live.push(stream);
        Ok(())
    }

    /// A copy into it may run, and no event says until when: it is never used again, nor freed.
    pub(super) fn lose(&mut self) {
        self.uses().is_lost = true;
    }

    /// Whether the device can be used, in this process.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.home.driver.check()
    }

    /// The stream that its memory belongs to, if the caller gave it.
    pub(crate) fn owner_stream(&self) -> Option<ConsumerStream> {
        match self.memory.as_ref()? {
            Home::Own(_) => None,
            Home::Caller(memory) => Some(memory.stream()),
        }
    }

    /// The memory that the caller gave, if it is in that. Call this after each stream that uses it
    /// waits for the copy: later work on those streams runs after the copy, so Larder need not hold
    /// the memory.
    pub(crate) fn release(mut self) -> Option<Box<dyn CallerBlock>> {
        match self.memory.take()? {
            Home::Caller(memory) => Some(memory),
            own @ Home::Own(_) => {
                self.memory = Some(own);
                None
            }
        }
    }

    /// The program queues no more work on these bytes on that stream. Called when the program drops
    /// what it had.
    pub(crate) fn end_use(&self, stream: ConsumerStream) {
        if !self.home.lot.is_of_this_process() {
            return;
        }
        let driver = &self.home.driver;
        let recorded = driver.check().and_then(|()| driver.consumer(stream)?.record());
        let mut uses = self.uses();
        let index = uses.live.iter().position(|&live| live == stream);
        index.map(|index| uses.live.swap_remove(index));
        match recorded {
            Ok(event) => drop(uses.ended.insert(stream, event)),
            Err(_) => uses.is_lost = true,
        }
    }

    /// CopyStats a part of it back to the host, after all work that is queued on it now. Waits.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        assert!(offset + out.len() <= self.bytes, "bytes of this block");
        let driver = &self.home.driver;
        driver.check()?;
        let stream = driver.stream()?;
        let (live, ended) = {
            let uses = self.uses();
            (uses.live.clone(), uses.ended.clone())
        };
        for live in live {
            stream.wait(&driver.consumer(live)?.record()?)?;
        }
        for event in ended.values().chain(&self.written) {
            stream.wait(event)?;
        }
        stream.read(self.address + offset as u64, out)
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        if !self.home.lot.is_of_this_process() {
            return mem::forget(memory);
        }
        let Uses { ended, is_lost, .. } = mem::take(&mut *self.uses());
        let mut ended: Vec<Event> = ended.into_values().chain(self.written.take()).collect();
        // A copy that was never queued has not waited for these.
        ended.append(&mut self.ready);
        match memory {
            _ if is_lost => mem::forget(memory),
            Home::Own(memory) => self.home.put_back(memory, ended),
            Home::Caller(memory) => self.home.lot.park(ended, memory),
        }
    }
}
