//! Coordinators and their clients in processes of their own: this test binary, started again for a
//! role.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::announcement;
use super::settings::{EtcdProcess, Served, options};
use crate::{Coordinator, EmbeddedCoordinator, Etcd};

const ROLE: &str = "LARDER_TEST_COORDINATOR_ROLE";
const STATE: &str = "LARDER_TEST_COORDINATOR_STATE";
const PLACE: &str = "LARDER_TEST_COORDINATOR_PLACE";

/// How often a client that plays a node renews its announcement.
const RENEWAL: Duration = Duration::from_millis(250);

/// A child process. Killed on drop.
struct Played(Child);

impl Played {
    fn start(role: &str, state: &Path, place: &str) -> Self {
        let test = "tests::process::plays_its_role";
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", test])
            .env(ROLE, role)
            .env(STATE, state)
            .env(PLACE, place)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// An embedded coordinator that can be killed and stopped.
pub(super) struct Server {
    process: Played,
    pub(super) address: String,
}

impl Server {
    /// Starts it over a folder, at a port; 0 takes any. Returns when it serves.
    pub(super) fn start(state: &Path, port: u16) -> Self {
        let mut process = Played::start("serve", state, &port.to_string());
        let lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        let said = lines.map_while(Result::ok).find_map(|line| {
            line.split_once("serves at ").map(|(_, address)| address.trim().to_owned())
        });
        Self { process, address: said.expect("it serves") }
    }

    pub(super) fn port(&self) -> u16 {
        self.address.rsplit_once(':').unwrap().1.parse().unwrap()
    }

    pub(super) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }
}

/// A node that announces itself.
pub(super) struct Announcer(Played);

impl Announcer {
    /// Announces to an embedded coordinator at an address.
    pub(super) fn to_seat(state: &Path, address: &str) -> Self {
        Self(Played::start("announce", state, address))
    }

    /// Announces to etcd.
    pub(super) fn to_etcd(state: &Path, server: &EtcdProcess) -> Self {
        Self(Played::start("announce-etcd", state, &server.options().endpoints[0]))
    }

    pub(super) fn stand_still(&self) {
        self.0.signal(Signal::SIGSTOP);
    }

    pub(super) fn go_on(&self) {
        self.0.signal(Signal::SIGCONT);
    }
}

/// Plays the role for which this process was started; otherwise does nothing.
#[test]
fn plays_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let state = std::env::var_os(STATE).unwrap();
    let (state, place) = (Path::new(&state), std::env::var(PLACE).unwrap());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        match role.as_str() {
            "serve" => serve(state, place.parse().unwrap()).await,
            "announce" => {
                let coordinator = EmbeddedCoordinator::start(options(
                    state,
                    "client",
                    "http://127.0.0.1:1",
                    vec![place],
                ));
                announce(coordinator.await.unwrap()).await;
            }
            "announce-etcd" => {
                let options = crate::EtcdOptions {
                    endpoints: vec![place],
                    prefix: "/larder/test".to_owned(),
                    user: None,
                    tls: None,
                };
                announce(Arc::new(Etcd::start(&options).unwrap())).await;
            }
            other => panic!("no role is called {other}"),
        }
    });
}

async fn serve(state: &Path, port: u16) {
    let served = Served::start(state, "first", port, vec![]).await;
    println!("serves at {}", served.address);
    std::future::pending::<()>().await;
}

async fn announce(coordinator: Arc<dyn Coordinator>) {
    loop {
        // Away for now: the next announcement may arrive.
        let _ = coordinator.announce(announcement("client", 1, 2)).await;
        tokio::time::sleep(RENEWAL).await;
    }
}
