//! Failures of a node, by the reaction to them.

use std::io;

use larder_base::{Error as WireFailure, ErrorKind};
use larder_wire::data::WireError;

use crate::Error;

/// The reason why a node did not deliver.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection was refused, or broke. Ask the next node at once.
    Broken(String),
    /// No connection to the node's data port. Ask the next node.
    Unreachable(String),
    /// No data for too long. Ask the next node.
    Silent,
    /// A row arrived with a wrong checksum. Ask again on another connection, with VERIFY.
    Corrupt {
        /// The tensor slot and the row of the request.
        slot: usize,
        row: usize,
    },
    /// The node broke the protocol. Do not use it again for this read.
    Protocol(String),
    /// The node answered with an error. Its kind decides the reaction.
    Answer(Error),
    /// The node lacks the dataset or may not read it, unlike others. Ask the next node.
    Unwilling(Error),
}

impl Failure {
    /// Converts an error of a socket with a read timeout.
    pub(crate) fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            _ => Self::Broken(error.to_string()),
        }
    }

    /// The error for the user if no retry helps.
    pub(crate) fn to_error(&self, node: &str) -> Error {
        let unavailable = |what: String| Error::new(ErrorKind::Unavailable, what);
        match self {
            Self::Broken(why) => {
                unavailable(format!("the connection to node {node} failed")).because(why)
            }
            Self::Unreachable(why) => {
                unavailable(format!("the data port of node {node} can't be reached")).because(why)
            }
            Self::Silent => unavailable(format!("node {node} is silent")),
            Self::Corrupt { slot, row } => Error::new(
                ErrorKind::DataLoss,
                format!(
                    "node {node} sent a row with a wrong checksum (row {row} of tensor slot {slot})"
                ),
            ),
            Self::Protocol(why) => {
                Error::new(ErrorKind::Internal, format!("node {node} broke the protocol"))
                    .because(why)
            }
            Self::Answer(error) | Self::Unwilling(error) => {
                error.clone().context(format!("node {node} answered"))
            }
        }
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Idle => Self::Silent,
            WireError::Closed => Self::Broken("the node closed it".to_owned()),
            WireError::Broken(io) => Self::from_io(&io),
            WireError::Checksum { .. } => Self::Broken(error.to_string()),
            _ => Self::Protocol(error.to_string()),
        }
    }
}

impl From<WireFailure> for Failure {
    fn from(error: WireFailure) -> Self {
        Self::Answer(error.into())
    }
}
