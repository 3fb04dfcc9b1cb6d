//! The ways to make requests to a bucket. Each signs with the identity of one set of variables.
//!
//! An origin begins with one way. A node that reads for several programs adds those of others that
//! may read the same data. Requests for objects take the first way. A way goes to the end if
//! the store refuses its keys, and the request takes the next. So a job reads on while one of its
//! programs has keys that hold.
//!
//! Thread rule: shared by all clones of an origin; no lock is held across an await.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use object_store::ObjectStore;

use super::{
    checked::Contact,
    credentials::{Access, Renewed},
};
use crate::Variables;

/// The most ways of an origin: old keys of a long job leave.
const WAYS_MAX: usize = 8;

/// One way to make requests.
#[derive(Debug)]
pub(super) struct Way {
    /// Retries for a minute.
    pub(super) store: Arc<dyn ObjectStore>,
    /// Makes one attempt.
    pub(super) strict: Arc<dyn ObjectStore>,
    /// What the answers tell about the store.
    pub(super) contact: Arc<Contact>,
    /// How requests are made, for S3.
    pub(super) access: Option<Access>,
    /// The keys, if this library renews them.
    pub(super) keys: Option<Arc<Renewed>>,
    /// The variables that it was made by.
    pub(super) variables: Variables,
}

impl Way {
    /// Returns its store for requests that are tried so often.
    pub(super) fn store(&self, tries: Tries) -> &Arc<dyn ObjectStore> {
        match tries {
            Tries::One => &self.strict,
            Tries::ForAMinute => &self.store,
        }
    }
}

/// How often a request is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tries {
    One,
    ForAMinute,
}

/// The ways of an origin, the one in use first. There is at least one.
#[derive(Debug, Clone)]
pub(super) struct Ways(Arc<Mutex<Vec<Arc<Way>>>>);

impl Ways {
    pub(super) fn only(way: Arc<Way>) -> Self {
        Self(Arc::new(Mutex::new(vec![way])))
    }

    /// Returns all, in the order to take them.
    pub(super) fn all(&self) -> Vec<Arc<Way>> {
        self.lock().clone()
    }

    pub(super) fn first(&self) -> Arc<Way> {
        Arc::clone(&self.lock()[0])
    }

    /// Returns the way that was made by these variables.
    pub(super) fn by(&self, variables: &Variables) -> Option<Arc<Way>> {
        self.lock().iter().find(|way| way.variables == *variables).cloned()
    }

    /// Takes this way from now on. Replaces one that was made by the same variables.
    pub(super) fn put_first(&self, way: Arc<Way>) {
        let mut ways = self.lock();
        ways.retain(|known| known.variables != way.variables);
        ways.insert(0, way);
        ways.truncate(WAYS_MAX);
    }

    /// Takes this way only after all others.
    pub(super) fn put_last(&self, way: &Arc<Way>) {
        let mut ways = self.lock();
        if let Some(at) = ways.iter().position(|known| Arc::ptr_eq(known, way)) {
            ways[at..].rotate_left(1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Way>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
