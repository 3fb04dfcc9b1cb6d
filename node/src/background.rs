//! Work that no reader asked for: shards that plans need, and replicas.

pub(crate) mod prefetch;
pub(crate) mod replication;
