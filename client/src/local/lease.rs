//! The use of a node that the processes of one user share.

use std::{io::Write, path::Path};

use larder_wire::data::{Admit, Admitted, ErrorReply, Kind, WireError};

use super::session::Session;
use crate::remote::Failure;

/// A connection by which a node knows that this process uses it. The use ends when it is dropped,
/// or with the process, whatever became of the children it forked.
pub(crate) struct Lease {
    session: Session,
}

impl Lease {
    /// Connects to the node that listens at `path`.
    pub(crate) fn take(path: &Path) -> Result<Self, Failure> {
        Ok(Self { session: Session::connect_any(path)?.0 })
    }

    /// Lets the node read what lies under `prefix`, and learns how it is reached; with an empty
    /// prefix only the latter.
    pub(crate) fn admit(&mut self, prefix: &str) -> Result<Admitted, Failure> {
        let mut frame = Vec::new();
        Admit { prefix: prefix.to_owned() }.encode(1, &mut frame);
        let sent = self.session.stream().write_all(&frame);
        sent.map_err(|error| Failure::from_io(&error))?;
        let answer = self.session.next()?;
        match answer.kind {
            Kind::Admitted => Ok(Admitted::decode(&answer.body)?),
            Kind::Error => Err(ErrorReply::decode(&answer.body)?.error.into()),
            found => Err(WireError::Unexpected { found, expected: "ADMITTED" }.into()),
        }
    }
}
