//! The few connections to one node.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use super::Connection;
use crate::deadline::Deadline;

/// Data connections a client keeps to one node: two cover the bandwidth of a link, and the node
/// pays for each.
const CONNECTIONS_PER_NODE_MAX: usize = 2;

/// At most [`CONNECTIONS_PER_NODE_MAX`] connections. A reader waits if all are in use.
///
/// A reader that takes from several pools takes in the order of the members, or does not wait. So
/// no two readers each wait for the other's connection.
#[derive(Default)]
pub(crate) struct Pool {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Connection>,
    taken: usize,
}

/// The right to one connection, and the connection once it is open. Its drop returns both, and
/// closes a connection with an outstanding answer.
pub(crate) struct ConnectionSlot {
    pool: Arc<Pool>,
    connection: Option<Connection>,
}

impl Pool {
    /// A slot, if one is free now.
    pub(crate) fn try_take(self: &Arc<Self>) -> Option<ConnectionSlot> {
        self.take_from(&mut self.state())
    }

    /// A slot. Waits for one until the deadline.
    pub(crate) fn take(self: &Arc<Self>, deadline: &Deadline) -> Option<ConnectionSlot> {
        let mut state = self.state();
        loop {
            if let Some(slot) = self.take_from(&mut state) {
                return Some(slot);
            }
            let waited = self.freed.wait_timeout(state, deadline.slice()?);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Closes idle connections, because their node is gone.
    pub(crate) fn clear(&self) {
        let idle = std::mem::take(&mut self.state().idle);
        drop(idle);
    }

    fn take_from(self: &Arc<Self>, state: &mut State) -> Option<ConnectionSlot> {
        if state.taken >= CONNECTIONS_PER_NODE_MAX {
            return None;
        }
        state.taken += 1;
        Some(ConnectionSlot { pool: Arc::clone(self), connection: state.idle.pop() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    pub(crate) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    pub(crate) fn set(&mut self, connection: Connection) {
        self.connection = Some(connection);
    }
}

impl Deref for ConnectionSlot {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("connected before it is used")
    }
}

impl DerefMut for ConnectionSlot {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("connected before it is used")
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let idle = self.connection.take().and_then(Connection::idle);
        let mut state = self.pool.state();
        state.taken -= 1;
        state.idle.extend(idle);
        drop(state);
        self.pool.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::deadline::CancelToken;

    fn deadline(seconds: u64, cancel: &CancelToken) -> Deadline {
        Deadline::new(Duration::from_secs(seconds), cancel)
    }

    #[test]
    fn pool_hands_out_slots_only_up_to_the_connection_limit() {
        let pool = Arc::new(Pool::default());
        let slots: Vec<_> =
            (0..CONNECTIONS_PER_NODE_MAX).map(|_| pool.try_take().unwrap()).collect();
        assert!(pool.try_take().is_none());
        assert!(pool.take(&deadline(0, &CancelToken::never())).is_none());
        let cancelled = CancelToken::new();
        cancelled.cancel();
        assert!(pool.take(&deadline(3600, &cancelled)).is_none());
        drop(slots);
        assert!(pool.try_take().is_some());
    }

    #[test]
    fn waiting_thread_gets_the_next_returned_slot() {
        let pool = Arc::new(Pool::default());
        let slots: Vec<_> =
            (0..CONNECTIONS_PER_NODE_MAX).map(|_| pool.try_take().unwrap()).collect();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.take(&deadline(60, &CancelToken::never())).is_some());
            drop(slots);
            assert!(waiting.join().unwrap());
        });
    }
}
