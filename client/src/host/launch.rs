//! Starts nodes: finds their program, and starts a node that detaches, or one that is a child.

use std::{
    env,
    fs::{self, DirEntry, File, OpenOptions},
    io::{self, Read as _},
    os::{fd::AsFd as _, unix::fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
    process::{ChildStdout, Command, Stdio},
};

use larder_base::{ErrorKind, limits};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{HostOptions, folder::Folder, settings::text};
use crate::{Error, process};

/// How long an unused node keeps its data by default. A job that is restarted by its launcher, or
/// by hand after a look at the log, finds it warm.
const LINGER: &str = "60s";

/// The share of available memory that a node takes by default. The rest is for the processes that
/// it serves.
const MEMORY: &str = "50%";

/// Variables for this process only, not for a node that it starts.
const FOREIGN: [&str; 4] = ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];

/// The most bytes of the line with a node's address.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Lines of the log in the error of a failed start.
const LOG_LINES: usize = 5;

/// Logs of a user's nodes that stay.
const LOGS_MAX: usize = 32;

const NAME: &str = "larder-node";

/// Starts the node of this host, which takes over the lock. Waits until it listens.
pub(super) fn start_detached(
    options: &HostOptions,
    folder: &Folder,
    lock: File,
) -> Result<(), Error> {
    let program = find_program(options.node_bin.as_deref())?;
    let failed = |why: io::Error| not_started(&program).because(why);
    let log = open_log(&folder.log()).map_err(failed)?;
    let linger = options.linger.map(|linger| format!("{}ms", linger.as_millis()));
    let linger = text(linger, "LARDER_HOST_NODE_LINGER")?;
    let mut command = node(&program, options.memory.clone())?;
    command
        .args(["--detach", "--private"])
        .arg(format!("--exit-when-unused={}", linger.as_deref().unwrap_or(LINGER)))
        .args(["--listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0"])
        .arg("--socket")
        .arg(folder.socket())
        .arg("--remove-when-done")
        .arg(folder.path())
        .current_dir("/")
        .stdin(lock)
        .stdout(Stdio::piped())
        .stderr(log);
    let mut launcher = command.spawn().map_err(failed)?;
    // Otherwise this process would hold the lock too.
    drop(command);
    let said = first_line(launcher.stdout.take().expect("it was piped"));
    // The launcher ends as soon as it has started the node.
    launcher.wait().map_err(failed)?;
    if said.map_err(failed)?.is_empty() {
        return Err(not_started(&program)
            .because(in_our_words(&tail(&folder.log()), options))
            .hint(format!("all it said is in {}", folder.log().display())));
    }
    Ok(())
}

/// The path of the program: as set, or a file beside the running program, or in `PATH`.
pub(super) fn find_program(told: Option<&Path>) -> Result<PathBuf, Error> {
    let named = env::var_os("LARDER_NODE_BIN").filter(|path| !path.is_empty()).map(PathBuf::from);
    if let Some(path) = named.or_else(|| told.map(Path::to_owned)) {
        return absolute(&path).ok_or_else(|| {
            let what = format!("there is no program {}", path.display());
            Error::new(ErrorKind::NotFound, what)
                .hint("set LARDER_NODE_BIN to where larder-node is")
        });
    }
    let beside = env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = beside.into_iter().chain(env::split_paths(&path)).collect();
    folders.iter().find_map(|folder| absolute(&folder.join(NAME))).ok_or_else(missing)
}

/// The absolute path of a file. The program does not run in our current folder.
fn absolute(path: &Path) -> Option<PathBuf> {
    path.is_file().then(|| path.canonicalize().ok()).flatten()
}

fn missing() -> Error {
    Error::new(ErrorKind::NotFound, "no cache can be started on this host")
        .because("larder-node is neither beside the program that runs nor in PATH")
        .hint(
            "install the wheel of `make wheel`, which brings it, or set LARDER_NODE_BIN to where it is; \
             or name a cluster that runs",
        )
}

/// The command of a node, configured by arguments only.
pub(super) fn node(program: &Path, memory: Option<String>) -> Result<Command, Error> {
    let memory = text(memory, "LARDER_MEMORY")?;
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("LARDER_") {
            command.env_remove(name);
        }
    }
    FOREIGN.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.arg("--output=json").arg(format!("--memory={}", memory.as_deref().unwrap_or(MEMORY)));
    Ok(command)
}

/// The first line of a node's output. Empty if it ends without one.
pub(super) fn first_line(mut stdout: ChildStdout) -> io::Result<String> {
    let deadline = process::now() + limits::HOST_NODE_TIMEOUT;
    let (mut line, mut bytes) = (Vec::new(), [0; 512]);
    while !line.contains(&b'\n') {
        let left = deadline.saturating_duration_since(process::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut polled = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, timeout) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Err(nix::errno::Errno::EINTR) => continue,
            polled => polled?,
        };
        let got = stdout.read(&mut bytes)?;
        line.extend_from_slice(&bytes[..got]);
        if got == 0 || line.len() > LINE_BYTES_MAX {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&line).trim().to_owned())
}

pub(super) fn not_started(program: &Path) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{} did not start", program.display()))
}

/// Creates the log of this start. Keeps those of the two starts before.
fn open_log(path: &Path) -> io::Result<File> {
    let [last, before_last] = ["log.1", "log.2"].map(|age| path.with_extension(age));
    for (from, to) in [(&*last, &*before_last), (path, &*last)] {
        match fs::rename(from, to) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
            _ => {}
        }
    }
    path.parent().map(forget_old_logs);
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)
}

/// Removes the oldest logs of a user's nodes if there are too many: other credentials make another
/// node. A log that can't be removed stays.
fn forget_old_logs(base: &Path) {
    let files = fs::read_dir(base).into_iter().flatten().flatten();
    let is_log = |file: &DirEntry| file.file_name().to_string_lossy().contains(".log");
    let mut logs: Vec<_> = files
        .filter(is_log)
        .filter_map(|log| Some((log.metadata().ok()?.modified().ok()?, log.path())))
        .collect();
    logs.sort_unstable();
    let surplus = logs.len().saturating_sub(LOGS_MAX - 1);
    logs.iter().take(surplus).for_each(|(_, log)| drop(fs::remove_file(log)));
}

fn tail(log: &Path) -> String {
    last_lines(&fs::read_to_string(log).unwrap_or_default())
}

/// Replaces a node's argument names in its message by the names of our settings.
fn in_our_words(said: &str, options: &HostOptions) -> String {
    let name = |given: bool, variable| if given { "HostOptions" } else { variable };
    said.replace("--memory", name(options.memory.is_some(), "LARDER_MEMORY"))
        .replace("--exit-when-unused", name(options.linger.is_some(), "LARDER_HOST_NODE_LINGER"))
}

pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    match &lines[lines.len().saturating_sub(LOG_LINES)..] {
        [] => "it said nothing".to_owned(),
        last => last.join("\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_argument_errors_name_the_settings_of_the_user() {
        let said = "error: --memory: 'lots' is no size; --exit-when-unused: 'soon' is no time";
        let variables = in_our_words(said, &HostOptions::default());
        assert!(variables.contains("LARDER_MEMORY: 'lots'"), "{variables}");
        assert!(variables.contains("LARDER_HOST_NODE_LINGER: 'soon'"), "{variables}");
        let memory = Some("lots".to_owned());
        let options = HostOptions { memory, ..HostOptions::default() };
        assert!(in_our_words(said, &options).contains("HostOptions: 'lots'"));
    }
}
