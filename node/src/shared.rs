//! What all servers of a node share. (signatures; bodies follow)

/// Handed to serve::Servers::start(&Arc<Shared>) -> Result<Servers, larder_wire::Error>
/// Servers: .addresses() -> Addresses { listen, data: SocketAddr, socket: PathBuf }, .drain(&self, deadline: Duration) (blocking)
pub struct Shared {
    config: Config,
    boot_id: [u8; 16],
    catalog: Catalog,
    cache: Arc<Cache>,
    origin_rows: ReadThrough,   // .read_rows(&Arc<Dataset>, &[RowWanted{shard,row,tensor,at: usize}], &mut [u8]) -> Result<(), Error>; .reserve(bytes) -> Reservation (blocks; hold it while the staging buffer lives)
    counters: Arc<Counters>,    // fills, retries, gave up, origin requests and bytes (atomics); metrics.rs exports them
    runtime: tokio::runtime::Handle,
    stopping: CancellationToken,
}
