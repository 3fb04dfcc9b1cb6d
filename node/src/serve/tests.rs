//! A whole node in this process, over a folder, and clients of its sockets.

mod client_process;
mod control;
mod exceptions;
mod gather;
mod hostile;
mod in_use;
mod local;
mod part;
mod private;

use std::io::Read;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use larder_base::Ticket;
use larder_dataset::DatasetRef;
use larder_extent::crc::crc32c;
use larder_extent::socket::recv_with_fds;
use larder_store::{Budget, KeepWhatYouHave};
use larder_wire::data::{
    Data, ErrorReply, FrameHeader, Gather, GatherEnd, Hello, HelloOk, Kind, WireError, read_body,
    read_header,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::Servers;
use crate::cache::Cache;
use crate::cache::Counters;
use crate::catalog::leaves::Leaves;
use crate::catalog::{Catalog, WantedDataset};
use crate::config::{Args, Config};
use crate::dataset::Dataset;
use crate::fill::Peers;
use crate::fill::{Filler, Maker, ReadThrough, Reader};
use crate::serve::Listeners;
use crate::shared::Shared;
use crate::testing::{Folder, placed};

/// Longer than any wait of a passing test, so that a failing test ends.
const PATIENCE: Duration = Duration::from_secs(30);

/// A node without workers until the test starts them. Fields are dropped in order: the runtime
/// last.
struct TestNode {
    servers: Servers,
    shared: Arc<Shared>,
    dataset: Arc<Dataset>,
    data: std::net::SocketAddr,
    listen: std::net::SocketAddr,
    reader: Arc<Reader>,
    home: TempDir,
    runtime: Runtime,
}

impl TestNode {
    /// Creates a node with room for `budget_bytes` of shards, without workers.
    fn unmanned(folder: &Folder, budget_bytes: u64) -> Self {
        Self::assemble(folder, budget_bytes, KeepWhatYouHave::default(), &[])
    }

    /// Creates the same with further arguments.
    fn with_arguments(folder: &Folder, budget_bytes: u64, more: &[&str]) -> Self {
        Self::assemble(folder, budget_bytes, KeepWhatYouHave::default(), more)
    }

    /// Creates a node that evicts unused shards at once.
    fn impatient(folder: &Folder, budget_bytes: u64) -> Self {
        let policy = KeepWhatYouHave { idle_after: Duration::ZERO };
        let node = Self::assemble(folder, budget_bytes, policy, &[]);
        node.start_workers();
        node
    }

    fn assemble(
        folder: &Folder,
        budget_bytes: u64,
        policy: KeepWhatYouHave,
        more: &[&str],
    ) -> Self {
        let home = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        let socket = home.path().join("run/larder.sock").display().to_string();
        let origin = folder.uri().to_string();
        let typed = ["larder-node", "--origin", &origin, "--socket", &socket, "--node-id", "n1"];
        let typed = typed.iter().chain(more);
        let config = Config::try_from(Args::try_parse_from(typed).unwrap()).unwrap();
        let counters = Arc::new(Counters::default());
        let budget = Budget::new(budget_bytes + 8192 + folder.leaf_bytes());
        let cache = Cache::start_with(budget, policy, Arc::clone(&counters)).unwrap();
        let reader = Arc::new(Reader::new(Arc::clone(&counters), cache.retained()));
        let handle = runtime.handle().clone();
        let maker = Maker::new(&cache, &reader);
        let (through, counted) = (Arc::clone(&reader), Arc::clone(&counters));
        let read_through = ReadThrough::new(handle.clone(), through, maker, counted);
        let bind = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listeners = Listeners { control: bind(), data: bind() };
        let listen = listeners.control.local_addr().unwrap();
        let data = listeners.data.local_addr().unwrap();
        let control = format!("http://{listen}");
        let host = "here".to_owned();
        let member = larder_base::Member {
            id: "n1".to_owned(),
            weight: 1,
            control,
            host,
            zone: String::new(),
        };
        let catalog = Catalog::new(vec![folder.uri()], Arc::clone(&cache));
        let catalog = if config.private { catalog.following_links() } else { catalog };
        let placements = placed(1, vec![member]);
        let shared = Arc::new(Shared {
            boot_id: [7; 16],
            catalog,
            origin_faults: arc_swap::ArcSwap::default(),
            config,
            leaves: Leaves::new(&cache, handle.clone()),
            cache,
            read_through,
            counters,
            plans: crate::plans::ReadPlans::default(),
            throttle: Arc::default(),
            peers: Arc::new(Peers::new("n1", Arc::clone(&placements))),
            placements,
            cluster: None,
            runtime: handle,
            stopping: CancellationToken::new(),
        });
        let wanted = WantedDataset::by_node(DatasetRef::parse(&origin).unwrap(), None);
        let opened = runtime.block_on(shared.catalog.open(&wanted)).unwrap();
        let servers = Servers::start(&shared, listeners).unwrap();
        let dataset = opened.dataset;
        let shards: Vec<u32> = (0..dataset.manifest().shard_count()).collect();
        shared.leaves.wait(shared.leaves.ready(&dataset, &shards)).unwrap();
        Self { servers, shared, dataset, data, listen, reader, home, runtime }
    }

    fn new(folder: &Folder, budget_bytes: u64) -> Self {
        let node = Self::unmanned(folder, budget_bytes);
        node.start_workers();
        node
    }

    fn start_workers(&self) {
        let shared = &*self.shared;
        let Shared { cache, runtime, stopping, placements, counters, throttle, .. } = shared;
        let peers = Arc::new(Peers::new("n1", Arc::clone(placements)));
        let maker = Maker::new(cache, &self.reader);
        Filler::new(&self.reader, &maker, &shared.leaves, peers, counters, throttle)
            .start_workers(cache, runtime, stopping);
    }

    fn socket_path(&self) -> std::path::PathBuf {
        self.home.path().join("run/larder.sock")
    }

    /// Connects a client on another host.
    fn remote(&self) -> Client<TcpStream> {
        let mut client = Client::new(TcpStream::connect(self.data).unwrap());
        client.hello(self.servers.context.ticket).unwrap();
        client
    }

    /// Connects a client on this host.
    fn local(&self) -> Client<UnixStream> {
        let mut client = Client::new(UnixStream::connect(self.socket_path()).unwrap());
        client.hello(Ticket::from_bytes([0; 16])).unwrap();
        client
    }

    fn gather(&self, rows: impl IntoIterator<Item = usize>) -> Gather {
        let manifest = self.dataset.manifest();
        let locate = |row| manifest.locate(row as u64).unwrap();
        let rows = rows.into_iter().map(locate).collect();
        let (snapshot, tensors) = (self.dataset.snapshot(), vec![0]);
        Gather { snapshot, ring_version: 1, tensors, rows, verify: false }
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.shared.stopping.cancel();
        self.servers.drain(Duration::ZERO);
        self.shared.cache.close();
    }
}

/// A socket of a client.
trait Wire: Read + std::io::Write {
    fn set_timeout(&self);
    fn receive(&self, bytes: &mut [u8]) -> std::io::Result<(usize, Vec<OwnedFd>)>;
}

impl Wire for TcpStream {
    fn set_timeout(&self) {
        self.set_read_timeout(Some(PATIENCE)).unwrap();
    }

    fn receive(&self, bytes: &mut [u8]) -> std::io::Result<(usize, Vec<OwnedFd>)> {
        (&*self).read(bytes).map(|got| (got, Vec::new()))
    }
}

impl Wire for UnixStream {
    fn set_timeout(&self) {
        self.set_read_timeout(Some(PATIENCE)).unwrap();
    }

    fn receive(&self, bytes: &mut [u8]) -> std::io::Result<(usize, Vec<OwnedFd>)> {
        recv_with_fds(self, bytes)
    }
}

/// A client and the frames it received.
struct Client<S> {
    socket: S,
    fds: Vec<OwnedFd>,
    pongs: usize,
}

impl<S: Wire> Read for Client<S> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let (got, fds) = self.socket.receive(bytes)?;
        self.fds.extend(fds);
        Ok(got)
    }
}

/// The answer to a gather.
#[derive(Debug, Default)]
struct Gathered {
    rows: Vec<Vec<u8>>,
    end: GatherEnd,
    frames: usize,
}

impl Gathered {
    /// Adds a row, or the next piece of one.
    fn take(&mut self, mut row: Vec<u8>, piece: Option<u32>) {
        let Some(offset @ 1..) = piece else { return self.rows.push(row) };
        let begun = self.rows.last_mut().unwrap();
        assert_eq!(begun.len(), offset as usize, "pieces come one after the other");
        begun.append(&mut row);
    }
}

impl<S: Wire> Client<S> {
    fn new(socket: S) -> Self {
        socket.set_timeout();
        Self { socket, fds: Vec::new(), pongs: 0 }
    }

    fn hello(&mut self, ticket: Ticket) -> Result<HelloOk, larder_base::Error> {
        self.hello_as(&Hello::new(ticket, std::process::id(), "test"))
    }

    fn hello_as(&mut self, hello: &Hello) -> Result<HelloOk, larder_base::Error> {
        self.send(|out| hello.encode(1, out));
        let (header, body) = self.frame()?;
        match header.kind() {
            Kind::HelloOk => {
                let ok = HelloOk::decode(&body)?;
                ok.check(hello).map(|()| ok)
            }
            _ => Err(ErrorReply::decode(&body)?.error),
        }
    }

    fn send(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        encode(&mut out);
        self.socket.write_all(&out).unwrap();
    }

    /// Receives the next frame.
    fn frame(&mut self) -> Result<(FrameHeader, Vec<u8>), WireError> {
        let header = read_header(self)?;
        let mut body = Vec::new();
        read_body(self, &header, &mut body)?;
        Ok((header, body))
    }

    /// Gathers rows, holding every row against its checksum and every frame against its order.
    fn gather(&mut self, wanted: &Gather) -> Result<Gathered, larder_base::Error> {
        self.send(|out| wanted.encode(42, out));
        self.receive_rows(wanted)
    }

    fn receive_rows(&mut self, wanted: &Gather) -> Result<Gathered, larder_base::Error> {
        let mut gathered = Gathered::default();
        let mut data = Data::default();
        loop {
            let (header, body) = self.frame()?;
            assert_eq!(header.request(), 42);
            match header.kind() {
                Kind::Pong => self.pongs += 1,
                Kind::Data => {
                    data.decode_into(&header, &body)?;
                    gathered.frames += 1;
                    let begun = data.piece().is_some_and(|offset| offset > 0);
                    let first = gathered.rows.len() - usize::from(begun);
                    assert_eq!(usize::from(data.tensor_slot()), first / wanted.rows.len());
                    assert_eq!(data.rows().start, first % wanted.rows.len());
                    for (index, &crc) in data.crcs().iter().enumerate() {
                        let bytes = usize::try_from(data.row_bytes(index)).unwrap();
                        let mut row = vec![0; bytes];
                        self.read_exact(&mut row).unwrap();
                        assert_eq!(crc32c(&row), crc, "row {index} of a run");
                        gathered.take(row, data.piece());
                    }
                }
                Kind::GatherEnd => {
                    gathered.end = GatherEnd::decode(&body)?;
                    assert_eq!(gathered.rows.len(), wanted.rows.len() * wanted.tensors.len());
                    return Ok(gathered);
                }
                Kind::Error => return Err(ErrorReply::decode(&body)?.error),
                kind => panic!("{kind:?} in answer to a gather"),
            }
        }
    }

    /// Waits for the end of the connection. Discards the frames before it.
    fn hung_up(&mut self) -> bool {
        let mut rest = [0; 4096];
        loop {
            match self.read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }
}
