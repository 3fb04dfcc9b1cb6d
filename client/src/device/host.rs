//! A device without hardware, for tests: its memory is memory of this process, and its streams are
//! threads.
//!
//! A copy runs on the thread of its stream and reads its source only then, as on a GPU. So memory
//! that is rewritten too early causes wrong bytes here as well.
//!
//! Thread rule: one thread per stream, which ends with the stream. Non-goals: speed, released
//! builds.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use larder_extent::{Attached, Companion, fork_count};

use super::{
    ConsumerStream, Device, DeviceMemory, Driver, Event, Moment, PageLocked, Registrar, Stream,
    Transfer,
};
use crate::{Error, ErrorKind};

/// The most tasks that a stream queues.
const TASKS_MAX: usize = 4096;

/// No memory of this process has such addresses.
const FIRST_ADDRESS: u64 = 1 << 50;

type Bytes = Arc<Mutex<Vec<u8>>>;

impl Device {
    /// A device for tests. Its memory is memory of this process, and its streams are threads.
    pub fn host() -> Self {
        Self::new(Arc::new(Host::new()), Registrar::new())
    }
}

pub(super) struct Host {
    shared: Arc<HostState>,
    process: u32,
}

/// The state that all streams share.
struct HostState {
    /// By address.
    memory: Mutex<BTreeMap<u64, Bytes>>,
    streams: Mutex<BTreeMap<ConsumerStream, SyncSender<Task>>>,
    next: AtomicU64,
}

enum Task {
    Copy(Arc<Transfer>),
    Record(Arc<CopyDone>),
    Wait(Arc<CopyDone>),
}

/// Whether an event is done.
#[derive(Default)]
struct CopyDone {
    done: Mutex<bool>,
    changed: Condvar,
}

struct HostBlock {
    address: u64,
    bytes: usize,
    shared: Arc<HostState>,
}

struct HostStream {
    number: ConsumerStream,
    is_own: bool,
    tasks: SyncSender<Task>,
    shared: Arc<HostState>,
}

impl Host {
    pub(super) fn new() -> Self {
        let (memory, streams) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(HostState { memory, streams, next: AtomicU64::new(FIRST_ADDRESS) });
        let host = Self { shared, process: fork_count() };
        host.start(ConsumerStream::DEFAULT);
        host
    }

    fn start(&self, number: ConsumerStream) -> SyncSender<Task> {
        let (tasks, received) = sync_channel(TASKS_MAX);
        lock(&self.shared.streams).insert(number, tasks.clone());
        let shared = Arc::downgrade(&self.shared);
        thread::spawn(move || {
            let run = |task| shared.upgrade().is_some_and(|shared| shared.run(task));
            for_each(&received, run);
        });
        tasks
    }

    fn stream_of(
        &self,
        number: ConsumerStream,
        tasks: SyncSender<Task>,
        is_own: bool,
    ) -> Box<dyn Stream> {
        Box::new(HostStream { number, is_own, tasks, shared: Arc::clone(&self.shared) })
    }
}

/// Runs tasks until the channel closes or `run` returns false.
fn for_each(tasks: &Receiver<Task>, run: impl Fn(Task) -> bool) {
    while tasks.recv().is_ok_and(&run) {}
}

impl HostState {
    /// Runs a task. Returns whether the stream continues.
    fn run(&self, task: Task) -> bool {
        match task {
            Task::Copy(transfer) => {
                for run in &transfer.runs {
                    let (memory, offset) = self.find(run.to);
                    lock(&memory)[offset..][..run.from.len()].copy_from_slice(transfer.bytes(run));
                }
            }
            Task::Record(done) => done.set(),
            Task::Wait(done) => done.wait(),
        }
        true
    }

    /// The memory that contains an address, and the offset in it.
    fn find(&self, address: u64) -> (Bytes, usize) {
        let memory = lock(&self.memory);
        let (base, bytes) =
            memory.range(..=address).next_back().expect("an address of this device");
        (Arc::clone(bytes), usize::try_from(address - base).expect("an offset"))
    }
}

impl Driver for Host {
    fn name(&self) -> String {
        "host".to_owned()
    }

    fn ordinal(&self) -> u32 {
        0
    }

    fn page_locked(&self, bytes: usize) -> Result<Box<dyn PageLocked>, Error> {
        Ok(Box::new(vec![0; bytes]))
    }

    fn memory(&self, bytes: usize) -> Result<Arc<dyn DeviceMemory>, Error> {
        let room = (bytes as u64).next_multiple_of(4096).max(4096);
        let address = self.shared.next.fetch_add(room, Relaxed);
        lock(&self.shared.memory).insert(address, Arc::new(Mutex::new(vec![0; bytes])));
        Ok(Arc::new(HostBlock { address, bytes, shared: Arc::clone(&self.shared) }))
    }

    fn register(&self, _extent: &Attached) -> Result<Companion, Error> {
        Ok(Arc::new(()))
    }

    fn stream(&self) -> Result<Box<dyn Stream>, Error> {
        let number = ConsumerStream(self.shared.next.fetch_add(4096, Relaxed));
        Ok(self.stream_of(number, self.start(number), true))
    }

    fn consumer(&self, stream: ConsumerStream) -> Result<Box<dyn Stream>, Error> {
        let tasks = lock(&self.shared.streams).get(&stream).cloned();
        let tasks =
            tasks.ok_or_else(|| Error::new(ErrorKind::InvalidArgument, "no such stream"))?;
        Ok(self.stream_of(stream, tasks, false))
    }

    fn check(&self) -> Result<(), Error> {
        match self.process == fork_count() {
            true => Ok(()),
            false => Err(super::forked("device 'host' can't be used")),
        }
    }

    fn adopt_thread(&self) {}
}

impl PageLocked for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl DeviceMemory for HostBlock {
    fn address(&self) -> u64 {
        self.address
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        lock(&self.shared.memory).remove(&self.address);
    }
}

impl HostStream {
    fn queue(&self, task: Task) -> Result<(), Error> {
        let ended = |_| Error::new(ErrorKind::Internal, "the thread of a stream has ended");
        self.tasks.send(task).map_err(ended)
    }
}

impl Stream for HostStream {
    fn number(&self) -> ConsumerStream {
        self.number
    }

    fn copy(&self, transfer: &Arc<Transfer>) -> Result<(), Error> {
        self.queue(Task::Copy(Arc::clone(transfer)))
    }

    fn record(&self) -> Result<Event, Error> {
        let done = Arc::new(CopyDone::default());
        self.queue(Task::Record(Arc::clone(&done)))?;
        Ok(done)
    }

    fn wait(&self, event: &Event) -> Result<(), Error> {
        let event: Arc<dyn std::any::Any + Send + Sync> = Arc::clone(event) as _;
        self.queue(Task::Wait(event.downcast().expect("an event of this device")))
    }

    fn read(&self, from: u64, out: &mut [u8]) -> Result<(), Error> {
        let done = Arc::new(CopyDone::default());
        self.queue(Task::Record(Arc::clone(&done)))?;
        done.wait();
        let (memory, offset) = self.shared.find(from);
        out.copy_from_slice(&lock(&memory)[offset..][..out.len()]);
        Ok(())
    }
}

impl Drop for HostStream {
    fn drop(&mut self) {
        if self.is_own {
            lock(&self.shared.streams).remove(&self.number);
        }
    }
}

impl CopyDone {
    fn set(&self) {
        *lock(&self.done) = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let waited = self.changed.wait_while(lock(&self.done), |done| !*done);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Moment for CopyDone {
    fn is_done(&self) -> Result<bool, Error> {
        Ok(*lock(&self.done))
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
