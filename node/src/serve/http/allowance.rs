//! The memory that all control connections together may hold.
//!
//! A connection is charged for itself, for each request in progress, and for the bytes that it sent
//! since all were answered. If there is no room, the node closes connections of the address that
//! holds most: first those that wait for their client. So a stranger pushes out itself before it
//! pushes out others. A node knows no caller before it has read a request, so all are strangers.
//!
//! Thread rule: a lock for microseconds. Non-goal: the answers that are being sent (`answers`).

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::serve::address::group;

/// Memory of a control connection without requests: at most 21 KiB, measured.
const CONTROL_CONNECTION_BYTES: usize = 20 << 10;

/// Memory of a request in progress on a control connection: 15 KiB the first and 6 KiB a further
/// one, measured.
const CONTROL_IN_PROGRESS_BYTES: usize = 12 << 10;

/// Bytes that a connection may send without a charge, beside those of answered requests.
const CONTROL_RECEIVED_BYTES_FREE: usize = 4 << 10;

/// The most that is charged for bytes that came in. It holds the largest requests of all streams; a
/// plan is sent on as it comes.
const CONTROL_RECEIVED_BYTES_MAX: usize = 1 << 20;

/// How long a new connection waits for room.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(10);

/// What all connections share.
#[derive(Debug)]
pub(super) struct Allowance {
    bytes: usize,
    connections: usize,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    held: usize,
    by_address: HashMap<IpAddr, usize>,
    connections: BTreeMap<u64, HttpConnection>,
    next: u64,
}

#[derive(Debug)]
struct HttpConnection {
    address: IpAddr,
    held: usize,
    /// Requests until their answers end; those of them that have no answer yet; and those that have
    /// not arrived.
    requests: usize,
    unanswered: usize,
    arriving: usize,
    /// Bytes received since no request was unanswered, and how many of them are charged.
    received: usize,
    charged: usize,
    /// When it last began to wait for its client.
    since: Instant,
    closed: CancellationToken,
}

/// There is no room, and no connection that must make some.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// A connection's part of the allowance.
#[derive(Debug)]
pub(super) struct Share {
    allowance: Arc<Allowance>,
    number: u64,
    closed: CancellationToken,
}

/// A request in progress, until its answer has ended.
#[derive(Debug)]
pub(super) struct Admitted {
    share: Arc<Share>,
    stage: AtomicU8,
}

/// The stages of a request.
const ARRIVING: u8 = 0;
const ARRIVED: u8 = 1;
const ANSWERED: u8 = 2;

impl Allowance {
    pub(super) fn new(bytes: usize, connections: usize) -> Arc<Self> {
        Arc::new(Self { bytes, connections, state: Mutex::default(), freed: Notify::new() })
    }

    /// Waits until there is room for a connection from this address. Returns `None` if that takes
    /// too long.
    pub(super) async fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Arc<Share>> {
        let admitted = async {
            loop {
                // Before the look, so that room made meanwhile is not missed.
                let freed = self.freed.notified();
                if let Ok(share) = self.try_admit(address) {
                    return share;
                }
                freed.await;
            }
        };
        tokio::time::timeout(ADMISSION_TIMEOUT, admitted).await.ok()
    }

    /// Admits a connection if there is room, or can be made.
    ///
    /// # Errors
    /// There is no room.
    pub(super) fn try_admit(self: &Arc<Self>, address: IpAddr) -> Result<Arc<Share>, Full> {
        let address = group(address);
        let mut state = self.lock();
        self.make_room(&mut state, address, None, CONTROL_CONNECTION_BYTES)?;
        let number = state.next;
        state.next += 1;
        let closed = CancellationToken::new();
        let connection = HttpConnection {
            address,
            held: 0,
            requests: 0,
            unanswered: 0,
            arriving: 0,
            received: 0,
            charged: 0,
            since: clock::now(),
            closed: closed.clone(),
        };
        state.connections.insert(number, connection);
        state.charge(number, CONTROL_CONNECTION_BYTES);
        Ok(Arc::new(Share { allowance: Arc::clone(self), number, closed }))
    }

    /// Closes the connection that must make room next, if there is one: descriptors are short.
    pub(super) fn close_one(&self) {
        let mut state = self.lock();
        if let Some(number) = state.next_to_close(None, None) {
            state.close(number);
        }
    }

    /// Closes connections until `bytes` more fit, and a new one if there is no `taker` yet.
    fn make_room(
        &self,
        state: &mut State,
        address: IpAddr,
        taker: Option<u64>,
        bytes: usize,
    ) -> Result<(), Full> {
        let places = self.connections - usize::from(taker.is_none());
        while state.held + bytes > self.bytes || state.connections.len() > places {
            let number = state.next_to_close(Some(address), taker).ok_or(Full)?;
            state.close(number);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn charge(&mut self, number: u64, bytes: usize) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.held += bytes;
            self.held += bytes;
            *self.by_address.entry(connection.address).or_default() += bytes;
        }
    }

    fn release(&mut self, number: u64, bytes: usize) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.held -= bytes;
            self.held -= bytes;
            let of_address = self.by_address.get_mut(&connection.address);
            *of_address.expect("it holds what its connections hold") -= bytes;
        }
    }

    /// Closes a connection. Its memory is free as soon as its task is polled again.
    fn close(&mut self, number: u64) {
        if let Some(connection) = self.connections.get(&number) {
            let (address, held) = (connection.address, connection.held);
            tracing::debug!(%address, held, "a control connection is closed to make room");
            connection.closed.cancel();
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else { return };
        self.held -= connection.held;
        let of_address = self.by_address.get_mut(&connection.address);
        let of_address = of_address.expect("it holds what its connections hold");
        *of_address -= connection.held;
        if *of_address == 0 {
            self.by_address.remove(&connection.address);
        }
    }

    /// Returns the connection to close for one of this address. An address that holds more than
    /// twice as much loses any; others lose those that wait for their client.
    fn next_to_close(&self, address: Option<IpAddr>, taker: Option<u64>) -> Option<u64> {
        let own = address.map_or(0, |address| self.by_address.get(&address).copied().unwrap_or(0));
        let of_address = self.by_address.iter();
        let (&fullest, &held) =
            of_address.max_by_key(|(of, held)| (**held, Some(**of) == address))?;
        let may_be_busy = Some(fullest) != address && held > 2 * own;
        let of_fullest = self.connections.iter().filter(|(number, connection)| {
            connection.address == fullest && Some(**number) != taker
        });
        let order =
            |connection: &HttpConnection| (!connection.waits_for_client(), connection.since);
        of_fullest
            .filter(|(_, connection)| may_be_busy || connection.waits_for_client())
            .min_by_key(|(_, connection)| order(connection))
            .map(|(number, _)| *number)
    }
}

impl HttpConnection {
    /// Whether no answer is being made on it.
    fn waits_for_client(&self) -> bool {
        self.arriving > 0 || self.requests == 0
    }
}

impl Share {
    /// Completes once the connection must end.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Ends the connection.
    pub(super) fn close(&self) {
        self.closed.cancel();
    }

    /// Counts bytes that came in.
    ///
    /// # Errors
    /// There is no room for them.
    pub(super) fn received(&self, bytes: usize) -> Result<(), Full> {
        let mut state = self.allowance.lock();
        let Some(connection) = state.connections.get_mut(&self.number) else { return Err(Full) };
        connection.received += bytes;
        let counted = connection.received.saturating_sub(CONTROL_RECEIVED_BYTES_FREE);
        let due = counted.min(CONTROL_RECEIVED_BYTES_MAX) - connection.charged;
        if due > 0 {
            let address = connection.address;
            self.allowance.make_room(&mut state, address, Some(self.number), due)?;
            state.charge(self.number, due);
            if let Some(connection) = state.connections.get_mut(&self.number) {
                connection.charged += due;
            }
        }
        Ok(())
    }

    /// Begins a request, whose body has not arrived.
    ///
    /// # Errors
    /// There is no room for it.
    pub(super) fn begin(self: &Arc<Self>) -> Result<Admitted, Full> {
        let bytes = CONTROL_IN_PROGRESS_BYTES;
        let mut state = self.allowance.lock();
        let Some(connection) = state.connections.get(&self.number) else { return Err(Full) };
        let address = connection.address;
        self.allowance.make_room(&mut state, address, Some(self.number), bytes)?;
        state.charge(self.number, bytes);
        if let Some(connection) = state.connections.get_mut(&self.number) {
            if connection.arriving == 0 {
                connection.since = clock::now();
            }
            connection.requests += 1;
            connection.unanswered += 1;
            connection.arriving += 1;
        }
        Ok(Admitted { share: Arc::clone(self), stage: AtomicU8::new(ARRIVING) })
    }
}

impl Admitted {
    /// Notes that all of the request has arrived.
    pub(super) fn arrived(&self) {
        self.advance(ARRIVED);
    }

    /// Notes that its answer begins.
    pub(super) fn answered(&self) {
        self.advance(ANSWERED);
    }

    fn advance(&self, to: u8) {
        let from = self.stage.fetch_max(to, Ordering::Relaxed);
        let mut state = self.share.allowance.lock();
        let Some(connection) = state.connections.get_mut(&self.share.number) else { return };
        if from < ARRIVED {
            connection.arriving -= 1;
        }
        if from < ANSWERED && to == ANSWERED {
            connection.unanswered -= 1;
            if connection.unanswered == 0 {
                connection.received = 0;
                let charged = std::mem::take(&mut connection.charged);
                state.release(self.share.number, charged);
            }
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.answered();
        let share = &self.share;
        let mut state = share.allowance.lock();
        state.release(share.number, CONTROL_IN_PROGRESS_BYTES);
        if let Some(connection) = state.connections.get_mut(&share.number) {
            connection.requests -= 1;
            if connection.requests == 0 {
                connection.since = clock::now();
            }
        }
        drop(state);
        share.allowance.freed.notify_waiters();
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.allowance.lock().remove(self.number);
        self.allowance.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
