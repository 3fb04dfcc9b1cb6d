//! Fills: read shards into sealed extents, from a peer that holds them or from the origin.
//!
//! A fixed number of workers take fills from the queue, most urgent first. For each fill a worker:
//!
//! 1. creates a memory file for the shard, in bytes that the budget has admitted;
//! 2. reads its parts in parallel, and writes and hashes bytes as they arrive; makes the rows that
//!    lie in the objects in another form;
//! 3. seals the extent;
//! 4. compares the checksum, if the snapshot of a waiting reader pins one.
//!
//! All GETs of the fills of a bucket share one limit, and all their retries one budget. A fill that
//! can't succeed is given up: it is listed, and its readers are told the error. A worker that dies
//! loses only its job. The next worker continues that job with the parts that are in.
//!
//! Thread rule: fills are tokio tasks. Blocking threads allocate memory (in huge pages where
//! available), seal extents, and hash rows that overlap. Non-goals: deciding which shards to fill
//! (the store admits), serving readers (they wait on the
//! [`InFlightFill`](crate::cache::InFlightFill)).

mod bring;
mod first;
mod maker;
mod peer_source;
mod peers;
mod read_through;
mod reader;
mod requests;
mod throttle;
mod worker;

use std::ops::Range;

use larder_base::{Error, ErrorKind};
use larder_dataset::{Get, Leaf, Manifest, Scatter};
use larder_extent::{Part, PartSpec};

use crate::cache::extent_error;

pub(crate) use bring::{Brought, bring};
pub(crate) use first::FirstFills;
pub(crate) use maker::Maker;
pub(crate) use peers::{Holder, Missed, Peer, Peers};
pub(crate) use read_through::{ReadThrough, RowWanted};
pub(crate) use reader::{Asking, Reader};
pub(crate) use throttle::TransferThrottle;
pub(crate) use worker::Filler;

/// A range of an object to read.
#[derive(Debug, Clone)]
pub(crate) struct ObjectRange<'a> {
    /// The leaf that lists the object.
    pub(crate) leaf: &'a Leaf,
    /// The number of the object in the leaf.
    pub(crate) object: u32,
    /// The bytes.
    pub(crate) range: Range<u64>,
}

impl ObjectRange<'_> {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// A sink for the bytes of a read, in their order: a part of a shard that is being filled, or
/// memory. Readers check and count the bytes.
pub(crate) trait ByteSink: Send {
    /// Starts anew. Forgets the bytes put so far.
    fn begin(&mut self);

    /// Appends the next bytes.
    fn put(&mut self, bytes: &[u8]) -> Result<(), Error>;
}

impl ByteSink for Part {
    fn begin(&mut self) {
        self.restart();
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.write(bytes).map_err(extent_error)
    }
}

/// Parts of a region, each behind the one before, that are filled as one.
pub(crate) struct PartsRun(Vec<Part>);

impl From<Part> for PartsRun {
    fn from(part: Part) -> Self {
        Self(vec![part])
    }
}

impl PartsRun {
    /// Adds the next part, or returns it if it does not fit behind the others, of at most
    /// `bytes_max` together.
    pub(crate) fn add(&mut self, part: Part, bytes_max: u64) -> Option<Part> {
        let (all, next) = (self.spec(), part.spec());
        let follows = all.region == next.region
            && all.range.end == next.range.start
            && next.range.end - all.range.start <= bytes_max;
        if !follows {
            return Some(part);
        }
        self.0.push(part);
        None
    }

    /// Returns the bytes of all of them.
    pub(crate) fn spec(&self) -> PartSpec {
        let (first, last) = (self.0[0].spec(), self.0[self.0.len() - 1].spec());
        PartSpec { region: first.region, range: first.range.start..last.range.end }
    }

    pub(crate) fn into_parts(self) -> Vec<Part> {
        self.0
    }
}

impl ByteSink for PartsRun {
    fn begin(&mut self) {
        self.0.iter_mut().for_each(Part::restart);
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        for part in &mut self.0 {
            let (now, rest) = bytes.split_at(part.left().min(bytes.len()));
            part.put(now)?;
            bytes = rest;
        }
        let more = || Error::new(ErrorKind::Internal, "a peer gave more than it was to");
        if bytes.is_empty() { Ok(()) } else { Err(more()) }
    }
}

/// Memory that is filled from front to back.
pub(crate) struct Piece<'a> {
    bytes: &'a mut [u8],
    filled: usize,
}

impl<'a> Piece<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, filled: 0 }
    }
}

impl ByteSink for Piece<'_> {
    fn begin(&mut self) {
        self.filled = 0;
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let target = self.bytes[self.filled..].get_mut(..bytes.len());
        let more = || Error::new(ErrorKind::Internal, "a read brought more than it was to");
        target.ok_or_else(more)?.copy_from_slice(bytes);
        self.filled += bytes.len();
        Ok(())
    }
}

/// The parts of a shard that one read fills. Parts that are in already are `None`.
pub(crate) struct GetParts<'a> {
    scatter: Scatter<'a>,
    make: Box<dyn Fn() -> Scatter<'a> + Send + 'a>,
    pub(crate) parts: Vec<Option<Part>>,
}

impl<'a> GetParts<'a> {
    pub(crate) fn new(
        manifest: &'a Manifest,
        leaf: &'a Leaf,
        shard: u32,
        get: &'a Get,
        parts: Vec<Option<Part>>,
    ) -> Self {
        let make = move || Scatter::new(manifest, leaf, shard, get);
        Self { scatter: make(), make: Box::new(make), parts }
    }
}

impl ByteSink for GetParts<'_> {
    fn begin(&mut self) {
        self.scatter = (self.make)();
        self.parts.iter_mut().flatten().for_each(Part::restart);
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let parts = &mut self.parts;
        self.scatter.take(bytes, |index, _, bytes| match &mut parts[index] {
            Some(part) => part.put(bytes),
            None => Ok(()),
        })
    }
}
