//! Registrations of mapped extents. The driver page-locks an extent in place, so that a device
//! reads the cache directly.
//!
//! A batch asks for the registration of each extent that it reads. An extent without one is queued,
//! and the batch is staged. A thread registers one extent at a time. It first verifies all
//! checksums of the extent, because no code checks the bytes later.
//!
//! A registration is bound to its extent (see [`Attached::accompany`]) and ends before the extent
//! is unmapped. Over budget, the least recently used extents are unregistered, unless they are in
//! use.
//!
//! Thread rule: any thread asks. One thread registers, and ends when the queue is empty. Non-goals:
//! choosing the rows to copy directly.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::Duration,
};

use larder_base::limits;
use larder_extent::{Attached, Companion, MemoryLimit, fork_count};

use super::Driver;
use crate::{Error, ErrorKind, deadline::CancelToken, process};

/// Bytes of mapped extents that a process registers with the driver of a GPU at once: registered
/// pages cannot be swapped or moved. A quarter of the host's memory if that is less.
const REGISTERED_BYTES_MAX: u64 = 16 << 30;

/// An extent used within this time is never unregistered to make room. It would be queued again at
/// once.
const IN_USE: Duration = Duration::from_secs(10);

pub(crate) struct Registrar {
    state: Mutex<State>,
    /// An extent was registered or refused.
    settled: Condvar,
    bytes_max: u64,
    /// The [`fork_count`] of the process that created it.
    process: u32,
}

#[derive(Default)]
struct State {
    known: BTreeMap<usize, KnownExtent>,
    line: VecDeque<(Weak<Attached>, Arc<dyn Driver>)>,
    is_running: bool,
    refused: Option<Error>,
}

/// An extent that a batch has asked for.
struct KnownExtent {
    extent: Weak<Attached>,
    bytes: u64,
    used: Duration,
    stand: Stand,
    /// When it was queued.
    asked: Duration,
}

#[derive(Clone)]
enum Stand {
    InLine,
    Registered,
    Refused(Error),
}

impl Registrar {
    pub(super) fn new() -> Arc<Self> {
        Self::within(budget())
    }

    fn within(bytes_max: u64) -> Arc<Self> {
        let (state, settled, process) = (Mutex::default(), Condvar::new(), fork_count());
        Arc::new(Self { state, settled, bytes_max, process })
    }

    /// The first reason why an extent was not registered.
    pub(super) fn refused(&self) -> Option<Error> {
        if self.process == fork_count() { self.lock().refused.clone() } else { None }
    }

    /// The registration of an extent. Without one, queues the extent.
    pub(super) fn get(
        self: &Arc<Self>,
        extent: &Arc<Attached>,
        driver: &Arc<dyn Driver>,
    ) -> Option<Companion> {
        match self.stand(extent, driver, process::uptime())? {
            Stand::Registered => extent.companion(),
            Stand::InLine | Stand::Refused(_) => None,
        }
    }

    /// Waits for the registration of an extent.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub(super) fn wait_for(
        self: &Arc<Self>,
        extent: &Arc<Attached>,
        driver: &Arc<dyn Driver>,
        cancel: &CancelToken,
    ) -> Result<Companion, Error> {
        loop {
            match self.stand(extent, driver, process::uptime()) {
                Some(Stand::Registered) => {
                    if let Some(registration) = extent.companion() {
                        return Ok(registration);
                    }
                }
                Some(Stand::Refused(error)) => return Err(error),
                Some(Stand::InLine) => {}
                None => driver.check()?,
            }
            cancel.check()?;
            driver.check()?;
            let waited = self.settled.wait_timeout(self.lock(), limits::CANCEL_CHECK_INTERVAL);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// The state of an extent that a batch uses now. `None` in a forked child.
    fn stand(
        self: &Arc<Self>,
        extent: &Arc<Attached>,
        driver: &Arc<dyn Driver>,
        now: Duration,
    ) -> Option<Stand> {
        if self.process != fork_count() {
            return None;
        }
        let key = Arc::as_ptr(extent).addr();
        let mut state = self.lock();
        if let Some(known) = state.known.get_mut(&key).filter(|known| known.is(extent)) {
            known.used = now;
            let stand = known.stand.clone();
            if !known.is_to_be_asked_again(now) {
                self.keep_running(state);
                return Some(stand);
            }
        }
        let (weak, stand) = (Arc::downgrade(extent), Stand::InLine);
        let bytes = extent.total_bytes();
        let known = KnownExtent { extent: weak, bytes, used: now, stand, asked: now };
        state.known.insert(key, known);
        state.line.push_back((Arc::downgrade(extent), Arc::clone(driver)));
        self.keep_running(state);
        Some(Stand::InLine)
    }

    /// Starts a thread if extents are queued and no thread runs.
    fn keep_running(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if state.line.is_empty() || mem::replace(&mut state.is_running, true) {
            return;
        }
        drop(state);
        let registrar = Arc::clone(self);
        let thread = thread::Builder::new().name("larder-register".to_owned());
        if thread.spawn(move || while registrar.register_next() {}).is_err() {
            // The extents stay queued until a thread starts.
            self.lock().is_running = false;
        }
    }

    /// Registers the next extent of the queue. Returns whether there was one.
    fn register_next(&self) -> bool {
        let next = {
            let mut state = self.lock();
            let next = state.line.pop_front();
            state.is_running = next.is_some();
            next
        };
        let Some((extent, driver)) = next else { return false };
        driver.adopt_thread();
        if let Some(extent) = extent.upgrade() {
            let room = self.make_room(&extent, process::uptime());
            let stand = match room.and_then(|()| register(&extent, &*driver)) {
                Ok(()) => Stand::Registered,
                Err(error) => Stand::Refused(error),
            };
            self.settle(&extent, stand);
        }
        true
    }

    fn settle(&self, extent: &Arc<Attached>, stand: Stand) {
        let mut state = self.lock();
        if let Stand::Refused(error) = &stand {
            state.refused.get_or_insert_with(|| error.clone());
        }
        if let Some(known) = state.known.get_mut(&Arc::as_ptr(extent).addr()) {
            known.stand = stand;
        }
        drop(state);
        self.settled.notify_all();
    }

    /// Unregisters the least recently used extents until `extent` fits the budget.
    fn make_room(&self, extent: &Attached, now: Duration) -> Result<(), Error> {
        loop {
            let mut state = self.lock();
            state.known.retain(|_, known| known.extent.strong_count() > 0);
            let registered = state.known.iter().filter(|(_, known)| known.is_registered());
            let bytes: u64 = registered.clone().map(|(_, known)| known.bytes).sum();
            if bytes + extent.total_bytes() <= self.bytes_max {
                return Ok(());
            }
            let idle = registered.filter(|(_, known)| known.used + IN_USE < now);
            let oldest = idle.min_by_key(|(_, known)| known.used).map(|(&key, _)| key);
            let Some(known) = oldest.and_then(|key| state.known.remove(&key)) else {
                return Err(over_budget(self.bytes_max));
            };
            drop(state);
            // Running copies keep their registration.
            if let Some(extent) = known.extent.upgrade() {
                drop(extent.accompany(None));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownExtent {
    fn is(&self, extent: &Arc<Attached>) -> bool {
        self.extent.as_ptr() == Arc::as_ptr(extent) && self.extent.strong_count() > 0
    }

    /// Whether it found no room, some time ago.
    fn is_to_be_asked_again(&self, now: Duration) -> bool {
        let no_room = |error: &Error| error.kind() == ErrorKind::ResourceExhausted;
        matches!(&self.stand, Stand::Refused(error) if no_room(error)) && self.asked + IN_USE < now
    }

    fn is_registered(&self) -> bool {
        matches!(self.stand, Stand::Registered)
    }
}

fn register(extent: &Arc<Attached>, driver: &dyn Driver) -> Result<(), Error> {
    extent.verify().map_err(|corrupt| {
        Error::new(ErrorKind::DataLoss, "a mapped shard is damaged").with_source(corrupt)
    })?;
    extent.accompany(Some(driver.register(extent)?));
    Ok(())
}

fn over_budget(bytes_max: u64) -> Error {
    let what = format!("pages of the cache beyond {} GiB are not registered", bytes_max >> 30);
    Error::new(ErrorKind::ResourceExhausted, what)
        .because(
            "registered pages are locked in memory: 16 GiB of them at most, and a quarter of it",
        )
        .hint("shuffle in windows, which use fewer shards at a time")
}

/// The most bytes that are registered at once: a part of the memory that this process may use.
fn budget() -> u64 {
    let memory = MemoryLimit::read(Path::new("/")).map_or(0, |limit| limit.bytes());
    REGISTERED_BYTES_MAX.min(memory / 4)
}

#[cfg(test)]
mod tests {
    use larder_extent::{ExtentId, ExtentLayout, Filling, PagePreference, PartSpec, Region};

    use super::*;
    use crate::device::host::Host;

    const SECOND: Duration = Duration::from_secs(1);

    fn driver() -> Arc<dyn Driver> {
        Arc::new(Host::new())
    }

    fn extent(bytes: u64) -> Arc<Attached> {
        let layout = ExtentLayout::new(&[Region::Blocks { bytes }]).unwrap();
        let id = ExtentId::from_bytes([7; 16]);
        let parts = vec![PartSpec { region: 0, range: 0..bytes }];
        let filling = Filling::create(id, layout, parts, PagePreference::Small).unwrap();
        let mut part = filling.take_part(0).unwrap();
        part.write(&vec![1; usize::try_from(bytes).unwrap()]).unwrap();
        part.finish().unwrap();
        let sealed = filling.seal().unwrap();
        Arc::new(Attached::shared(sealed.open_for_peer().unwrap(), id).unwrap())
    }

    /// Asks for an extent at a given time, and waits until it is registered or refused.
    fn ask(registrar: &Arc<Registrar>, extent: &Arc<Attached>, now: Duration) -> Stand {
        loop {
            match registrar.stand(extent, &driver(), now).unwrap() {
                Stand::InLine => thread::yield_now(),
                settled => return settled,
            }
        }
    }

    #[test]
    fn registers_an_extent_until_it_is_dropped() {
        let registrar = Registrar::within(1 << 30);
        let extent = extent(10_000);
        assert!(registrar.get(&extent, &driver()).is_none(), "not at once");
        assert!(matches!(ask(&registrar, &extent, SECOND), Stand::Registered));
        let registration = registrar.get(&extent, &driver()).unwrap();
        assert_eq!(Arc::strong_count(&registration), 2, "the extent's and this");
        drop(extent);
        assert_eq!(Arc::strong_count(&registration), 1);
        assert!(registrar.refused().is_none());
    }

    #[test]
    fn unregisters_longest_idle_extent_when_over_budget() {
        let extents = [(); 4].map(|()| extent(10_000));
        let registrar = Registrar::within(3 * extents[0].total_bytes());
        for (extent, at) in extents.iter().zip([3, 1, 2]) {
            assert!(matches!(ask(&registrar, extent, SECOND * at), Stand::Registered));
        }
        registrar.make_room(&extents[3], SECOND * 60).unwrap();
        let registered = extents.each_ref().map(|extent| extent.companion().is_some());
        assert_eq!(registered, [true, false, true, false]);
    }

    #[test]
    fn refuses_an_extent_beyond_the_budget_while_others_are_in_use() {
        let extents = [(); 2].map(|()| extent(10_000));
        let registrar = Registrar::within(2 * extents[0].total_bytes() - 1);
        assert!(matches!(ask(&registrar, &extents[0], process::uptime()), Stand::Registered));
        let Stand::Refused(error) = ask(&registrar, &extents[1], process::uptime()) else {
            panic!("it does not fit");
        };
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
        assert_eq!(registrar.refused().unwrap().what(), error.what());
        assert!(extents[0].companion().is_some());
        // The first is idle by then.
        registrar.make_room(&extents[1], process::uptime() + SECOND * 60).unwrap();
        assert!(matches!(ask(&registrar, &extents[1], SECOND * 120), Stand::Registered));
    }

    #[test]
    fn dropped_extent_frees_its_budget() {
        let registrar = Registrar::within(extent(10_000).total_bytes());
        for _ in 0..5 {
            assert!(matches!(ask(&registrar, &extent(10_000), SECOND), Stand::Registered));
        }
    }
}
