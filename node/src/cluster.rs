//! What makes nodes a cluster: the shell around the pure rules.
//!
//! - [`coordinator`]: what a cluster agrees on, kept in one place.
//!
//! Thread rule: async, on the node's runtime; what touches a disk goes to a blocking thread. Non-goals: placement,
//! and what to do about what was agreed on.

pub mod coordinator;

use std::sync::Arc;

use larder_wire::Error;

use crate::config::{ClusterConfig, Config};
use coordinator::{Coordinator, Etcd, Seat, SeatOptions};

/// The cluster that a node is one of.
#[derive(Debug, Clone)]
pub struct Cluster {
    coordinator: Arc<dyn Coordinator>,
    seat: Option<Arc<Seat>>,
}

impl Cluster {
    /// Takes the node's place in the cluster that it is configured for, if there is one. Nobody need answer yet.
    /// `address` is where other nodes reach this one's control port. Inside a runtime.
    ///
    /// # Errors
    /// When the folder of its state or a certificate can't be used.
    pub async fn start(config: &Config, address: String) -> Result<Option<Self>, Error> {
        match config.cluster() {
            None => Ok(None),
            Some(ClusterConfig::Etcd { options, .. }) => {
                let coordinator = Arc::new(Etcd::start(options)?);
                Ok(Some(Self { coordinator, seat: None }))
            }
            Some(ClusterConfig::Seat { state, token, join }) => {
                let options = SeatOptions {
                    state: state.clone(),
                    node_id: config.node_id().to_owned(),
                    address,
                    token: token.clone(),
                    join: join.clone(),
                };
                let seat = Seat::start(options).await?;
                Ok(Some(Self { coordinator: Arc::clone(&seat) as _, seat: Some(seat) }))
            }
        }
    }

    /// What the cluster agrees on.
    #[must_use]
    pub fn coordinator(&self) -> &Arc<dyn Coordinator> {
        &self.coordinator
    }

    /// This node's seat, when nodes keep the record themselves.
    #[must_use]
    pub fn seat(&self) -> Option<&Arc<Seat>> {
        self.seat.as_ref()
    }

    /// Ends the watches of other nodes, so that their connections can end.
    pub fn stop(&self) {
        if let Some(seat) = &self.seat {
            seat.stop();
        }
    }
}
