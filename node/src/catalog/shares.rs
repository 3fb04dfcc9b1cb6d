//! The places of open datasets, and the share of them that one caller may have.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use larder_base::{SnapshotId, limits};

/// The places that one user or one address may have.
const SHARE: usize = limits::OPEN_DATASETS_MAX / 4;

/// A caller that wants a dataset open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requester {
    /// The node itself, or the only user that it serves.
    Node,
    /// A user of this host.
    User(u32),
    /// An address that limits go by.
    Address(IpAddr),
}

/// The requester of each open dataset.
#[derive(Debug, Default)]
pub(super) struct Shares(HashMap<SnapshotId, Requester>);

/// The places that are all taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// All there are.
    All,
    /// The share of one requester.
    Share(Requester),
}

impl Shares {
    /// Checks that a requester may open one more dataset.
    pub(super) fn check(&self, requester: Requester) -> Result<(), Full> {
        if self.is_full(requester) {
            return Err(Full::Share(requester));
        }
        if self.0.len() >= limits::OPEN_DATASETS_MAX { Err(Full::All) } else { Ok(()) }
    }

    /// Returns true if a requester has all the places that it may have.
    pub(super) fn is_full(&self, requester: Requester) -> bool {
        let held = || self.0.values().filter(|one| **one == requester).count();
        requester != Requester::Node && held() >= SHARE
    }

    /// Returns true if there is a place once this dataset is closed.
    pub(super) fn makes_room(&self, full: Full, closed: SnapshotId) -> bool {
        match full {
            Full::All => true,
            Full::Share(requester) => self.0.get(&closed) == Some(&requester),
        }
    }

    pub(super) fn note(&mut self, opened: SnapshotId, requester: Requester) {
        self.0.insert(opened, requester);
    }

    pub(super) fn forget(&mut self, closed: SnapshotId) {
        self.0.remove(&closed);
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = super::TICKET_IDLE_TIMEOUT.as_secs() / 60;
        match self {
            Self::All => write!(f, "{} datasets are open", limits::OPEN_DATASETS_MAX)?,
            Self::Share(requester) => write!(f, "{SHARE} datasets are open for {requester}")?,
        }
        write!(f, ", the most there may be, and each was used within {minutes} minutes; ")?;
        write!(
            f,
            "end a program that reads one and wait {minutes} minutes, open several folders as one \
             dataset, or ask another node"
        )
    }
}

impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => write!(f, "this node"),
            Self::User(user) => write!(f, "user {user}"),
            Self::Address(address) => write!(f, "address {address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(number: usize) -> SnapshotId {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        SnapshotId::from_bytes(bytes)
    }

    #[test]
    fn one_requester_takes_a_quarter_of_all_places() {
        let mut shares = Shares::default();
        let [greedy, friend] = [7, 8].map(Requester::User);
        for number in 0..SHARE {
            shares.check(greedy).unwrap();
            shares.note(snapshot(number), greedy);
        }
        let full = Full::Share(greedy);
        assert_eq!(shares.check(greedy), Err(full));
        let told = full.to_string();
        assert!(told.starts_with("256 datasets are open for user 7, "), "{told}");
        assert!(told.contains("open several folders as one dataset"), "{told}");
        for number in SHARE..limits::OPEN_DATASETS_MAX {
            shares.check(Requester::Node).unwrap();
            shares.note(snapshot(number), Requester::Node);
        }
        assert_eq!(shares.check(friend), Err(Full::All));
        assert!(shares.makes_room(full, snapshot(0)) && shares.makes_room(Full::All, snapshot(0)));
        assert!(!shares.makes_room(full, snapshot(SHARE)), "it is not of this requester");
        shares.forget(snapshot(0));
        shares.check(greedy).unwrap();
        shares.check(friend).unwrap();
    }
}
