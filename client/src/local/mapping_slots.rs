//! How many extents this process has mapped, over all its datasets.
//!
//! A place is claimed before an extent is asked for, and given back when the extent is unmapped,
//! which may be long after it left the attach table: views keep it.

use std::sync::{
    Arc,
    atomic::{
        AtomicUsize,
        Ordering::{AcqRel, Relaxed},
    },
};

use larder_base::limits;

use crate::process::PerProcess;

/// A forked child maps its own: it drops what it inherits.
static PLACES: PerProcess<Arc<MappingSlots>> = PerProcess::new();

/// MappingSlots for extents that are mapped or asked for.
pub(super) struct MappingSlots {
    taken: AtomicUsize,
    count: usize,
}

/// A place that was taken, given back when this is dropped.
pub(super) struct MappingSlot {
    places: Arc<MappingSlots>,
}

impl MappingSlots {
    pub(super) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { taken: AtomicUsize::new(0), count })
    }

    /// Those of this process.
    pub(super) fn of_process() -> Arc<Self> {
        Arc::clone(&**PLACES.get(|_| Self::new(limits::MAPPED_EXTENTS_MAX)))
    }

    /// Takes a place, if one is left.
    pub(super) fn claim(&self) -> bool {
        let one_more = |taken| (taken < self.count).then_some(taken + 1);
        self.taken.fetch_update(AcqRel, Relaxed, one_more).is_ok()
    }

    /// Takes a place for what is mapped already.
    pub(super) fn take(&self) {
        self.taken.fetch_add(1, AcqRel);
    }

    pub(super) fn give_back(&self) {
        self.taken.fetch_sub(1, AcqRel);
    }
}

impl MappingSlot {
    /// One that was taken before.
    pub(super) fn taken(places: &Arc<MappingSlots>) -> Self {
        Self { places: Arc::clone(places) }
    }
}

impl Drop for MappingSlot {
    fn drop(&mut self) {
        self.places.give_back();
    }
}
