//! One client on this host, from HELLO until it is gone.

use std::os::fd::AsFd;
use std::sync::Arc;

use larder_base::{Error, ErrorKind, SnapshotId};
use larder_extent::Sealed;
use larder_wire::data::{
    Admit, Attach, AttachManifest, Attached, FrameHeader, Kind, NotKept, Pending, PendingState,
    Release,
};

use super::clients::Client;
use crate::cache::{HolderId, Leased};
use crate::catalog::IdentityId;
use crate::dataset::Dataset;
use crate::serve::Context;
use crate::serve::acceptor::HandshakeSlot;
use crate::serve::peer::Peer;
use crate::serve::session::{Closing, Session};
use crate::serve::wait_any;
use crate::shared::Shared;

/// Serves a client until it, or its process, is gone. All its state ends with it.
pub(super) fn serve(context: &Context, peer: &Peer, slot: HandshakeSlot) {
    // The mode of the socket file controls access, so no ticket is required.
    let Some(session) = Session::open(context, peer, slot, |_| Ok(())) else { return };
    let stay = Stay { context, peer, client: context.clients.join() };
    let mut connection = LocalConnection { stay, session, identity: None };
    let closing = loop {
        match connection.turn() {
            Ok(()) => {}
            Err(closing) => break closing,
        }
    };
    let LocalConnection { stay, session, .. } = connection;
    drop(stay);
    session.close(closing);
}

/// A client's stay. All its leases end when this is dropped.
struct Stay<'a> {
    context: &'a Context,
    peer: &'a Peer,
    client: Arc<Client>,
}

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        self.context.clients.leave(&self.client);
        let released = self.context.shared.cache.release_all(self.client.holder);
        if !released.ids.is_empty() && self.peer.has_exited() {
            self.context.activity.reaped.add(1);
        }
    }
}

struct LocalConnection<'a> {
    stay: Stay<'a>,
    session: Session<'a>,
    /// That of the variables that the client handed over last.
    identity: Option<IdentityId>,
}

impl LocalConnection<'_> {
    /// Waits for the next event and handles it.
    fn turn(&mut self) -> Result<(), Closing> {
        let Stay { context, peer, client } = &self.stay;
        let waited_for = [peer.process(), Some(context.stop.fd()), client.woken(), Some(peer.fd())];
        let [exited, stopping, woken, came] = wait_any(waited_for, self.session.wait_max())?;
        if exited || stopping {
            return Err(Closing::Silent);
        }
        if woken {
            self.send_recalls()?;
        }
        if came {
            let header = self.session.header()?;
            return self.answer(&header);
        }
        if !woken {
            self.session.rest();
        }
        Ok(())
    }

    fn answer(&mut self, header: &FrameHeader) -> Result<(), Closing> {
        match header.kind() {
            Kind::Attach => {
                let Attach { snapshot, shard } = Attach::decode(self.session.body(header)?)?;
                self.attach(header.request(), snapshot, shard)
            }
            Kind::AttachManifest => {
                let wanted = AttachManifest::decode(self.session.body(header)?)?;
                self.attach_manifest(header.request(), wanted)
            }
            Kind::Release => {
                let Release { snapshot, shard } = Release::decode(self.session.body(header)?)?;
                self.release(snapshot, shard);
                Ok(())
            }
            Kind::Admit => {
                let wanted = Admit::decode(self.session.body(header)?)?;
                match super::admit(self.stay.context, self.stay.peer, &wanted, self.identity) {
                    Ok(admitted) => {
                        self.identity = Some(admitted.identity);
                        self.session.send(|out| admitted.encode(header.request(), out))
                    }
                    Err(error) => self.session.refuse(header.request(), &error),
                }
            }
            _ => self.session.answer(header),
        }
    }

    fn attach(&mut self, request: u64, snapshot: SnapshotId, shard: u32) -> Result<(), Closing> {
        let leaves = &self.stay.context.shared.leaves;
        let found = self.session.dataset(snapshot).and_then(|dataset| {
            dataset.check_shard(shard)?;
            leaves.wait(leaves.ready(&dataset, &[shard]))?;
            Ok(dataset)
        });
        let dataset = match found {
            Ok(dataset) => dataset,
            Err(error) => return self.session.refuse(request, &error),
        };
        let Stay { context, client, .. } = &self.stay;
        let id = dataset.manifest().shard(shard).id;
        if let Err(error) = client.note((snapshot, shard), id) {
            return self.session.refuse(request, &error);
        }
        let leased = lease(&context.shared, &dataset, shard, client.holder);
        if !matches!(leased, Leased::Granted(_)) {
            client.strike((snapshot, shard));
        }
        match leased {
            Leased::Granted(sealed) => {
                if !self.hand_out(request, &sealed)? {
                    self.release(snapshot, shard);
                }
                Ok(())
            }
            Leased::NotKept => self.session.send(|out| NotKept.encode(request, out)),
            Leased::Pending(flight) => {
                let queued = flight.is_queued();
                let state = if queued { PendingState::Queued } else { PendingState::Filling };
                self.session.send(|out| Pending { state }.encode(request, out))
            }
            Leased::Failed(error) => self.session.refuse(request, &error),
        }
    }

    fn attach_manifest(&mut self, request: u64, wanted: AttachManifest) -> Result<(), Closing> {
        let leaves = &self.stay.context.shared.leaves;
        let found = self.session.dataset(wanted.snapshot).and_then(|dataset| match wanted.leaf {
            None => Ok(Arc::clone(dataset.manifest_extent())),
            Some(leaf) => {
                dataset.check_leaf(leaf)?;
                leaves.wait(leaves.extent(&dataset, leaf))
            }
        });
        match found {
            Ok(extent) => self.hand_out(request, &extent).map(|_| ()),
            Err(error) => self.session.refuse(request, &error),
        }
    }

    /// Sends the client a descriptor of its own. Returns false if the system had none.
    fn hand_out(&mut self, request: u64, extent: &Sealed) -> Result<bool, Closing> {
        let fd = match extent.open_for_peer() {
            Ok(fd) => fd,
            Err(why) => {
                let message = format!("the node has no descriptor to hand out: {why}; ask again");
                let error = Error::new(ErrorKind::ResourceExhausted, message).with_source(why);
                self.session.refuse(request, &error)?;
                return Ok(false);
            }
        };
        let mut frame = Vec::new();
        Attached { extent: *extent.id().as_bytes() }.encode(request, &mut frame);
        self.stay.peer.send_with_fd(&frame, fd.as_fd())?;
        self.stay.context.activity.attaches.add(1);
        Ok(true)
    }

    fn release(&self, snapshot: SnapshotId, shard: u32) {
        let Stay { context, client, .. } = &self.stay;
        if let Some(id) = client.strike((snapshot, shard)) {
            context.shared.cache.release(client.holder, id);
        }
    }

    fn send_recalls(&mut self) -> Result<(), Closing> {
        for recall in self.stay.client.take_recalls() {
            self.stay.context.activity.recalls.add(1);
            self.session.send(|out| recall.encode(0, out))?;
        }
        Ok(())
    }
}

/// Leases a shard. A replica is leased only if it is here: its primary owner fills the shard.
fn lease(shared: &Shared, dataset: &Arc<Dataset>, shard: u32, holder: HolderId) -> Leased {
    let (snapshot, id) = (dataset.snapshot(), dataset.manifest().shard(shard).id);
    if shared.placements.load().gives_further(snapshot, id, &shared.config.node_id) {
        return shared.cache.lease_if_here(dataset, shard, holder);
    }
    shared.cache.lease(dataset, shard, holder)
}
