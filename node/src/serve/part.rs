//! Sends bytes of an extent to another node that fills a part of a shard. Tells it how long to
//! pause between pieces of a background transfer.

use larder_base::{Error, ErrorKind};
use larder_extent::crc::crc32c;
use larder_wire::data::{Features, Part, ReadPart};

use super::Context;
use super::gather::Ended;
use super::peer::Peer;
use super::staging::Scratch;

/// The requesting node.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) name: String,
    /// The features agreed in HELLO.
    pub(super) features: Features,
}

/// Sends the bytes if the shard is here. This does not count as a use of the shard or its dataset:
/// the requesting node is about to have its own copy.
pub(super) fn answer(
    context: &Context,
    peer: &Peer,
    request: u64,
    (wanted, asker): (ReadPart, &Asker),
    scratch: &mut Scratch,
) -> Result<(), Ended> {
    let ReadPart { snapshot, shard, tensor, offset, bytes } = wanted;
    let dataset = context.shared.catalog.get(snapshot).ok_or_else(|| absent("its snapshot"))?;
    if shard >= dataset.manifest().shard_count() {
        return Err(absent("a shard of that number").into());
    }
    let sealed = context.shared.cache.resident(&dataset, shard).ok_or_else(|| absent("it"))?;
    let tensors = dataset.manifest().tensors().len();
    let region = (tensor as usize) < tensors;
    let region = if region { sealed.region(tensor as usize) } else { &[] };
    let begin = usize::try_from(offset).unwrap_or(usize::MAX);
    let end = begin.saturating_add(bytes as usize);
    let payload = region.get(begin..end).ok_or_else(|| {
        let message = format!(
            "bytes {offset}..+{bytes} of tensor {tensor} of shard {shard}, which does not have them"
        );
        Error::new(ErrorKind::InvalidArgument, message)
    })?;
    let may_say = asker.features.contains(Features::RESTS);
    let rests = if may_say { context.shared.throttle.rests_for(&asker.name) } else { 0 };
    let part = Part { digest: sealed.digest(), crc32c: crc32c(payload), rests };
    part.encode(request, u64::from(bytes), scratch.frame());
    peer.send_both(scratch.frame_bytes(), payload)?;
    context.activity.peer_bytes.add(u64::from(bytes));
    Ok(())
}

fn absent(what: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("this node does not have {what}"))
}
