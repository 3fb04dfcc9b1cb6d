//! The progress of a loader, as a few integers.

use std::fmt;
use std::str::FromStr;

use super::pass::Fields;
use super::{Error, PassId};

/// The progress of a job in its epoch: the pass, and the first position not yet delivered.
///
/// It belongs to the job, not to a rank: save it at the border of a global batch, where all ranks
/// agree ([`BatchPlan::position_after`](super::BatchPlan::position_after)), and resume with any
/// world size and any batch size. It does not count samples that were prefetched but not delivered,
/// so a resume does not lose them.
///
/// Its text is `larder-state/1/PASS/NEXT-POSITION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoaderState {
    pass_id: PassId,
    next_position: u64,
}

impl LoaderState {
    /// The state before any delivery (`next_position` 0) or after those below `next_position`.
    pub fn new(pass_id: PassId, next_position: u64) -> Self {
        Self { pass_id, next_position }
    }

    /// The pass under way: seed, epoch and shuffle are to be taken from it.
    pub fn pass_id(&self) -> PassId {
        self.pass_id
    }

    /// The first position not yet delivered.
    pub fn next_position(&self) -> u64 {
        self.next_position
    }

    /// The position at which the pass `pass_id` of `positions` positions goes on.
    ///
    /// # Errors
    /// [`Error::Pass`] if this state is of another pass, [`Error::Position`] past the end of the
    /// epoch.
    pub fn resume(&self, pass_id: PassId, positions: u64) -> Result<u64, Error> {
        if pass_id != self.pass_id {
            let (wanted, found) = (Box::new(pass_id), Box::new(self.pass_id));
            return Err(Error::Pass { wanted, found });
        }
        if self.next_position > positions {
            return Err(Error::Position { position: self.next_position, positions });
        }
        Ok(self.next_position)
    }
}

impl fmt::Display for LoaderState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "larder-state/1/{}/{}", self.pass_id, self.next_position)
    }
}

impl FromStr for LoaderState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut fields =
            Fields::new(text, "a loader state of form 1: larder-state/1/PASS/NEXT-POSITION");
        fields.literal("larder-state")?;
        fields.literal("1")?;
        let state = Self { pass_id: PassId::read(&mut fields)?, next_position: fields.number()? };
        fields.end()?;
        Ok(state)
    }
}

#[cfg(test)]
mod tests;
