//! One node per host. The first process of a user that needs it starts it, all processes share it,
//! and it stops a minute after the last one.
//!
//! ```text
//!   connect to the socket ──▶ ADMIT our prefix ──▶ attached; the connection is the lease
//!          │ no node listens
//!   lock the folder ──▶ start a node, which inherits the lock ──▶ connect, as above
//!          │ locked: a node is starting or stopping
//!   wait a moment, and again
//! ```
//!
//! No state can be stale. A node runs if its socket answers, and may be started if the lock is
//! free. The kernel ends both with the process, so a killed starter or node blocks no other
//! process. The lock is on the folder itself. The node keeps it for its life, as its standard
//! input.
//!
//! There is one node for each user and each target: the `AWS_*`, `GOOGLE_*` and `AZURE_*` variables
//! that decide which store an address means. Each process hands over its own variables, so that the
//! node opens a dataset with the keys of the process that asks. See `settings`.
//!
//! Thread rule: starting and attaching block the caller, for up to a minute if a node is stopping.
//! A forked child attaches for itself. Non-goals: nodes for other hosts ([`serve`] starts one).

mod daemon;
mod folder;
mod launch;
mod messages;
mod served;
mod settings;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use larder_base::{Bytes, ErrorKind, Ticket, limits, parse_size};
use larder_wire::data::Admitted;

use crate::{
    Error,
    local::Lease,
    process::{self, variables},
    remote::Failure,
};
use folder::Folder;

pub use daemon::{daemon_address, daemon_sockets};
pub use served::{ServeOptions, ServedNode, serve};

/// How often to check whether a node has started or stopped.
const TICK: Duration = Duration::from_millis(20);

/// Options to choose the node of this host, and to start it if it does not run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostOptions {
    /// Memory for shards, such as `8GiB`, or `50%` of the memory available at its start. Default:
    /// `LARDER_MEMORY`, or half. A node that runs already keeps its memory, and a warning says so.
    pub memory: Option<String>,
    /// How long the node keeps running without users, so that a restarted job finds its data warm.
    /// Default: `LARDER_HOST_NODE_LINGER`, or a minute.
    pub linger: Option<Duration>,
    /// The path of the program `larder-node`. Default: `LARDER_NODE_BIN`, a file beside the running
    /// program, or `PATH`.
    pub node_bin: Option<PathBuf>,
    /// Separates nodes that would otherwise be one. Default: `LARDER_HOST_NODE`.
    pub name: Option<String>,
}

/// A lease on the node of this host. The node may stop some time after the last lease is dropped.
pub struct HostNode {
    /// Open while this process uses the node.
    lease: Mutex<Lease>,
    admitted: Admitted,
    /// The number of the variables that this process handed over last.
    identity: AtomicU32,
    log: PathBuf,
    /// This process started it, and has not announced it.
    is_unannounced: AtomicBool,
}

/// The reason why there is no lease yet.
enum NotYet {
    /// No node listens, or the node is about to stop. Try again.
    Nobody,
    /// Waiting does not help.
    Refused(Error),
}

impl HostNode {
    /// Attaches to the node of this host and lets it read `prefixes`. Starts it if needed.
    ///
    /// # Errors
    /// - `NotFound` if the program is missing.
    /// - `Unavailable`, with the end of its log, if it does not start.
    /// - `PermissionDenied` if other users have access to its folder.
    /// - The node's error if it refuses a prefix.
    pub fn start_or_attach(options: &HostOptions, prefixes: &[&str]) -> Result<Self, Error> {
        let folder = Folder::make(options)?;
        let variables = variables::block(&variables::latest())?;
        let deadline = process::now() + limits::HOST_NODE_TIMEOUT;
        let mut started = false;
        loop {
            match Self::try_attach(&folder, prefixes, &variables) {
                Ok(node) => {
                    warn_of_other_memory(&node.admitted, options);
                    return Ok(node.announced(started));
                }
                Err(NotYet::Refused(error)) => return Err(error),
                Err(NotYet::Nobody) => {}
            }
            if process::now() >= deadline {
                return Err(nobody_came(&folder));
            }
            match folder.try_lock()? {
                Some(lock) => {
                    launch::start_detached(options, &folder, lock)?;
                    started = true;
                }
                None => thread::park_timeout(TICK),
            }
        }
    }

    /// The path of the socket of this host's node.
    ///
    /// # Errors
    /// `PermissionDenied` if other users have access to its folder.
    pub(crate) fn socket(options: &HostOptions) -> Result<PathBuf, Error> {
        Ok(Folder::make(options)?.socket())
    }

    /// Attaches to the node of this host, to inspect it. `None` if it does not run.
    ///
    /// # Errors
    /// As [`start_or_attach`](Self::start_or_attach), except for a missing node.
    pub fn attach(options: &HostOptions) -> Result<Option<Self>, Error> {
        let Some(folder) = Folder::find(options)? else { return Ok(None) };
        match Self::try_attach(&folder, &[], &[]) {
            Ok(node) => Ok(Some(node)),
            Err(NotYet::Nobody) => Ok(None),
            Err(NotYet::Refused(error)) => Err(error),
        }
    }

    fn try_attach(folder: &Folder, prefixes: &[&str], variables: &[u8]) -> Result<Self, NotYet> {
        let mut lease = Lease::take(&folder.socket())?;
        let admitted = lease.admit_all(prefixes, variables)?;
        let (lease, identity) = (Mutex::new(lease), AtomicU32::new(admitted.identity));
        let (log, is_unannounced) = (folder.log(), AtomicBool::new(false));
        Ok(Self { lease, admitted, identity, log, is_unannounced })
    }

    /// Lets the node read more prefixes, for another dataset of this process, and hands over its
    /// variables. False if the node has ended, or does not answer.
    ///
    /// # Errors
    /// The node's error if it refuses a prefix or the variables.
    pub(crate) fn admit(&self, options: &HostOptions, prefixes: &[&str]) -> Result<bool, Error> {
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        let variables = variables::block(&variables::latest())?;
        match lease.admit_all(prefixes, &variables).map_err(NotYet::from) {
            Ok(admitted) => {
                self.identity.store(admitted.identity, Relaxed);
                warn_of_other_memory(&admitted, options);
                Ok(true)
            }
            Err(NotYet::Nobody) => Ok(false),
            Err(NotYet::Refused(error)) => Err(error),
        }
    }

    fn announced(mut self, started: bool) -> Self {
        self.is_unannounced = AtomicBool::new(started);
        if started {
            tracing::info!(
                memory_bytes = self.memory_bytes(),
                pid = self.pid(),
                log = %self.log.display(),
                "started the cache of this host"
            );
        }
        self
    }

    /// Its control address, `http://host:port`. Calls need its ticket.
    pub fn address(&self) -> &str {
        &self.admitted.control
    }

    /// Bytes that it may use for shards.
    pub fn memory_bytes(&self) -> u64 {
        self.admitted.memory_bytes
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.admitted.pid
    }

    /// The path of its log. It stays when the node ends.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Returns true once, in the process that started it, so that it is announced once.
    pub fn claim_announcement(&self) -> bool {
        self.is_unannounced.swap(false, Relaxed)
    }

    /// Whether it has ended, or is about to: the kernel closes the connections of a killed node.
    pub(crate) fn has_ended(&self) -> bool {
        // A lease that is in use tells its user. In a forked child, that user may be missing.
        self.lease.try_lock().is_ok_and(|lease| lease.is_over())
    }

    /// The number by which it knows the variables of this process.
    pub(crate) fn identity(&self) -> u32 {
        self.identity.load(Relaxed)
    }

    pub(crate) fn ticket(&self) -> Ticket {
        self.admitted.ticket
    }
}

impl fmt::Debug for HostNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostNode").field("node", &self.admitted).finish_non_exhaustive()
    }
}

impl From<Failure> for NotYet {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Broken(_) | Failure::Silent => Self::Nobody,
            // It is stopping.
            Failure::Answer(error) if error.kind() == ErrorKind::Unavailable => Self::Nobody,
            refused => Self::Refused(refused.to_error("of this host")),
        }
    }
}

/// Warns if the node runs with other memory than this process asks for. Once for each node: a
/// process may open many datasets.
fn warn_of_other_memory(node: &Admitted, options: &HostOptions) {
    static TOLD_OF: AtomicU32 = AtomicU32::new(0);
    let variable = settings::text(None, "LARDER_MEMORY").ok().flatten();
    let variable = variable.map(|size| format!("LARDER_MEMORY={size}"));
    let option = options.memory.as_ref().map(|size| format!("HostOptions.memory {size}"));
    let Some(asked) = option.or(variable) else { return };
    if let Some(text) = other_memory(node, &asked)
        && TOLD_OF.swap(node.pid, Relaxed) != node.pid
    {
        tracing::warn!("{text}");
    }
}

/// The warning about a node that was started with other memory than a process asks for. `asked` is
/// the setting: its name, `=` or a space, and its value.
fn other_memory(node: &Admitted, asked: &str) -> Option<String> {
    let (_, size) = asked.split_once(['=', ' '])?;
    let same = match size.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse() == Ok(node.memory_percent),
        None => node.memory_percent == 0 && parse_size(size) == Ok(node.memory_bytes),
    };
    let (uptime, linger) = (node.uptime_seconds, node.linger_seconds);
    let has = Bytes(node.memory_bytes);
    let ago = match uptime {
        0..120 => format!("{uptime} s"),
        120..7200 => format!("{} min", uptime / 60),
        _ => format!("{} h", uptime / 3600),
    };
    (!same).then(|| {
        format!(
            "the cache of this host has {has} since its start {ago} ago; {asked} takes effect when it starts again, \
             {linger} s after its last process has ended"
        )
    })
}

fn nobody_came(folder: &Folder) -> Error {
    let waited = limits::HOST_NODE_TIMEOUT.as_secs();
    let (path, log) = (folder.path().display(), folder.log());
    Error::new(ErrorKind::Unavailable, "the cache of this host can't be reached")
        .because(format!("{path} is locked, and no node answered on its socket for {waited} s"))
        .hint(format!(
            "see {}; 'fuser {path}' names the processes that hold the lock: end the one that hangs",
            log.display()
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(memory_bytes: u64, memory_percent: u32, uptime_seconds: u32) -> Admitted {
        Admitted {
            ticket: Ticket::from_bytes([1; 16]),
            memory_bytes,
            pid: 7,
            memory_percent,
            uptime_seconds,
            linger_seconds: 60,
            identity: 0,
            control: String::new(),
        }
    }

    #[test]
    fn node_with_other_memory_is_told_with_size_and_time() {
        let told = other_memory(&node(8 << 30, 0, 750), "LARDER_MEMORY=16GiB").unwrap();
        assert_eq!(
            told,
            "the cache of this host has 8.0 GiB since its start 12 min ago; LARDER_MEMORY=16GiB takes effect when \
             it starts again, 60 s after its last process has ended"
        );
        let told = other_memory(&node(192 << 20, 50, 7300), "LARDER_MEMORY=192MiB").unwrap();
        assert!(told.starts_with("the cache of this host has 192 MiB since its start 2 h ago;"));
        assert!(other_memory(&node(8 << 30, 50, 9), "LARDER_MEMORY=30%").is_some());
    }

    #[test]
    fn same_memory_in_other_words_is_not_told() {
        for asked in ["LARDER_MEMORY=8GiB", "LARDER_MEMORY=8192MiB", "HostOptions.memory 8 GiB"] {
            assert_eq!(other_memory(&node(8 << 30, 0, 9), asked), None, "{asked}");
        }
        assert_eq!(other_memory(&node(8 << 30, 50, 9), "LARDER_MEMORY=50%"), None);
    }
}
