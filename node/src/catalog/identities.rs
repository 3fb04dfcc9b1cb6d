//! The identities that sign requests to stores: one for each set of variables of the user's
//! programs.
//!
//! A program hands its variables over as it attaches, and again when they have changed. A node that
//! serves several users has its own identity alone.
//!
//! Thread rule: all threads share it; locks for microseconds. Non-goal: which identity may read
//! what; the store decides that, when a program opens a dataset.

use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_base::Error;
use larder_dataset::{LeafFiles, Origin, Variables};

use super::{Dataset, dataset_error, origin_error};

/// The most sets of variables. The one that was handed over longest ago leaves.
const IDENTITIES_MAX: usize = 64;

/// The number of an identity.
pub(crate) type IdentityId = u32;

/// The identity by the node's own variables.
pub(crate) const OWN: IdentityId = 0;

/// Reads an open dataset with the identity of another origin too. It must be one that may read the
/// data, as the manifest may lie elsewhere: asks for the metadata of an object. `leaf_files` are
/// read with this identity.
///
/// # Errors
/// The origin's.
pub(super) async fn read_by_too(
    dataset: &Dataset,
    leaf_files: &LeafFiles,
    origin: &Origin,
) -> Result<(), Error> {
    if dataset.origin().has_way_of(origin) {
        return Ok(());
    }
    let manifest = dataset.manifest();
    if manifest.leaf_count() > 0 {
        let leaf = leaf_files.load(manifest, 0).await.map_err(dataset_error)?;
        if leaf.object_count() > 0 {
            origin.head(&leaf.object_uri(0)).await.map_err(origin_error)?;
        }
    }
    dataset.origin().also_by(origin);
    Ok(())
}

/// The known identities.
#[derive(Debug)]
pub(super) struct Identities(Mutex<State>);

#[derive(Debug)]
struct State {
    own: Variables,
    /// The last one was handed over last.
    others: Vec<(IdentityId, Variables)>,
    last: IdentityId,
}

impl Identities {
    pub(super) fn of_process() -> Self {
        let (own, others) = (Variables::of_process(), Vec::new());
        Self(Mutex::new(State { own, others, last: OWN }))
    }

    /// Returns the number of these variables.
    pub(super) fn note(&self, variables: &Variables) -> IdentityId {
        let mut state = self.lock();
        if state.own == *variables {
            return OWN;
        }
        let known = state.others.iter().position(|(_, known)| known == variables);
        let identity = match known.map(|at| state.others.remove(at)) {
            Some((identity, _)) => identity,
            None => {
                state.last += 1;
                state.last
            }
        };
        if state.others.len() >= IDENTITIES_MAX {
            state.others.remove(0);
        }
        state.others.push((identity, variables.clone()));
        identity
    }

    /// Returns the variables with this number.
    pub(super) fn get(&self, identity: IdentityId) -> Option<Variables> {
        let state = self.lock();
        if identity == OWN {
            return Some(state.own.clone());
        }
        let known = state.others.iter().find(|(known, _)| *known == identity);
        known.map(|(_, variables)| variables.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(number: usize) -> Variables {
        Variables::of([("AWS_ACCESS_KEY_ID".into(), number.to_string().into())])
    }

    #[test]
    fn equal_variables_are_one_identity() {
        let identities = Identities::of_process();
        assert_eq!(identities.note(&Variables::of_process()), OWN);
        let first = identities.note(&keys(1));
        assert_ne!(first, OWN);
        assert_ne!(identities.note(&keys(2)), first);
        assert_eq!(identities.note(&keys(1)), first);
        assert_eq!(identities.get(first), Some(keys(1)));
    }

    #[test]
    fn the_identity_that_was_handed_over_longest_ago_leaves() {
        let identities = Identities::of_process();
        let first = identities.note(&keys(0));
        let second = identities.note(&keys(1));
        for number in 2..IDENTITIES_MAX {
            identities.note(&keys(number));
        }
        identities.note(&keys(0));
        identities.note(&keys(IDENTITIES_MAX));
        assert_eq!(identities.get(second), None);
        assert!(identities.get(first).is_some() && identities.get(OWN).is_some());
    }
}
