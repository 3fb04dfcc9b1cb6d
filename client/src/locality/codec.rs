//! A locality as bytes, little-endian: how it comes from the process that made it to all others.
//!
//! ```text
//! offset  bytes  field
//!      0      8  magic, `LARDLOC1`
//!      8     16  xxh3-128 of all after it: the locality's name
//!     24      4  ranks
//!     28      4  tables
//!     32  2 each the number of each rank's host
//!      -      -  tables, each:
//!                 16  snapshot
//!                  8  ring version
//!                  4  shards
//!                  4  hosts a shard
//!                  2 each the numbers of the hosts of each shard; 65535 is none
//! ```

use larder_base::{ErrorKind, SnapshotId, limits, limits as dataset_limits};
use xxhash_rust::xxh3::xxh3_128;

use super::{Locality, NOBODY, Table};
use crate::{
    Error,
    sampler::{LocalityId, RankHosts},
};

const MAGIC: [u8; 8] = *b"LARDLOC1";
const ID_END: usize = 24;

/// The name of a locality of these parts.
pub(super) fn id(ranks: &RankHosts, tables: &[Table]) -> LocalityId {
    let mut body = Vec::new();
    write_body(ranks, tables, &mut body);
    LocalityId::from_u128(xxh3_128(&body))
}

impl Locality {
    /// The bytes to hand to the other ranks: 2 for each rank, and 2 for each shard and copy of it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.id().to_u128().to_le_bytes());
        write_body(&self.inner.ranks, &self.inner.tables, &mut bytes);
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote. No memory is taken for more than the bytes
    /// hold.
    ///
    /// # Errors
    /// `InvalidArgument` for other bytes, and for some that were cut short or changed.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let body = bytes.get(ID_END..).filter(|_| bytes.starts_with(&MAGIC));
        let body = body.ok_or_else(|| refused("they do not begin as one"))?;
        let told =
            LocalityId::from_u128(u128::from_le_bytes(bytes[8..ID_END].try_into().expect("16")));
        // A body that is read to its end has no other form, so that its name proves every byte.
        let read = read_body(&mut Reader(body)).filter(|locality| locality.id() == told);
        read.ok_or_else(|| refused("they were cut short or changed on the way"))
    }
}

fn write_body(ranks: &RankHosts, tables: &[Table], out: &mut Vec<u8>) {
    let count = |count: usize| u32::try_from(count).expect("limited").to_le_bytes();
    out.extend_from_slice(&count(ranks.hosts().len()));
    out.extend_from_slice(&count(tables.len()));
    out.extend(ranks.hosts().iter().flat_map(|host| host.to_le_bytes()));
    for table in tables {
        out.extend_from_slice(table.snapshot.as_bytes());
        out.extend_from_slice(&table.ring_version.to_le_bytes());
        out.extend_from_slice(&count(table.shards()));
        out.extend_from_slice(&count(table.per_shard));
        out.extend(table.hosts.iter().flat_map(|host| host.to_le_bytes()));
    }
}

/// What the body says, if all of it is in range and nothing is left over.
fn read_body(body: &mut Reader<'_>) -> Option<Locality> {
    let (ranks, tables) = (body.count()?, body.count()?);
    if !(1..=limits::LOCALITY_RANKS_MAX).contains(&ranks) || tables > limits::OPEN_DATASETS_MAX {
        return None;
    }
    let hosts = body.numbers(ranks)?;
    // No host without a rank is numbered, so that no number is above that of ranks.
    if hosts.iter().any(|&host| usize::from(host) >= ranks) {
        return None;
    }
    let tables = (0..tables).map(|_| read_table(body)).collect::<Option<Vec<_>>>()?;
    body.0.is_empty().then(|| Locality::new(RankHosts::new(hosts), tables))
}

fn read_table(body: &mut Reader<'_>) -> Option<Table> {
    let snapshot = SnapshotId::from_bytes(body.take(16)?.try_into().ok()?);
    let ring_version = u64::from_le_bytes(body.take(8)?.try_into().ok()?);
    let (shards, per_shard) = (body.count()?, body.count()?);
    let in_range = (1..=dataset_limits::SHARDS_MAX as usize).contains(&shards)
        && (1..=limits::REPLICAS_MAX).contains(&per_shard);
    let hosts = body.numbers(in_range.then(|| shards * per_shard)?)?.into();
    Some(Table { snapshot, ring_version, per_shard, hosts })
}

/// Bytes that are yet to be read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn count(&mut self) -> Option<usize> {
        let bytes = self.take(4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    }

    /// So many numbers of hosts: memory is taken only for those that are there.
    fn numbers(&mut self, count: usize) -> Option<Vec<u16>> {
        let bytes = self.take(count.checked_mul(2)?)?;
        Some(bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect())
    }
}

fn refused(why: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, "these bytes are no locality")
        .because(why)
        .hint("hand over exactly what Locality::to_bytes gave, between builds of one version")
}

const _: () = assert!(limits::LOCALITY_RANKS_MAX <= NOBODY as usize);
