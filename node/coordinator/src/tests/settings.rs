//! The coordinators that the contract is tested with, and connections to each.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::{PATIENCE, until, until_here};
use crate::{
    Coordinator, EmbeddedCoordinator, EmbeddedOptions, Etcd, EtcdOptions, JoinToken, Service,
};

/// A coordinator under test.
pub(super) enum Setting {
    Leader { coordinator: Option<Arc<EmbeddedCoordinator>>, home: TempDir },
    Follower { server: Option<Served>, home: TempDir },
    Etcd { server: EtcdProcess },
}

impl Setting {
    /// Returns a connection to it, as a node has one.
    pub(super) async fn client(&self) -> Arc<dyn Coordinator> {
        let client: Arc<dyn Coordinator> = match self {
            Self::Leader { coordinator, .. } => Arc::clone(coordinator.as_ref().unwrap()) as _,
            Self::Follower { server, home } => {
                let folder = tempfile::tempdir_in(home.path()).unwrap().keep();
                let join = vec![server.as_ref().unwrap().address.clone()];
                let options = options(&folder, "follower", "http://127.0.0.1:1", join);
                EmbeddedCoordinator::start(options).await.unwrap()
            }
            Self::Etcd { server } => Arc::new(Etcd::start(&server.options()).unwrap()),
        };
        until_here(&*client).await;
        client
    }

    /// Stops it and starts it again over its state.
    pub(super) async fn restart(&mut self) {
        match self {
            Self::Leader { coordinator, home } => {
                coordinator.take().unwrap().stop();
                *coordinator = Some(
                    start_again(options(home.path(), "first", "http://127.0.0.1:1", vec![])).await,
                );
            }
            Self::Follower { server, home } => {
                let old = server.take().unwrap();
                let port = old.port;
                old.end().await;
                *server =
                    Some(Served::start(&home.path().join("first"), "first", port, vec![]).await);
            }
            Self::Etcd { server } => server.restart(),
        }
    }

    /// Returns true if clients from before a restart still work after it.
    pub(super) fn outlives_a_restart(&self) -> bool {
        !matches!(self, Self::Leader { .. })
    }
}

fn run(test: impl AsyncFnOnce()) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async { tokio::time::timeout(4 * PATIENCE, test()).await.unwrap() });
}

/// Runs a test over the coordinator of this node.
pub(super) fn embedded<F: Future<Output = ()>>(test: fn(Setting) -> F) {
    run(async || {
        let home = tempfile::tempdir().unwrap();
        let coordinator =
            EmbeddedCoordinator::start(options(home.path(), "first", "http://127.0.0.1:1", vec![]))
                .await;
        test(Setting::Leader { coordinator: Some(coordinator.unwrap()), home }).await;
    });
}

/// Runs a test over the coordinator of another node, through gRPC on loopback.
pub(super) fn remote<F: Future<Output = ()>>(test: fn(Setting) -> F) {
    run(async || {
        let home = tempfile::tempdir().unwrap();
        let server = Served::start(&home.path().join("first"), "first", 0, vec![]).await;
        test(Setting::Follower { server: Some(server), home }).await;
    });
}

/// Runs a test over etcd.
pub(super) fn etcd<F: Future<Output = ()>>(test: fn(Setting) -> F) {
    run(async || test(Setting::Etcd { server: EtcdProcess::start(&[]) }).await);
}

/// Returns the token of all clusters here.
pub(super) fn token() -> JoinToken {
    JoinToken::new("a token for tests").unwrap()
}

pub(super) fn options(
    state: &Path,
    node_id: &str,
    address: &str,
    join: Vec<String>,
) -> EmbeddedOptions {
    let (node_id, address) = (node_id.to_owned(), address.to_owned());
    EmbeddedOptions { state: state.to_owned(), node_id, address, token: token(), join }
}

/// Starts a coordinator over a folder that its last user may still be releasing.
async fn start_again(options: EmbeddedOptions) -> Arc<EmbeddedCoordinator> {
    let started = async || EmbeddedCoordinator::start(options.clone()).await;
    let waiting = async {
        loop {
            match started().await {
                Ok(coordinator) => return coordinator,
                Err(why) if why.message().contains("another node") => {
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
                Err(why) => panic!("{why}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the folder is free")
}

/// A coordinator, served on loopback.
pub(super) struct Served {
    pub(super) coordinator: Arc<EmbeddedCoordinator>,
    pub(super) address: String,
    pub(super) port: u16,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Served {
    /// Starts a coordinator; `port` 0 takes any.
    pub(super) async fn start(state: &Path, node_id: &str, port: u16, join: Vec<String>) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let listener = TcpListener::bind(address).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = format!("http://127.0.0.1:{port}");
        let coordinator = start_again(options(state, node_id, &address, join)).await;
        let stop = CancellationToken::new();
        let serving = Server::builder()
            .add_service(Service::guarded(&coordinator))
            .serve_with_incoming_shutdown(
                TcpIncoming::from(listener),
                stop.clone().cancelled_owned(),
            );
        let task = tokio::spawn(async move { serving.await.unwrap() });
        Self { coordinator, address, port, stop, task }
    }

    /// Ends it as a node ends.
    pub(super) async fn end(self) {
        self.coordinator.stop();
        self.stop.cancel();
        let ended = tokio::time::timeout(PATIENCE, self.task).await;
        ended.expect("all calls end").unwrap();
    }
}

/// A real etcd with a data folder of its own. Killed on drop.
pub(super) struct EtcdProcess {
    child: Child,
    home: TempDir,
    ports: [u16; 2],
    arguments: Vec<String>,
}

impl EtcdProcess {
    /// Starts etcd; it may not answer yet.
    pub(super) fn start(arguments: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let ports = free_ports();
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let child = spawn(home.path(), ports, &arguments);
        Self { child, home, ports, arguments }
    }

    /// Starts two members of one etcd cluster. Each has no leader without the other.
    pub(super) fn pair() -> [Self; 2] {
        let members = ["a", "b"].map(|name| (name, free_ports()));
        let [all_a, all_b] =
            members.map(|(name, [_, peer])| format!("{name}=http://127.0.0.1:{peer}"));
        let all = format!("{all_a},{all_b}");
        members.map(|(name, ports)| {
            let home = tempfile::tempdir().unwrap();
            // etcd takes the last of two values for one flag.
            let arguments = ["--name", name, "--initial-cluster", &all].map(str::to_owned).to_vec();
            let child = spawn(home.path(), ports, &arguments);
            Self { child, home, ports, arguments }
        })
    }

    /// Kills it with SIGKILL, and starts it again on its data.
    pub(super) fn restart(&mut self) {
        self.kill();
        self.child = spawn(self.home.path(), self.ports, &self.arguments);
    }

    pub(super) fn options(&self) -> EtcdOptions {
        EtcdOptions {
            endpoints: vec![format!("http://127.0.0.1:{}", self.ports[0])],
            prefix: "/larder/test".to_owned(),
            user: None,
            tls: None,
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.ports[0]
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(home: &Path, [client, peer]: [u16; 2], arguments: &[String]) -> Child {
    let scheme = if arguments.iter().any(|word| word == "--cert-file") { "https" } else { "http" };
    let (client, peer) =
        (format!("{scheme}://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    Command::new(program())
        .arg("--data-dir")
        .arg(home.join("data"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}"), "--log-level", "error"])
        .args(arguments)
        .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd starts")
}

/// Returns the path of etcd. Its tests are never skipped: `make test` installs it.
fn program() -> PathBuf {
    if let Some(named) = std::env::var_os("LARDER_ETCD_SERVER") {
        return PathBuf::from(named);
    }
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin");
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::iter::once(tools).chain(std::env::split_paths(&folders));
    let found = places.find_map(|folder| Some(folder.join("etcd")).filter(|path| path.is_file()));
    found.expect("etcd was not found: `make target/tools/bin/etcd` gets it, or name it in LARDER_ETCD_SERVER")
}

fn free_ports() -> [u16; 2] {
    let sockets = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| socket.local_addr().unwrap().port())
}

/// Waits until a node knows a record.
pub(super) async fn until_copied(coordinator: &EmbeddedCoordinator, revision: crate::Revision) {
    until("the record is copied", async || coordinator.durable.kept().revision() == Some(revision))
        .await;
}
