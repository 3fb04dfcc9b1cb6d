//! The protocol common to all connections: the handshake, requests one after the other, answers and
//! refusals.

use std::sync::Arc;
use std::time::Duration;

use larder_base::{Error, ErrorKind, SnapshotId, limits};
use larder_extent::crc::crc32c;
use larder_wire::data::{
    ErrorReply, Features, FrameHeader, Gather, Hello, HelloOk, Kind, Part, Ping, Pong, ReadPart,
    WireError, read_body, read_header, read_hello,
};

use super::Context;
use super::acceptor::{HandshakeSlot, Refusal, STOPPING, frame_deadline};
use super::gather::{self, Agreed, GatherFailure};
use super::peer::Peer;
use super::staging::{HeldBytes, Scratch};
use crate::cache::InUse;
use crate::clock;
use crate::dataset::Dataset;

/// Time after which a silent data connection is closed; the client opens another when it needs one.
/// As long as the longest validation or checkpoint, because an open connection keeps the shards of
/// its job.
const DATA_IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Bytes of a request that every connection may hold; 2,000 rows fit. Larger requests share
/// [`limits::REQUEST_BYTES_TOTAL`].
const REQUEST_BYTES_FREE: usize = 16 << 10;

/// Time that a large request waits for its share of [`limits::REQUEST_BYTES_TOTAL`].
const REQUEST_BYTES_TIMEOUT: Duration = Duration::from_secs(1);

/// Time a connection keeps its staging piece after a gather, because the next gather usually comes
/// soon.
const STAGING_IDLE: Duration = Duration::from_secs(1);

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum Closing {
    /// The peer is gone, or this node is stopping. No message is sent.
    Silent,
    /// The peer broke the protocol.
    Fault(WireError),
}

impl From<std::io::Error> for Closing {
    fn from(_: std::io::Error) -> Self {
        Self::Silent
    }
}

impl From<WireError> for Closing {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Closed | WireError::Idle | WireError::Broken(_) => Self::Silent,
            fault => Self::Fault(fault),
        }
    }
}

/// A connection after its handshake.
#[derive(Debug)]
pub(super) struct Session<'a> {
    context: &'a Context,
    peer: &'a Peer,
    agreed: Agreed,
    scratch: Scratch,
    in_use: InUse,
    /// The name that the client gave itself.
    client_name: String,
}

impl<'a> Session<'a> {
    /// Performs the handshake. Returns `None` if it fails. A peer that speaks this protocol is then
    /// told the error. `check` decides whether this client may connect here.
    pub(super) fn open(
        context: &'a Context,
        peer: &'a Peer,
        slot: HandshakeSlot,
        check: impl FnOnce(&Hello) -> Result<(), Error>,
    ) -> Option<Self> {
        let mut reader = peer.first_reader(clock::now() + limits::HANDSHAKE_TIMEOUT);
        let (request, answer) = match read_hello(&mut reader) {
            Ok((request, hello)) => (request, welcome(context, slot.refusal, hello, check)),
            Err(error) => match Closing::from(error) {
                Closing::Silent => return None,
                Closing::Fault(fault) => (0, Err(fault.into())),
            },
        };
        drop(slot);
        let mut scratch = Scratch::new(&context.staging);
        match answer {
            Ok((hello, ok)) => {
                ok.encode(request, scratch.frame());
                peer.send(scratch.frame_bytes()).ok()?;
                let in_use = InUse::new(&context.shared.cache);
                let agreed = Agreed { limits: ok.limits, features: ok.features };
                let client_name = hello.client_name;
                Some(Self { context, peer, agreed, scratch, in_use, client_name })
            }
            Err(error) => {
                context.activity.refused.add(1);
                ErrorReply::from(error).encode(request, scratch.frame());
                // A failed send changes nothing here.
                let _ = peer.send(scratch.frame_bytes());
                None
            }
        }
    }

    /// Reads the header of the next request, which has begun to arrive.
    pub(super) fn header(&mut self) -> Result<FrameHeader, Closing> {
        Ok(read_header(&mut self.peer.reader(frame_deadline()))?)
    }

    /// Reads a short body.
    pub(super) fn body(&mut self, header: &FrameHeader) -> Result<&[u8], Closing> {
        let body = self.scratch.body();
        read_body(&mut self.peer.reader(frame_deadline()), header, body)?;
        Ok(body)
    }

    /// Answers the requests that every connection allows.
    pub(super) fn answer(&mut self, header: &FrameHeader) -> Result<(), Closing> {
        match header.kind() {
            Kind::Ping => {
                Ping::decode(self.body(header)?)?;
                self.send(|out| Pong.encode(header.request(), out))
            }
            Kind::Gather => self.gather(header),
            Kind::ReadPart => self.read_part(header),
            found => {
                Err(WireError::Unexpected { found, expected: "GATHER, READ_PART or PING" }.into())
            }
        }
    }

    fn read_part(&mut self, header: &FrameHeader) -> Result<(), Closing> {
        let wanted = ReadPart::decode(self.body(header)?)?;
        match self.send_part(header.request(), wanted) {
            Ok(()) => Ok(()),
            Err(GatherFailure::Refused(error)) => self.refuse(header.request(), &error),
            Err(GatherFailure::Broken(why)) => Err(why.into()),
        }
    }

    /// Sends the bytes if the shard is here. This does not count as a use of the shard or its
    /// dataset: the requesting node is about to have its own copy.
    fn send_part(&mut self, request: u64, wanted: ReadPart) -> Result<(), GatherFailure> {
        let ReadPart { snapshot, shard, tensor, offset, bytes } = wanted;
        let shared = &self.context.shared;
        let dataset = shared.catalog.opened(snapshot)?;
        dataset.check_shard(shard)?;
        shared.leaves.wait(shared.leaves.ready(&dataset, &[shard]))?;
        let sealed = shared.cache.resident(&dataset, shard).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("this node does not have shard {shard}"))
        })?;
        let has_tensor = (tensor as usize) < dataset.manifest().tensors().len();
        let region = if has_tensor { sealed.region(tensor as usize) } else { &[] };
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = begin.saturating_add(bytes as usize);
        let payload = region.get(begin..end).ok_or_else(|| {
            let message = format!(
                "bytes {offset}..+{bytes} of tensor {tensor} of shard {shard}, which does not have them"
            );
            Error::new(ErrorKind::InvalidArgument, message)
        })?;
        let may_say = self.agreed.features.contains(Features::RESTS);
        let rests = if may_say { shared.throttle.rests_for(&self.client_name) } else { 0 };
        let part = Part { digest: sealed.digest(), crc32c: crc32c(payload), rests };
        part.encode(request, u64::from(bytes), self.scratch.frame());
        self.peer.send_both(self.scratch.frame_bytes(), payload)?;
        self.context.activity.peer_bytes.add(u64::from(bytes));
        Ok(())
    }

    fn gather(&mut self, header: &FrameHeader) -> Result<(), Closing> {
        let request = header.request();
        let Some(mut held) = self.admit(header) else {
            let message = "too many large requests at once; ask again, or for fewer rows at a time";
            self.refuse(request, &Error::new(ErrorKind::ResourceExhausted, message))?;
            // Its body was not read, so the position of the next frame is unknown.
            return Err(Closing::Silent);
        };
        let wanted = Gather::decode(self.body(header)?)?;
        self.scratch.forget_body();
        if let Some(held) = &mut held {
            held.keep(header.body_len());
        }
        let _gathering = self.context.activity.gathering.begin();
        self.context.activity.gathers.add(1);
        self.context.shared.throttle.note_read();
        let (context, peer, agreed) = (self.context, self.peer, self.agreed);
        let answered =
            self.dataset(wanted.snapshot).map_err(GatherFailure::Refused).and_then(|dataset| {
                let scratch = &mut self.scratch;
                gather::answer(context, peer, agreed, request, dataset, &wanted, scratch)
            });
        // The gather may have taken long.
        context.shared.throttle.note_read();
        match answered {
            Ok(()) => Ok(()),
            Err(GatherFailure::Refused(error)) => {
                context.activity.gathers_failed.add(1);
                self.refuse(request, &error)
            }
            Err(GatherFailure::Broken(why)) => {
                tracing::debug!("a connection broke within a gather: {why}");
                context.activity.gathers_failed.add(1);
                Err(Closing::Silent)
            }
        }
    }

    /// Returns the open dataset with this snapshot. From now on this connection has it in use.
    pub(super) fn dataset(&mut self, snapshot: SnapshotId) -> Result<Arc<Dataset>, Error> {
        let dataset = self.context.shared.catalog.opened(snapshot)?;
        self.in_use.note(&dataset);
        Ok(dataset)
    }

    /// Reserves memory to receive and decode a large request. Returns `None` if that takes too
    /// long.
    fn admit(&self, header: &FrameHeader) -> Option<Option<HeldBytes>> {
        let bytes = header.body_len();
        if bytes <= REQUEST_BYTES_FREE {
            return Some(None);
        }
        self.context.requests.take(2 * bytes, REQUEST_BYTES_TIMEOUT).map(Some)
    }

    /// Sends an error for a request; the connection goes on.
    pub(super) fn refuse(&mut self, request: u64, error: &Error) -> Result<(), Closing> {
        self.send(|out| ErrorReply::from(error.clone()).encode(request, out))
    }

    /// Sends one frame.
    pub(super) fn send(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), Closing> {
        encode(self.scratch.frame());
        Ok(self.peer.send(self.scratch.frame_bytes())?)
    }

    /// Tells a peer that broke the protocol the reason, before the connection closes.
    pub(super) fn close(mut self, closing: Closing) {
        if let Closing::Fault(fault) = closing {
            tracing::debug!("a connection is closed: {fault}");
            let _ = self.refuse(0, &fault.into());
        }
    }

    /// Frees the buffers that only help while requests follow each other.
    pub(super) fn rest(&mut self) {
        self.scratch.rest();
    }

    /// Returns how long to wait for the next request before [`rest`](Self::rest), or after it.
    pub(super) fn wait_max(&self) -> Duration {
        if self.scratch.is_resting() { DATA_IDLE_TIMEOUT } else { STAGING_IDLE }
    }

    pub(super) fn is_resting(&self) -> bool {
        self.scratch.is_resting()
    }
}

/// Decides the answer to a HELLO.
fn welcome(
    context: &Context,
    refusal: Option<Refusal>,
    hello: Hello,
    check: impl FnOnce(&Hello) -> Result<(), Error>,
) -> Result<(Hello, HelloOk), Error> {
    let stopping = context.stop.is_given().then_some(STOPPING);
    if let Some((kind, why)) = refusal.or(stopping) {
        return Err(Error::new(kind, why));
    }
    let ok = HelloOk::answer(&hello, context.boot_id(), &context.shared.config.node_id)?;
    check(&hello)?;
    Ok((hello, ok))
}
