//! Installs rings at nodes, once the node has the ring's exceptions, which are blobs at the
//! coordinator.

use std::{rc::Rc, time::Duration};

use larder_membership::{
    BlobId,
    agent::{Event, RingOf},
};

use super::{Item, Place, Request, TICK, World, node::InUse};
use crate::bugs::Mishap;

impl World {
    /// Installs a ring once its exceptions and those of the ring before are here.
    pub(super) fn install_on(&mut self, place: Place, boot: u32) {
        let node = &mut self.nodes[place];
        if !node.runs(boot) {
            return;
        }
        let Some((ring, previous)) = node.installing.clone() else {
            return;
        };
        let named = [ring.placement, previous.as_ref().and_then(|ring| ring.placement)];
        let lacking: Vec<BlobId> =
            named.into_iter().flatten().filter(|id| !node.blobs.contains_key(id)).collect();
        if lacking.is_empty() {
            node.installing = None;
            return self.begin_install(place, boot, ring, previous);
        }
        for id in lacking {
            if self.nodes[place].fetching.insert(id) {
                self.send(place, boot, Request::Fetch(id));
            }
        }
    }

    fn begin_install(
        &mut self,
        place: Place,
        boot: u32,
        mut ring: RingOf,
        mut previous: Option<RingOf>,
    ) {
        let version = ring.version;
        match previous.as_mut() {
            _ if self.planted.world(Mishap::TablesDroppedAtInstall) => ring.placement = None,
            Some(before) if self.planted.world(Mishap::PreviousTablesForgotten) => {
                before.placement = None;
            }
            Some(_) if self.planted.world(Mishap::PreviousForgotten) => previous = None,
            Some(before) if self.planted.world(Mishap::OldTablesAtInstall) => ring = before.clone(),
            _ => {}
        }
        let placed = self.placed(&ring);
        let previous = previous.map(|ring| self.placed(&ring)).transpose();
        match placed.and_then(|placed| Ok((placed, previous?))) {
            Ok((placed, previous)) => {
                let wait = Duration::from_millis(self.rng.u64(1..3_000));
                self.after(wait, Item::Install(place, boot, InUse { version, placed, previous }));
            }
            Err(why) => {
                self.checks
                    .violate(self.now, format!("n{place} can't go by ring {version}: {why}"));
            }
        }
    }

    /// Handles the answer to a request for exceptions.
    pub(super) fn fetched(
        &mut self,
        place: Place,
        boot: u32,
        blob: BlobId,
        bytes: Option<Vec<u8>>,
    ) {
        match bytes {
            Some(bytes) => {
                self.nodes[place].blobs.insert(blob, Rc::new(bytes));
                self.install_on(place, boot);
            }
            None => self.after(TICK, Item::Lacks(place, boot)),
        }
    }

    /// Puts a ring with its exceptions into use.
    pub(super) fn installed(&mut self, place: Place, boot: u32, ring: InUse) {
        let node = &mut self.nodes[place];
        if !node.runs(boot) {
            return;
        }
        let version = ring.version;
        let placed = Rc::clone(&ring.placed);
        if node.in_use.as_ref().is_none_or(|used| used.version <= version) {
            node.in_use = Some(ring);
            self.check_in_use(place, version, &placed);
        }
        self.tell(place, boot, Event::Installed(version));
    }
}
