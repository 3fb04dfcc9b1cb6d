//! The session on a node's unix socket, and its thread.

use std::{
    collections::{HashMap, HashSet},
    io::Write,
    net::Shutdown,
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use larder_base::ErrorKind;
use larder_dataset::{Manifest, RowLocator};
use larder_extent::{Attached, ExtentId, Region};
use larder_wire::data::{Attach, ErrorReply, Kind, Pong, Recall, Release};

use super::{
    Slots,
    session::{Incoming, NoSession, Session},
};
use crate::{process, remote::Failure};

/// The most unanswered requests. Their frames fit the socket's buffer, so that asking never blocks
/// while the node is alive.
const ASKED_MAX: usize = 256;

/// The wait after an answer that a shard is being filled. A gather gets its rows meanwhile.
const ASK_AGAIN_PENDING: Duration = Duration::from_millis(100);

/// The wait after an answer that a shard is not kept, or that this process holds too many.
const ASK_AGAIN_REFUSED: Duration = Duration::from_secs(5);

/// The wait after a recall, because the node needs the memory.
const ASK_AGAIN_RECALLED: Duration = Duration::from_secs(1);

/// How often recalled maps that were in use are checked.
const LINGER_CHECK: Duration = Duration::from_millis(100);

/// Waits between two attempts to connect.
const RECONNECT_MIN: Duration = Duration::from_millis(100);
const RECONNECT_MAX: Duration = Duration::from_secs(5);

/// The session with a node on this host.
pub(crate) struct Socket {
    shared: Arc<SocketParts>,
}

struct SocketParts {
    path: PathBuf,
    node_id: String,
    manifest: Manifest,
    slots: Arc<Slots>,
    state: Mutex<State>,
    /// An answer arrived, the session began or ended, or the socket is to stop.
    changed: Condvar,
    /// The node answered that the dataset is not open there.
    unknown: AtomicBool,
}

#[derive(Default)]
struct State {
    /// For writing. Present during a session.
    writer: Option<UnixStream>,
    asked: HashSet<u32>,
    /// The last attempt to connect failed.
    failed: bool,
    /// Another node listens there, or the socket was dropped.
    stopped: bool,
}

impl Socket {
    /// Connects in the background, and again after each broken session.
    pub(crate) fn open(
        path: PathBuf,
        node_id: String,
        manifest: Manifest,
        slots: Arc<Slots>,
    ) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let unknown = AtomicBool::new(false);
        let shared =
            Arc::new(SocketParts { path, node_id, manifest, slots, state, changed, unknown });
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("larder-local".to_owned());
        if let Err(error) = thread.spawn(move || own.run()) {
            tracing::warn!(%error, "no thread for the local socket: rows of this host come over TCP");
            shared.state().stopped = true;
        }
        Self { shared }
    }

    /// Asks for shards that the caller has claimed. Does not wait for answers.
    pub(crate) fn ask(&self, shards: &[u32]) {
        let (shared, mut frames) = (&*self.shared, Vec::new());
        let mut state = shared.state();
        for &shard in shards {
            if state.writer.is_none() || state.asked.len() >= ASKED_MAX {
                shared.slots.refuse(shard, process::uptime() + ASK_AGAIN_PENDING);
                continue;
            }
            state.asked.insert(shard);
            let snapshot = shared.manifest.snapshot();
            Attach { snapshot, shard }.encode(u64::from(shard), &mut frames);
        }
        state.send(&frames);
    }

    /// Whether the node answered that the dataset is not open, because it restarted or closed it.
    pub(crate) fn is_unknown(&self) -> bool {
        self.shared.unknown.load(Relaxed)
    }

    /// Notes that the dataset was opened there again.
    pub(crate) fn reopened(&self) {
        self.shared.unknown.store(false, Relaxed);
    }

    /// Waits for the answer about a shard, at most `patience`.
    pub(crate) fn wait_for(&self, shard: u32, patience: Duration) {
        let shared = &*self.shared;
        let waiting = |_: &mut State| shared.slots.is_asked(shard);
        let waited = shared.changed.wait_timeout_while(shared.state(), patience, waiting);
        drop(waited);
    }

    /// Waits until there is a session, or connecting has failed.
    pub(crate) fn wait_connected(&self, patience: Duration) -> bool {
        let shared = &*self.shared;
        let waiting = |state: &mut State| state.writer.is_none() && !state.failed && !state.stopped;
        let waited = shared.changed.wait_timeout_while(shared.state(), patience, waiting);
        waited.unwrap_or_else(PoisonError::into_inner).0.writer.is_some()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.stopped = true;
        state.disconnect();
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl State {
    /// Writes frames. If that fails the session ends, and its thread notices.
    fn send(&mut self, frames: &[u8]) {
        let sent = self.writer.as_mut().map(|writer| writer.write_all(frames));
        if let Some(Err(error)) = sent {
            tracing::debug!(%error, "the local socket takes nothing");
            self.disconnect();
        }
    }

    fn disconnect(&mut self) {
        // Fails if the peer was faster. The session is over either way.
        let _ = self.writer.take().map(|writer| writer.shutdown(Shutdown::Both));
    }
}

impl SocketParts {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut keeper = Keeper { shared: self, held: HashMap::new(), lingering: Vec::new() };
        let mut wait = RECONNECT_MIN;
        loop {
            match Session::connect(&self.path, &self.node_id) {
                Ok(session) => {
                    wait = RECONNECT_MIN;
                    keeper.keep(session);
                }
                Err(NoSession::OtherNode(found)) => {
                    tracing::debug!(node = self.node_id, found, "the socket is another node's");
                    break;
                }
                Err(NoSession::Failed(failure)) => {
                    tracing::debug!(node = self.node_id, ?failure, path = ?self.path, "no local session");
                    self.state().failed = true;
                    self.changed.notify_all();
                }
            }
            let state = self.state();
            let waiting = |state: &mut State| !state.stopped;
            let waited = self.changed.wait_timeout_while(state, wait, waiting);
            if waited.unwrap_or_else(PoisonError::into_inner).0.stopped {
                break;
            }
            wait = (wait * 2).min(RECONNECT_MAX);
        }
        self.state().stopped = true;
        self.changed.notify_all();
    }
}

/// The thread of a socket, and the maps of its session. They do not outlive it.
struct Keeper<'a> {
    shared: &'a SocketParts,
    held: HashMap<u32, Weak<Attached>>,
    /// Maps that were recalled while in use.
    lingering: Vec<(u32, Arc<Attached>)>,
}

impl Keeper<'_> {
    /// Handles frames until the session ends.
    fn keep(&mut self, mut session: Session) {
        if !self.begin(&session) {
            return;
        }
        loop {
            let timeout = (!self.lingering.is_empty()).then_some(LINGER_CHECK);
            let set = session.stream().set_read_timeout(timeout);
            let next = set.map_err(|error| Failure::from_io(&error)).and_then(|()| session.next());
            let taken = match next {
                Ok(incoming) => self.take(&mut session, &incoming),
                Err(Failure::Silent) => {
                    self.drop_idle();
                    Ok(())
                }
                Err(failure) => Err(failure),
            };
            if let Err(failure) = taken {
                tracing::debug!(node = self.shared.node_id, ?failure, "the local session ended");
                break;
            }
        }
        self.end();
    }

    /// Begins a new session, which holds no map. Drops the maps of the previous session, which
    /// stayed valid until now. Readers ask for them again.
    fn begin(&mut self, session: &Session) -> bool {
        self.let_go();
        let Ok(writer) = session.stream().try_clone() else {
            return false;
        };
        let mut state = self.shared.state();
        if state.stopped {
            return false;
        }
        state.writer = Some(writer);
        state.failed = false;
        drop(state);
        self.shared.changed.notify_all();
        true
    }

    /// Drops the maps of earlier sessions.
    fn let_go(&mut self) {
        self.lingering.clear();
        for (shard, map) in self.held.drain() {
            drop(self.shared.slots.take_this(shard, &map, process::uptime()));
        }
    }

    fn end(&mut self) {
        let mut state = self.shared.state();
        state.disconnect();
        let again = process::uptime() + ASK_AGAIN_PENDING;
        for shard in state.asked.drain() {
            self.shared.slots.refuse(shard, again);
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    fn take(&mut self, session: &mut Session, incoming: &Incoming) -> Result<(), Failure> {
        let body = &incoming.body;
        match incoming.kind {
            Kind::Attached => {
                let fd = session.take_fd()?;
                let shard = self.answered(incoming.request)?;
                match self.attach(shard, fd) {
                    Ok(()) => {}
                    Err(why) => {
                        tracing::warn!(
                            shard,
                            why,
                            "an extent can't be used: its rows come over TCP"
                        );
                        self.release(shard);
                        self.refused(shard, ASK_AGAIN_REFUSED);
                    }
                }
            }
            Kind::Pending => {
                let shard = self.answered(incoming.request)?;
                self.refused(shard, ASK_AGAIN_PENDING);
            }
            Kind::NotKept => {
                let shard = self.answered(incoming.request)?;
                self.refused(shard, ASK_AGAIN_REFUSED);
            }
            Kind::Error => {
                let shard = self.answered(incoming.request)?;
                let error = ErrorReply::decode(body)?.error;
                tracing::debug!(shard, %error, "a shard can't be attached");
                if error.kind() == ErrorKind::NotFound {
                    self.shared.unknown.store(true, Relaxed);
                }
                self.refused(shard, ASK_AGAIN_REFUSED);
            }
            Kind::Recall => self.recall(Recall::decode(body)?),
            Kind::Ping => {
                let mut frame = Vec::new();
                Pong.encode(incoming.request, &mut frame);
                self.shared.state().send(&frame);
            }
            Kind::Pong => {}
            found => {
                return Err(Failure::Protocol(format!("{found:?} came on the unix socket")));
            }
        }
        Ok(())
    }

    /// The shard of an answer. Requests are numbered by shard.
    fn answered(&self, request: u64) -> Result<u32, Failure> {
        let shard = u32::try_from(request).ok();
        let shard = shard.filter(|shard| self.shared.state().asked.remove(shard));
        shard.ok_or_else(|| Failure::Protocol(format!("an answer came to request {request}")))
    }

    fn refused(&self, shard: u32, again: Duration) {
        let state = self.shared.state();
        self.shared.slots.refuse(shard, process::uptime() + again);
        drop(state);
        self.shared.changed.notify_all();
    }

    fn attach(&mut self, shard: u32, fd: std::os::fd::OwnedFd) -> Result<(), String> {
        let id = ExtentId::from_bytes(*self.shared.manifest.shard(shard).id.as_bytes());
        let map = Attached::with_private_views(fd, id).map_err(|error| error.to_string())?;
        fits(&self.shared.manifest, shard, &map)?;
        let state = self.shared.state();
        let (map, replaced) = self.shared.slots.put(shard, map);
        drop(state);
        drop(replaced);
        let before = self.held.insert(shard, map);
        self.shared.changed.notify_all();
        if before.is_some() {
            // A reader found the earlier map damaged and removed it from the table. The node counts
            // both.
            self.release(shard);
        }
        Ok(())
    }

    /// Returns an extent to the node, at once or when its last reader is done.
    fn recall(&mut self, recall: Recall) {
        if recall.snapshot != self.shared.manifest.snapshot() {
            return;
        }
        let Some(held) = self.held.remove(&recall.shard) else {
            return;
        };
        let again = process::uptime() + ASK_AGAIN_RECALLED;
        match self.shared.slots.take_this(recall.shard, &held, again) {
            Some(map) => self.lingering.push((recall.shard, map)),
            None => self.release(recall.shard),
        }
        self.drop_idle();
    }

    /// Drops recalled maps without other users.
    fn drop_idle(&mut self) {
        let (busy, idle): (Vec<_>, Vec<_>) = std::mem::take(&mut self.lingering)
            .into_iter()
            .partition(|(_, map)| Arc::strong_count(map) > 1);
        self.lingering = busy;
        for (shard, map) in idle {
            drop(map);
            self.release(shard);
        }
    }

    fn release(&self, shard: u32) {
        let (snapshot, mut frame) = (self.shared.manifest.snapshot(), Vec::new());
        Release { snapshot, shard }.encode(u64::from(shard), &mut frame);
        self.shared.state().send(&frame);
    }
}

impl Drop for Keeper<'_> {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Checks that an extent has the layout of the manifest, so that rows of the manifest are rows of
/// the extent.
fn fits(manifest: &Manifest, shard: u32, map: &Attached) -> Result<(), String> {
    let (layout, wanted_rows) = (map.layout(), u64::from(manifest.shard(shard).rows));
    if layout.region_count() != manifest.tensors().len() {
        let (found, wanted) = (layout.region_count(), manifest.tensors().len());
        return Err(format!("it has {found} regions for {wanted} tensors"));
    }
    for (index, tensor) in manifest.tensors().iter().enumerate() {
        let wanted = match tensor.locator() {
            RowLocator::Strided { row_bytes, stride_bytes } => {
                Region::Rows { rows: wanted_rows, row_bytes, stride_bytes }
            }
            RowLocator::Ragged => Region::Blocks { bytes: manifest.region(shard, index).bytes },
        };
        if layout.region(index) != wanted {
            let found = layout.region(index);
            return Err(format!("tensor {} lies as {found:?}, not as {wanted:?}", tensor.name()));
        }
    }
    Ok(())
}
