//! A locality as bytes, to hand it to other processes.

use larder_base::{
    ErrorKind,
    codec::{self, Malformed},
    limits,
};
use xxhash_rust::xxh3::xxh3_128;

use super::{LOCALITY_RANKS_MAX, Locality, ShardHosts};
use crate::{
    Error,
    sampler::{LocalityId, RankHosts},
};

const WHAT: &str = "a locality";
const MAGIC: &[u8; 8] = b"ldr-loc3";

/// Returns the id of a locality of these parts: the hash of its bytes.
pub(super) fn id(ranks: &RankHosts, tables: &[ShardHosts]) -> LocalityId {
    LocalityId::from_u128(xxh3_128(&encode(ranks, tables)))
}

fn encode(ranks: &RankHosts, tables: &[ShardHosts]) -> Vec<u8> {
    codec::encode(MAGIC, &(ranks.hosts(), tables))
}

impl Locality {
    /// Returns the bytes to hand to the other ranks. At most 3 bytes for each rank, and 3 for each
    /// replica of each shard.
    pub fn to_bytes(&self) -> Vec<u8> {
        encode(&self.inner.ranks, &self.inner.tables)
    }

    /// Reads the bytes of [`to_bytes`](Self::to_bytes). Allocates only for bytes that are present.
    ///
    /// # Errors
    /// `InvalidArgument` for other bytes, and for bytes that were cut short or changed.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let form = codec::decode(WHAT, MAGIC, bytes, usize::MAX);
        let checked = form.and_then(|(hosts, tables): (Vec<u16>, Vec<ShardHosts>)| {
            check(&hosts, &tables)?;
            Ok((hosts, tables))
        });
        let (hosts, tables) = checked.map_err(|why| {
            Error::new(ErrorKind::InvalidArgument, why.to_string()).hint(
                "hand over exactly what Locality::to_bytes gave, between builds of one version",
            )
        })?;
        Ok(Self::new(RankHosts::new(hosts), tables))
    }
}

/// Checks the number of each rank's host, and the tables.
fn check(hosts: &[u16], tables: &[ShardHosts]) -> Result<(), Malformed> {
    let malformed = |why| Err(Malformed { what: WHAT, why });
    let ranks = hosts.len();
    if !(1..=LOCALITY_RANKS_MAX).contains(&ranks) {
        return malformed("it has no ranks, or too many");
    }
    // Only hosts with a rank are numbered, so a host's number is below the number of ranks.
    if hosts.iter().any(|&host| usize::from(host) >= ranks) {
        return malformed("it has a host without a rank");
    }
    let is_whole = |ShardHosts { per_shard, hosts, .. }: &ShardHosts| {
        let replicas = (1..=limits::REPLICAS_MAX).contains(per_shard);
        replicas
            && !hosts.is_empty()
            && hosts.len() % per_shard == 0
            && hosts.len() / per_shard <= limits::SHARDS_MAX as usize
    };
    if tables.len() > limits::OPEN_DATASETS_MAX || !tables.iter().all(is_whole) {
        return malformed("its tables are too many, or not of whole shards");
    }
    Ok(())
}
