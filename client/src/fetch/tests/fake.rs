//! A node that follows a script: real sockets, the real control schema, real frames.

mod local;

use std::{
    collections::VecDeque,
    io::Write,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    ops::Range,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use larder_base::{BootId, Error as WireFailure, ErrorKind, Member, RowRef};
use larder_extent::crc::crc32c;
use larder_wire::{
    control as schema,
    control::node_server,
    data::{
        DataRun, ErrorReply, Gather, GatherEnd, Hello, HelloOk, Kind, Pong, Recall, read_body,
        read_header,
    },
    status::to_status,
};
use tonic::{Request, Response, Status, transport::server::TcpIncoming};

use super::{fixture::Fixture, pieces};

pub(super) const FRAME_ROWS: usize = 5;

const PONG_INTERVAL: Duration = Duration::from_millis(100);

/// Less than [`limits::CANCEL_CHECK_INTERVAL`].
const CHATTER_INTERVAL: Duration = Duration::from_millis(5);

/// About ten seconds of pongs.
const CHATTER_PONGS: usize = 2_000;

const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// The node's reaction to its next gather. Without a script it serves.
pub(super) enum Act {
    Serve,
    /// Sends this many DATA frames, then closes.
    Die {
        frames: usize,
    },
    /// Serves, but flips one bit in the payload of this DATA frame.
    Flip {
        frame: usize,
    },
    /// Serves each row in pieces. For the first row with enough pieces, swaps this piece and the
    /// next.
    Pieces {
        turned: Option<usize>,
    },
    /// Sends nothing until the client hangs up.
    Silence,
    /// Stops within the payload of the first DATA frame, and sends nothing more until the client
    /// hangs up.
    Half,
    /// Sends signs of life but no rows, until the client hangs up.
    Busy,
    /// Sends signs of life so often that the client never waits long for one, and serves after a
    /// while.
    Chatter,
    /// Sends signs of life, then serves.
    Slow {
        pongs: usize,
    },
    Fail(ErrorKind),
    /// Sends these bytes instead of an answer.
    Raw(fn(u64) -> Vec<u8>),
}

/// The node's answer about exceptions, to clients on this version of the ring.
#[derive(Debug, Clone)]
pub(super) enum Table {
    None,
    Is(Bytes),
    /// This one, with another announced size.
    Announced(u64, Bytes),
    /// The node is on another ring.
    OtherRing,
    /// The node is from before exceptions existed.
    Unimplemented,
}

#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) rows: Vec<RowRef>,
    pub(super) tensors: Vec<u16>,
    pub(super) verify: bool,
}

pub(super) struct State {
    id: String,
    fixture: Arc<Fixture>,
    pub(super) members: Arc<Mutex<Vec<Member>>>,
    /// The version of its ring, and of the ring by which it was last chosen.
    pub(super) ring_version: AtomicU64,
    pub(super) asked_by_ring: AtomicU64,
    /// The exceptions to its ring, and the number of requests for them.
    pub(super) table: Mutex<Table>,
    pub(super) table_asked: AtomicUsize,
    data: SocketAddr,
    /// The socket path that it announces.
    pub(super) socket: Mutex<PathBuf>,
    dead: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
    pub(super) script: Mutex<VecDeque<Act>>,
    pub(super) asked: Mutex<Vec<Asked>>,
    pub(super) connections: AtomicUsize,
    pub(super) opened: AtomicUsize,
    /// It hands out no extent until the dataset is opened again.
    pub(super) forgot: AtomicBool,
    /// It never finishes opening a dataset.
    pub(super) opens_slowly: AtomicBool,
    pub(super) opens_not: Mutex<Option<ErrorKind>>,
    pub(super) attaches: AtomicUsize,
    /// References with this suffix are answered with NOT_FOUND.
    pub(super) unknown: Mutex<Option<&'static str>>,
    pub(super) releases: Mutex<Vec<u32>>,
    /// It reports that it read all rows from the origin.
    pub(super) cold: AtomicBool,
    local: Mutex<Option<UnixStream>>,
}

pub(super) struct FakeNode {
    pub(super) state: Arc<State>,
    control: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

/// Starts nodes that know each other. Also returns the address of the cluster.
pub(super) fn cluster(
    fixture: &Arc<Fixture>,
    nodes: usize,
    local: bool,
) -> (Vec<FakeNode>, String) {
    let members = Arc::<Mutex<Vec<Member>>>::default();
    let nodes: Vec<_> = (0..nodes)
        .map(|index| FakeNode::start(format!("node-{index}"), fixture, &members, local))
        .collect();
    let member = |node: &FakeNode| Member {
        id: node.state.id.clone(),
        weight: 1,
        control: format!("http://{}", node.control),
        host: "here".to_owned(),
        zone: String::new(),
    };
    *members.lock().unwrap() = nodes.iter().map(member).collect();
    let address = format!("http://{}", nodes[0].control);
    (nodes, address)
}

impl FakeNode {
    fn start(
        id: String,
        fixture: &Arc<Fixture>,
        members: &Arc<Mutex<Vec<Member>>>,
        local: bool,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = if local { fixture.folder.path().join(&id) } else { PathBuf::new() };
        let state = Arc::new(State {
            id,
            fixture: Arc::clone(fixture),
            members: Arc::clone(members),
            ring_version: AtomicU64::new(1),
            asked_by_ring: AtomicU64::new(0),
            table: Mutex::new(Table::None),
            table_asked: AtomicUsize::new(0),
            data: listener.local_addr().unwrap(),
            socket: Mutex::new(socket.clone()),
            dead: AtomicBool::new(false),
            streams: Mutex::default(),
            script: Mutex::default(),
            asked: Mutex::default(),
            connections: AtomicUsize::new(0),
            opened: AtomicUsize::new(0),
            forgot: AtomicBool::new(false),
            opens_slowly: AtomicBool::new(false),
            opens_not: Mutex::default(),
            attaches: AtomicUsize::new(0),
            unknown: Mutex::default(),
            releases: Mutex::default(),
            cold: AtomicBool::new(false),
            local: Mutex::default(),
        });
        let own = Arc::clone(&state);
        thread::spawn(move || own.accept(&listener));
        if local {
            let (own, listener) = (Arc::clone(&state), UnixListener::bind(socket).unwrap());
            thread::spawn(move || own.accept_local(&listener));
        }
        let (runtime, control) = serve_control(&state, "127.0.0.1:0".parse().unwrap());
        Self { state, control, runtime: Some(runtime) }
    }

    pub(super) fn plan(&self, acts: impl IntoIterator<Item = Act>) {
        self.state.script.lock().unwrap().extend(acts);
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.state.asked.lock().unwrap().clone()
    }

    /// Ends as by SIGKILL: no answers, and connections are reset.
    pub(super) fn kill(&mut self) {
        self.state.dead.store(true, SeqCst);
        for stream in self.state.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes the acceptor, which then closes the listener.
        let _ = TcpStream::connect(self.state.data);
        while TcpStream::connect(self.state.data).is_ok() {}
        // Waits until its listener is closed too, because a restart may need the address at once.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        }
    }

    pub(super) fn restart(&mut self) {
        self.state.dead.store(false, SeqCst);
        let (own, listener) =
            (Arc::clone(&self.state), TcpListener::bind(self.state.data).unwrap());
        thread::spawn(move || own.accept(&listener));
        self.runtime = Some(serve_control(&self.state, self.control).0);
    }

    pub(super) fn recall(&self, shard: u32) {
        let (snapshot, mut frame) = (self.state.fixture.manifest.snapshot(), Vec::new());
        Recall { snapshot, shard }.encode(0, &mut frame);
        self.state.local.lock().unwrap().as_mut().unwrap().write_all(&frame).unwrap();
    }
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl State {
    fn boot(&self) -> BootId {
        let mut bytes = [7; 16];
        bytes[..2].copy_from_slice(&self.data.port().to_le_bytes());
        BootId::from_bytes(bytes)
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.dead.load(SeqCst) {
                return;
            }
            let (own, stream) = (Arc::clone(self), stream.unwrap());
            self.streams.lock().unwrap().push(stream.try_clone().unwrap());
            self.connections.fetch_add(1, SeqCst);
            thread::spawn(move || own.talk(stream));
        }
    }

    /// Ends when the client does anything but talk.
    fn talk(&self, mut stream: TcpStream) -> Option<()> {
        let mut body = Vec::new();
        hello(&mut stream, self)?;
        loop {
            let header = read_header(&mut stream).ok()?;
            read_body(&mut stream, &header, &mut body).ok()?;
            let gather = Gather::decode(&body).unwrap();
            let asked = Asked {
                rows: gather.rows.clone(),
                tensors: gather.tensors.clone(),
                verify: gather.verify,
            };
            self.asked_by_ring.store(gather.ring_version, SeqCst);
            self.asked.lock().unwrap().push(asked);
            let act = self.script.lock().unwrap().pop_front().unwrap_or(Act::Serve);
            self.act(&mut stream, header.request(), &gather, &act)?;
        }
    }

    fn act(&self, stream: &mut TcpStream, request: u64, gather: &Gather, act: &Act) -> Option<()> {
        let mut out = Vec::new();
        match *act {
            Act::Serve => self.send(stream, request, gather, usize::MAX, None)?,
            Act::Die { frames } => {
                self.send(stream, request, gather, frames, None);
                let _ = stream.shutdown(Shutdown::Both);
                return None;
            }
            Act::Flip { frame } => self.send(stream, request, gather, usize::MAX, Some(frame))?,
            Act::Silence => {
                let _ = read_header(stream);
                return None;
            }
            Act::Half => {
                let mut whole = Vec::new();
                self.send(&mut whole, request, gather, 1, None);
                stream.write_all(&whole[..whole.len() / 2]).ok()?;
                let _ = read_header(stream);
                return None;
            }
            Act::Busy => loop {
                Pong.encode(request, &mut out);
                stream.write_all(&out).ok()?;
                out.clear();
                thread::park_timeout(PONG_INTERVAL);
            },
            Act::Chatter => {
                for _ in 0..CHATTER_PONGS {
                    out.clear();
                    Pong.encode(request, &mut out);
                    stream.write_all(&out).ok()?;
                    thread::park_timeout(CHATTER_INTERVAL);
                }
                self.send(stream, request, gather, usize::MAX, None)?;
            }
            Act::Slow { pongs } => {
                for _ in 0..pongs {
                    Pong.encode(request, &mut out);
                }
                stream.write_all(&out).ok()?;
                self.send(stream, request, gather, usize::MAX, None)?;
            }
            Act::Fail(kind) => {
                let error = WireFailure::new(kind, "as the script says");
                ErrorReply { error }.encode(request, &mut out);
                stream.write_all(&out).ok()?;
            }
            Act::Pieces { turned } => {
                pieces::send(stream, request, gather, &self.fixture, turned)?;
                self.end(stream, request, gather)?;
            }
            Act::Raw(bytes) => stream.write_all(&bytes(request)).ok()?,
        }
        Some(())
    }

    fn send(
        &self,
        stream: &mut impl Write,
        request: u64,
        gather: &Gather,
        frames: usize,
        flip: Option<usize>,
    ) -> Option<()> {
        let mut sent = 0;
        for (slot, &tensor) in (0..).zip(&gather.tensors) {
            for rows in chunks(gather.rows.len(), FRAME_ROWS) {
                if sent == frames {
                    return None;
                }
                let wanted = &gather.rows[rows.clone()];
                let payload: Vec<&[u8]> =
                    wanted.iter().map(|&row| self.fixture.row(row, tensor.into())).collect();
                let crcs: Vec<u32> = payload.iter().map(|row| crc32c(row)).collect();
                let lengths: Vec<u32> =
                    payload.iter().map(|row| u32::try_from(row.len()).unwrap()).collect();
                let ragged = self.fixture.manifest.tensors()[usize::from(tensor)].is_ragged();
                let mut payload = payload.concat();
                let run = DataRun {
                    tensor_slot: slot,
                    first: u32::try_from(rows.start).unwrap(),
                    crcs: &crcs,
                    lengths: ragged.then_some(&lengths),
                    payload_bytes: payload.len() as u64,
                };
                let mut out = Vec::new();
                run.encode(request, &mut out);
                if flip == Some(sent) {
                    let middle = payload.len() / 2;
                    payload[middle] ^= 16;
                }
                stream.write_all(&out).ok()?;
                stream.write_all(&payload).ok()?;
                sent += 1;
            }
        }
        self.end(stream, request, gather)
    }

    fn end(&self, stream: &mut impl Write, request: u64, gather: &Gather) -> Option<()> {
        let mut out = Vec::new();
        let (rows, cold) = (gather.rows.len() as u64, self.cold.load(SeqCst));
        let rows_origin = if cold { rows } else { 0 };
        let ring_version = self.ring_version.load(SeqCst);
        let end = GatherEnd {
            rows_memory: rows - rows_origin,
            rows_origin,
            ring_version,
            ..Default::default()
        };
        end.encode(request, &mut out);
        stream.write_all(&out).ok()
    }
}

fn hello(stream: &mut (impl std::io::Read + Write), state: &State) -> Option<()> {
    let (mut body, mut out) = (Vec::new(), Vec::new());
    let header = read_header(stream).ok()?;
    read_body(stream, &header, &mut body).ok()?;
    let hello = Hello::decode(&body).unwrap();
    HelloOk::answer(&hello, state.boot(), &state.id).unwrap().encode(header.request(), &mut out);
    stream.write_all(&out).ok()
}

pub(super) fn chunks(count: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).step_by(size).map(move |start| start..count.min(start + size))
}

fn serve_control(state: &Arc<State>, address: SocketAddr) -> (tokio::runtime::Runtime, SocketAddr) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let incoming = runtime.block_on(async { TcpIncoming::bind(address) }).unwrap();
    let address = incoming.local_addr().unwrap();
    let server = tonic::transport::Server::builder()
        .add_service(node_server::NodeServer::new(Control(Arc::clone(state))))
        .serve_with_incoming(incoming);
    runtime.spawn(async move { server.await.unwrap() });
    (runtime, address)
}

struct Control(Arc<State>);

type Answer<T> = Result<Response<T>, Status>;

fn id(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

#[tonic::async_trait]
impl node_server::Node for Control {
    type FetchManifestStream =
        stream::Iter<std::vec::IntoIter<Result<schema::ManifestChunk, Status>>>;
    type GetExceptionsStream =
        stream::Iter<std::vec::IntoIter<Result<schema::ExceptionsChunk, Status>>>;

    async fn describe(
        &self,
        _: Request<schema::DescribeRequest>,
    ) -> Answer<schema::NodeDescription> {
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        Ok(Response::new(schema::NodeDescription {
            node_id: self.0.id.clone(),
            boot_id: id(self.0.boot().as_bytes()),
            data_address: self.0.data.to_string(),
            socket_path: path(&self.0.socket.lock().unwrap()),
            memory: Some(schema::MemoryUse { budget_bytes: 1 << 30, ..Default::default() }),
            ..Default::default()
        }))
    }

    async fn introduce(
        &self,
        _: Request<schema::IntroduceRequest>,
    ) -> Answer<schema::IntroduceResponse> {
        Err(Status::unimplemented(""))
    }

    async fn tell_plans(
        &self,
        _: Request<schema::TellPlansRequest>,
    ) -> Answer<schema::TellPlansResponse> {
        Ok(Response::new(schema::TellPlansResponse {}))
    }

    async fn get_ring(&self, _: Request<schema::GetRingRequest>) -> Answer<schema::Ring> {
        let members = self.0.members.lock().unwrap().clone();
        let ring = larder_base::Ring::new(self.0.ring_version.load(SeqCst), members);
        Ok(Response::new((&ring.map_err(to_status)?).into()))
    }

    async fn get_open_progress(
        &self,
        _: Request<schema::GetOpenProgressRequest>,
    ) -> Answer<schema::OpenProgress> {
        Err(Status::unimplemented(""))
    }

    async fn get_fill_progress(
        &self,
        _: Request<schema::GetFillProgressRequest>,
    ) -> Answer<schema::FillProgress> {
        Err(Status::unimplemented(""))
    }

    async fn get_exceptions(
        &self,
        request: Request<schema::GetExceptionsRequest>,
    ) -> Answer<Self::GetExceptionsStream> {
        let wanted = request.into_inner();
        assert_eq!(wanted.snapshot, self.0.fixture.manifest.snapshot().as_bytes()[..]);
        self.0.table_asked.fetch_add(1, SeqCst);
        let table = self.0.table.lock().unwrap().clone();
        let other_ring = wanted.ring_version != self.0.ring_version.load(SeqCst);
        let (announced, table) = match table {
            Table::OtherRing => {
                return Err(to_status(WireFailure::new(ErrorKind::NotFound, "another ring")));
            }
            Table::Unimplemented => return Err(Status::unimplemented("")),
            _ if other_ring => (0, Bytes::new()),
            Table::None => (0, Bytes::new()),
            Table::Is(table) => (table.len() as u64, table),
            Table::Announced(bytes, table) => (bytes, table),
        };
        let first = std::iter::once(announced).chain(std::iter::repeat(0));
        let pieces: Vec<_> = (table.chunks(100).zip(first))
            .map(|(piece, table_bytes)| {
                Ok(schema::ExceptionsChunk { table_bytes, chunk: id(piece) })
            })
            .collect();
        Ok(Response::new(stream::iter(pieces)))
    }

    async fn open_dataset(
        &self,
        request: Request<schema::OpenDatasetRequest>,
    ) -> Answer<schema::OpenDatasetResponse> {
        if self.0.unknown.lock().unwrap().is_some_and(|end| request.get_ref().uri.ends_with(end)) {
            return Err(to_status(WireFailure::new(ErrorKind::NotFound, "no such dataset")));
        }
        if let Some(kind) = *self.0.opens_not.lock().unwrap() {
            return Err(to_status(WireFailure::new(kind, "as the test says")));
        }
        if self.0.opens_slowly.load(SeqCst) {
            std::future::pending::<()>().await;
        }
        self.0.opened.fetch_add(1, SeqCst);
        self.0.forgot.store(false, SeqCst);
        let manifest = &self.0.fixture.manifest;
        Ok(Response::new(schema::OpenDatasetResponse {
            snapshot: id(manifest.snapshot().as_bytes()),
            samples: manifest.samples(),
            shards: manifest.shard_count(),
            bytes: manifest.total_bytes(),
            manifest_bytes: manifest.as_bytes().len() as u64,
            ticket: id(&[9; 16]),
            ..Default::default()
        }))
    }

    async fn fetch_manifest(
        &self,
        request: Request<schema::FetchManifestRequest>,
    ) -> Answer<Self::FetchManifestStream> {
        let fixture = &self.0.fixture;
        let file = match request.get_ref().leaf {
            None => fixture.manifest.as_bytes(),
            Some(_) => fixture.leaf.as_bytes(),
        };
        let pieces: Vec<_> = (file.chunks(100))
            .map(|chunk| Ok(schema::ManifestChunk { chunk: id(chunk) }))
            .collect();
        Ok(Response::new(stream::iter(pieces)))
    }

    async fn list_datasets(
        &self,
        _: Request<schema::ListDatasetsRequest>,
    ) -> Answer<schema::ListDatasetsResponse> {
        Err(Status::unimplemented("not in the script"))
    }

    async fn list_shards(
        &self,
        _: Request<schema::ListShardsRequest>,
    ) -> Answer<schema::ListShardsResponse> {
        Err(Status::unimplemented("not in the script"))
    }

    type ListLastUsesStream = stream::Empty<Result<schema::LastUses, Status>>;

    async fn list_last_uses(
        &self,
        _: Request<schema::ListLastUsesRequest>,
    ) -> Answer<Self::ListLastUsesStream> {
        Err(Status::unimplemented("not in the script"))
    }

    async fn list_failures(
        &self,
        _: Request<schema::ListFailuresRequest>,
    ) -> Answer<schema::ListFailuresResponse> {
        Err(Status::unimplemented("not in the script"))
    }
}
