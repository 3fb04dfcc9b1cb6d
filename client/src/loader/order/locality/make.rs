//! Makes a locality from this process's view of the cluster.

use std::collections::HashMap;

use larder_base::{ErrorKind, Placement};

use super::{LOCALITY_RANKS_MAX, Locality, NOBODY, ShardHosts};
use crate::{Error, Fetcher, sampler::RankHosts};

impl Locality {
    /// A locality by the placements of these fetchers. `ranks` is as in
    /// [`Dataset::locality`](crate::Dataset::locality).
    pub(crate) fn of(fetchers: &[&Fetcher], ranks: &[Vec<String>]) -> Result<Self, Error> {
        let placements = fetchers.iter().map(|fetcher| placement_of(fetcher));
        let placements = placements.collect::<Result<Vec<_>, _>>()?;
        let members = || placements.iter().flat_map(|placement| placement.ring().members());
        check(ranks, |name| members().any(|member| member.id == *name || member.host == *name))?;
        let (ranks, hosts) = number(ranks);
        let mut tables: Vec<ShardHosts> = Vec::new();
        for (fetcher, placement) in fetchers.iter().zip(&placements) {
            if tables.iter().all(|table| table.snapshot != fetcher.manifest().snapshot()) {
                tables.push(table(fetcher, placement, &hosts));
            }
        }
        Ok(Self::new(ranks, tables))
    }
}

fn check(ranks: &[Vec<String>], known: impl Fn(&String) -> bool) -> Result<(), Error> {
    let invalid = |what: String| Error::new(ErrorKind::InvalidArgument, what);
    let max = LOCALITY_RANKS_MAX;
    if !(1..=max).contains(&ranks.len()) {
        return Err(invalid(format!("{} ranks where 1 to {max} are possible", ranks.len())));
    }
    let named = || ranks.iter().flatten();
    if named().next().is_some() && !named().any(known) {
        let first = named().next().map_or("", String::as_str);
        return Err(invalid(format!(
            "no node of the cluster is called {first:?}, nor any of the other hosts"
        ))
        .hint("name for each rank a node of the cluster, or the host that the ring knows it on"));
    }
    Ok(())
}

/// Numbers the hosts by the first rank on each, and maps each name to its host.
fn number(ranks: &[Vec<String>]) -> (RankHosts, HashMap<&str, u16>) {
    let (mut hosts, mut next) = (HashMap::new(), 0);
    let mut numbers = Vec::with_capacity(ranks.len());
    for names in ranks {
        let known = names.iter().find_map(|name| hosts.get(name.as_str()).copied());
        let number = known.unwrap_or_else(|| {
            next += 1;
            next - 1
        });
        names.iter().for_each(|name| {
            hosts.entry(name.as_str()).or_insert(number);
        });
        numbers.push(number);
    }
    (RankHosts::new(numbers), hosts)
}

/// The hosts with ranks that own each shard.
fn table(fetcher: &Fetcher, placement: &Placement, hosts: &HashMap<&str, u16>) -> ShardHosts {
    let (manifest, ring) = (fetcher.manifest(), placement.ring());
    let number = |member: &larder_base::Member| {
        let number = hosts.get(member.id.as_str()).or_else(|| hosts.get(member.host.as_str()));
        number.copied().unwrap_or(NOBODY)
    };
    let members: Vec<u16> = ring.members().iter().map(number).collect();
    let per_shard = placement.replicas().min(members.len());
    let mut of_shards = Vec::with_capacity(manifest.shard_count() as usize * per_shard);
    for shard in 0..manifest.shard_count() {
        let owners = placement.owners(manifest.shard(shard).id);
        let hosts = owners.iter().map(|&owner| members[usize::from(owner)]);
        of_shards.extend(hosts.chain(std::iter::repeat(NOBODY)).take(per_shard));
    }
    let (snapshot, ring_version) = (manifest.snapshot(), ring.version());
    ShardHosts { snapshot, ring_version, per_shard, hosts: of_shards.into() }
}

fn placement_of(fetcher: &Fetcher) -> Result<Placement, Error> {
    fetcher.placement().ok_or_else(|| {
        let hint = "name the cluster whose nodes hold it, or load it without locality";
        let what = "which host holds which shard is not known";
        let why = match fetcher.cluster() {
            Some(_) => "no node of the cluster has answered",
            None => "the dataset is read without a cluster",
        };
        Error::new(ErrorKind::Unavailable, what).because(why).hint(hint)
    })
}
