//! Device memory for batches: reused blocks of the loader, or blocks that the caller gives.
//!
//! ```text
//!  idle ──take──▶ Block ──send──▶ written ──users──▶ dropped ──▶ idle, until its users are done
//! ```
//!
//! A block remembers the event of the copy into it, and an event for each use that ended. The next
//! copy into the block waits for these on the device, without a waiting thread. A block of the
//! caller is held until its copy is done, and then dropped: its framework orders all later work.
//!
//! Thread rule: the tensors of a batch share a block and drop it in any thread. Non-goals: queueing
//! copies (see [`Pump`](super::Pump)).

use std::{
    any::Any,
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{ConsumerStream, DeviceMemory, Driver, Event, lot::Lot, planted};
use crate::{Error, ErrorKind, deadline::CancelToken, process};

/// If the device is full, a loader waits this long for memory under running copies.
const PARKED_PATIENCE: Duration = Duration::from_secs(5);

/// Device memory that the caller gives for one batch. Dropped in any thread, once no copy writes to
/// it and no tensor uses it.
pub trait CallerBlock: Any + Send + Sync {
    /// The device address of its first byte: a multiple of 256.
    fn address(&self) -> u64;

    /// Its bytes.
    fn bytes(&self) -> usize;

    /// The stream of its owner. The memory is free after the work queued on it now, and the owner
    /// reuses the memory on it.
    fn stream(&self) -> ConsumerStream;
}

/// The idle blocks of a loader.
pub(super) struct Blocks {
    driver: Arc<dyn Driver>,
    lot: Arc<Lot>,
    idle_max: usize,
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    memory: Arc<dyn DeviceMemory>,
    /// The device may use the memory until these are done.
    until: Vec<Event>,
}

/// Device memory of one batch.
pub(crate) struct DeviceBlock {
    home: Arc<Blocks>,
    memory: Option<Home>,
    address: u64,
    bytes: usize,
    /// The copy into it waits for these events.
    ready: Vec<Event>,
    /// The event of the copy into it.
    written: Option<Event>,
    uses: Mutex<Uses>,
}

/// The source of a block.
enum Home {
    Own(Arc<dyn DeviceMemory>),
    Caller(Box<dyn CallerBlock>),
}

/// The program's uses of a block.
#[derive(Default)]
struct Uses {
    live: Vec<ConsumerStream>,
    /// The last end of a use on each stream. It implies the earlier ones.
    ended: BTreeMap<ConsumerStream, Event>,
    /// The end of a use could not be recorded. The block never counts as free again.
    is_lost: bool,
}

impl Blocks {
    pub(super) fn new(driver: Arc<dyn Driver>, lot: Arc<Lot>, idle_max: usize) -> Arc<Self> {
        Arc::new(Self { driver, lot, idle_max, idle: Mutex::default() })
    }

    /// Takes a block of `bytes` bytes, an idle one if one is large enough.
    ///
    /// # Errors
    /// `ResourceExhausted` if the device has too little free memory.
    pub(super) fn take(
        self: &Arc<Self>,
        bytes: usize,
        cancel: &CancelToken,
    ) -> Result<DeviceBlock, Error> {
        let idle = {
            let mut idle = self.lock();
            // The block that was returned first is the most likely to be free.
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

    /// A block of `bytes` bytes in memory of the caller, which is free after `ready`. `None` if it
    /// is too small.
    pub(super) fn given(
        self: &Arc<Self>,
        memory: Box<dyn CallerBlock>,
        ready: Event,
        bytes: usize,
    ) -> Option<DeviceBlock> {
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
    ) -> DeviceBlock {
        let (home, uses) = (Arc::clone(self), Mutex::default());
        DeviceBlock { home, memory: Some(memory), address, bytes, ready, written: None, uses }
    }

    /// Allocates memory. If the device is full, frees idle and parked blocks first.
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

    /// Keeps memory for the next block. Beyond `idle_max`, frees the smallest after its last use.
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

impl DeviceBlock {
    /// The device address of its first byte.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn ordinal(&self) -> u32 {
        self.home.driver.ordinal()
    }

    /// The events that must be done before a copy writes to it.
    pub(super) fn ready(&self) -> &[Event] {
        &self.ready
    }

    /// Notes that the bytes are complete after this event. The copy has waited for all of `ready`.
    pub(super) fn written_at(&mut self, event: Event) {
        self.written = Some(event);
        self.ready.clear();
    }

    /// Makes a stream of the program wait for the bytes. The program uses them on that stream until
    /// [`end_use`](Self::end_use).
    ///
    /// # Errors
    /// Errors of the driver.
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

    /// Marks the block as never to be reused or freed: a copy into it may run, and no event marks
    /// its end.
    pub(super) fn lose(&mut self) {
        self.uses().is_lost = true;
    }

    /// Checks that the device is usable in this process.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.home.driver.check()
    }

    /// The stream of the memory's owner, if the caller gave the memory.
    pub(crate) fn owner_stream(&self) -> Option<ConsumerStream> {
        match self.memory.as_ref()? {
            Home::Own(_) => None,
            Home::Caller(memory) => Some(memory.stream()),
        }
    }

    /// Releases memory that the caller gave. `None` for memory of the loader. Call this after each
    /// stream that uses the memory waits for the copy. Later work on those streams then runs after
    /// the copy, so Larder need not hold the memory.
    pub(crate) fn release(mut self) -> Option<Box<dyn CallerBlock>> {
        match self.memory.take()? {
            Home::Caller(memory) => Some(memory),
            own @ Home::Own(_) => {
                self.memory = Some(own);
                None
            }
        }
    }

    /// Ends a use on a stream: the program queues no more work on these bytes there. Called when
    /// the program drops its tensor.
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

    /// Copies a part to the host after all work on the block queued so far. Waits.
    ///
    /// # Errors
    /// Errors of the driver.
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

impl Drop for DeviceBlock {
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
