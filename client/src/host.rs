//! One node a host: the processes of a user start it when the first of them needs it, share it, and
//! the last one out stops it a minute later.
//!
//! ```text
//!   connect to the socket ──▶ ADMIT our prefix ──▶ attached; the connection is the lease
//!          │ nobody listens
//!   lock the folder ──▶ start a node, which inherits the lock ──▶ connect, as above
//!          │ locked: a node is starting or stopping
//!   wait a moment, and again
//! ```
//!
//! Nothing is believed that could be stale: whether a node runs is whether its socket answers, and
//! whether one may be started is whether the lock is free. The kernel ends both with the process,
//! so neither a killed starter nor a killed node stands in anybody's way. The lock is one on the
//! folder itself; the node keeps it for its life, as its standard input.
//!
//! Which node: one for each user, and for each set of `AWS_*`, `GOOGLE_*` and `AZURE_*` variables.
//! They say where an address leads and as whom it is read, and the node has those of the process
//! that started it. See `settings`.
//!
//! Thread rule: starting and attaching block the caller, for up to a minute if a node is just
//! stopping. A forked child attaches for itself. Non-goals: nodes that other hosts use ([`serve`]
//! starts one).

mod folder;
mod launch;
mod messages;
mod served;
mod settings;

use std::{
    fmt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use larder_base::{ErrorKind, Ticket, limits};
use larder_wire::data::Admitted;

use crate::{Error, local::Lease, process, remote::Failure};
use folder::Folder;

pub use served::{ServeOptions, ServedNode, serve};

/// How often to look whether a node that is starting or stopping has done so.
const TICK: Duration = Duration::from_millis(20);

/// How the node of this host is started, if it does not run yet; and which one is meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostOptions {
    /// Memory for shards, such as `8GiB` or `50%` of what is available when it starts. Else
    /// `LARDER_MEMORY`, else half. Not looked at when a node runs already.
    pub memory: Option<String>,
    /// How long the node goes on when no process uses it any more, so that a job that is started
    /// again finds its data warm. Else `LARDER_HOST_NODE_LINGER`, else a minute.
    pub linger: Option<Duration>,
    /// Where the program `larder-node` is, unless `LARDER_NODE_BIN` says so. Else it is looked for
    /// beside the program that runs, and in `PATH`.
    pub node_bin: Option<PathBuf>,
    /// Tells apart nodes that would else be one. Else `LARDER_HOST_NODE`.
    pub name: Option<String>,
}

/// The use of the node of this host. The node may stop some time after the last one was dropped.
pub struct HostNode {
    /// Open for as long as this process uses the node.
    _lease: Lease,
    admitted: Admitted,
    log: PathBuf,
    started: bool,
}

/// Why there is no lease yet.
enum NotYet {
    /// Nobody listens, or nobody who will for long: to be tried again.
    Nobody,
    /// It won't become better by waiting.
    Refused(Error),
}

impl HostNode {
    /// Attaches to the node of this host and lets it read `prefixes`; starts it if there is none.
    ///
    /// # Errors
    /// `NotFound` when there is no program to start; `Unavailable` with the end of its log when it does
    /// not start; `PermissionDenied` when its folder is not ours alone; what it refuses a prefix for.
    pub fn start_or_attach(options: &HostOptions, prefixes: &[&str]) -> Result<Self, Error> {
        let folder = Folder::make(options)?;
        let deadline = process::now() + limits::HOST_NODE_TIMEOUT;
        let mut started = false;
        loop {
            match Self::try_attach(&folder, prefixes) {
                Ok(node) => return Ok(node.announced(started)),
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

    /// Attaches to the node of this host if there is one: to look at it.
    ///
    /// # Errors
    /// As [`start_or_attach`](Self::start_or_attach), for want of a node excepted.
    pub fn attach(options: &HostOptions) -> Result<Option<Self>, Error> {
        let Some(folder) = Folder::find(options)? else { return Ok(None) };
        match Self::try_attach(&folder, &[]) {
            Ok(node) => Ok(Some(node)),
            Err(NotYet::Nobody) => Ok(None),
            Err(NotYet::Refused(error)) => Err(error),
        }
    }

    fn try_attach(folder: &Folder, prefixes: &[&str]) -> Result<Self, NotYet> {
        let mut lease = Lease::take(&folder.socket())?;
        let mut admitted = lease.admit(prefixes.first().unwrap_or(&""))?;
        for prefix in prefixes.iter().skip(1) {
            admitted = lease.admit(prefix)?;
        }
        Ok(Self { _lease: lease, admitted, log: folder.log(), started: false })
    }

    fn announced(mut self, started: bool) -> Self {
        self.started = started;
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

    /// Its control address, `http://host:port`. Calls need the ticket that came with it.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.admitted.control
    }

    /// What it may use for shards, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.admitted.memory_bytes
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.admitted.pid
    }

    /// Where it logs to while it runs.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Whether this very call started it, so that whoever prints a line about that prints one.
    #[must_use]
    pub fn started(&self) -> bool {
        self.started
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
            // It is stopping, or has no place just now.
            Failure::Answer(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Unavailable | ErrorKind::ResourceExhausted
                ) =>
            {
                Self::Nobody
            }
            refused => Self::Refused(refused.to_error("of this host")),
        }
    }
}

fn nobody_came(folder: &Folder) -> Error {
    let waited = limits::HOST_NODE_TIMEOUT.as_secs();
    let (path, log) = (folder.path().display(), folder.log());
    Error::new(ErrorKind::Unavailable, "the cache of this host can't be reached")
        .because(format!("{path} is locked, and nobody answered on its socket for {waited} s"))
        .hint(format!(
            "see {}; 'fuser {path}' names the processes that hold the lock: end the one that hangs",
            log.display()
        ))
}
