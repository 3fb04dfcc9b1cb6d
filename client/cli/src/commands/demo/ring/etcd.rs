//! A real etcd, for as long as the demo runs, if there is one on this machine.
//!
//! etcd does not stop when its parent does. A small shell stands between: it waits on the standard
//! input that all of the demo's programs have, and ends etcd when that closes, which it does
//! however the demo ends.

use std::{os::unix::process::CommandExt, path::PathBuf, time::Duration};

use super::super::{
    http,
    nodes::free_ports,
    process::{Child, Programs, unsettled},
    signals::Interrupt,
};
use crate::{
    context::Context,
    error::{Exit, Failure},
};

/// Names the etcd to start; set to nothing, none is started.
const NAMED_BY: &str = "LARDER_ETCD_SERVER";

/// Says that etcd runs, waits until nobody holds the other end of its input, and ends etcd, which
/// has nothing to save.
const KEEP: &str = r#""$@" >&2 & echo started; read -r _; kill -KILL $!; wait $! 2>&-"#;

/// How long etcd may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(50);

/// A running etcd.
pub(super) struct Etcd {
    endpoint: String,
    keeper: Child,
}

impl Etcd {
    /// The etcd that is named, else the first on the PATH; none if there is none.
    pub(super) fn find() -> Result<Option<PathBuf>, Failure> {
        if let Some(named) = std::env::var_os(NAMED_BY) {
            let named = PathBuf::from(named);
            if named.as_os_str().is_empty() || named.is_file() {
                return Ok(Some(named).filter(|path| !path.as_os_str().is_empty()));
            }
            let what = format!("there is no etcd at {}", named.display());
            return Err(Failure::new(Exit::NotFound, what)
                .why(format!("{NAMED_BY} names it"))
                .hint("unset it to use the etcd on the PATH; set it to nothing to do without"));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let candidates = std::env::split_paths(&path).map(|folder| folder.join("etcd"));
        Ok(candidates.into_iter().find(|candidate| candidate.is_file()))
    }

    /// Starts it and waits until it answers.
    pub(super) fn start(
        context: &Context,
        interrupt: &Interrupt,
        programs: &Programs,
        program: PathBuf,
    ) -> Result<Self, Failure> {
        let ports = free_ports(2)?;
        let [client, peer] = [ports[0], ports[1]].map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = unsettled("/bin/sh");
        command
            .args(["-c", KEEP, "sh"])
            .arg(program)
            .arg("--data-dir")
            .arg(programs.folder.join("etcd"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--log-level", "error"])
            .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH)
            // Ctrl-C is for the demo: etcd goes last, when nobody needs it any more.
            .process_group(0);
        let keeper = Child::start(programs, "etcd", &mut command)?;
        let etcd = Self { endpoint: client, keeper };
        let deadline = context.now() + START_LIMIT;
        while http::get(&format!("{}/health", etcd.endpoint)).is_err() {
            interrupt.pause(TICK)?;
            if context.now() >= deadline {
                return Err(Failure::new(Exit::Failed, "etcd does not answer")
                    .why(etcd.keeper.log_tail())
                    .hint(format!("set {NAMED_BY} to another, or to nothing to do without")));
            }
        }
        Ok(etcd)
    }

    /// Where it is reached.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }
}
