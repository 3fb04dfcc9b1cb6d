//! The other programs: found beside this one, started with a pipe as their standard input so that
//! they stop when we do, and asked in their first line where they listen.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{BufRead, BufReader},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Deserialize;

use crate::error::{Exit, Failure};

/// How long a program may take to say that it listens. Writing the data is part of it.
const START_LIMIT: Duration = Duration::from_secs(300);
/// How long one may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// Lines of a log that are shown when a program failed.
const LOG_LINES: usize = 5;

/// Where the programs and the demo's files are.
pub(super) struct Programs {
    beside: PathBuf,
    pub(super) folder: PathBuf,
}

impl Programs {
    pub(super) fn find(folder: &Path) -> Result<Self, Failure> {
        let exe = std::env::current_exe();
        let exe = exe.map_err(|error| {
            Failure::new(Exit::Failed, "this program does not know where it lies").why(error)
        })?;
        let beside = exe.parent().unwrap_or(Path::new("/")).to_owned();
        let missing: Vec<_> = ["larder-node", "larder-demo-origin"]
            .into_iter()
            .filter(|name| !beside.join(name).is_file())
            .collect();
        if missing.is_empty() {
            return Ok(Self { beside, folder: folder.to_owned() });
        }
        let what = format!("{} not found beside larder", missing.join(" and "));
        Err(Failure::new(Exit::NotFound, what)
            .why(format!("looked in {}", beside.display()))
            .hint("in a checkout run 'make demo'; else install the programs into one folder"))
    }

    /// One of Larder's programs.
    pub(super) fn command(&self, name: &str) -> Command {
        let mut command = unsettled(self.beside.join(name));
        command.env("RUST_LOG", "warn");
        command
    }
}

/// A program that knows of no S3, no cluster and no etcd but the demo's.
pub(super) fn unsettled(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if ["AWS_", "LARDER_", "ETCD_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&variable);
        }
    }
    command
}

/// A running program. Stopped when dropped.
pub(super) struct Child {
    name: String,
    log: PathBuf,
    process: std::process::Child,
    /// Open as long as the program is to run.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    pub(super) first_line: String,
}

impl Child {
    /// Starts a program and waits for its first line.
    pub(super) fn start(
        programs: &Programs,
        name: &str,
        command: &mut Command,
    ) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(Exit::Failed, format!("{name} could not be started")).why(error)
        };
        let log = programs.folder.join(format!("{name}.log"));
        let stderr = File::create(&log).map_err(failed)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut process = command.spawn().map_err(failed)?;
        let stdin = process.stdin.take();
        let stdout = BufReader::new(process.stdout.take().expect("it was piped"));
        let name = name.to_owned();
        let mut child = Self { name, log, process, stdin, stdout, first_line: String::new() };
        let said = readable(child.stdout.get_ref(), START_LIMIT);
        if !said || child.stdout.read_line(&mut child.first_line).unwrap_or(0) == 0 {
            let what = format!("{} did not start", child.name);
            return Err(Failure::new(Exit::Failed, what).why(child.log_tail()));
        }
        Ok(child)
    }

    /// What the program said in its first line.
    pub(super) fn said<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Failure> {
        serde_json::from_str(&self.first_line).map_err(|error| {
            let what = format!("{} said something unexpected", self.name);
            Failure::new(Exit::Failed, what).why(format!("{error} in {:?}", self.first_line))
        })
    }

    /// The last lines that it wrote to its log.
    pub(super) fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        match &lines[lines.len().saturating_sub(LOG_LINES)..] {
            [] => "it said nothing".to_owned(),
            last => last.join("\n"),
        }
    }

    /// The control address of a node.
    pub(super) fn address(&self) -> Result<String, Failure> {
        #[derive(Deserialize)]
        struct Listening {
            listen: String,
        }
        Ok(format!("http://{}", self.said::<Listening>()?.listen))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // Its end of the pipe closes when it is gone.
        if !readable(self.stdout.get_ref(), STOP_LIMIT) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// Waits until there is something to read, or the other end is closed.
fn readable(pipe: &ChildStdout, limit: Duration) -> bool {
    let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    matches!(poll(&mut fds, timeout), Ok(1..))
}
