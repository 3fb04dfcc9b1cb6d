//! Placeholder until the servers are merged: holds the listeners.
use std::sync::Arc;
use std::time::Duration;

use larder_wire::Error;

use crate::node::Listeners;
use crate::shared::Shared;

/// The servers of a node.
#[derive(Debug)]
pub struct Servers {
    _listeners: Listeners,
}

impl Servers {
    /// Starts all servers.
    ///
    /// # Errors
    /// If one can't be started.
    pub fn start(_shared: &Arc<Shared>, listeners: Listeners) -> Result<Self, Error> {
        Ok(Self { _listeners: listeners })
    }

    /// Stops accepting and waits for requests in flight, at most `grace`. Blocks.
    pub fn drain(&self, _grace: Duration) {}
}
