//! `larder-node`: starts a node, prints where it listens, and drains it when told to stop.
//!
//! Exit codes:
//!
//! - 0 after a drain;
//! - 1 if the node could not start, or its cluster does not take it;
//! - 2 for settings that can't be used;
//! - 130 when a second signal cut the drain short.

mod log;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Read, Write};
use std::process::{Command, ExitCode};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use clap::error::ErrorKind::InvalidUtf8;
use clap::{Arg, CommandFactory, Parser};
use larder_base::limits;
use larder_base::{Error, ErrorKind};
use larder_node::config::{Args, Config};
use larder_node::node::Node;
use log::Repeats;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

/// How often a node that other hosts can reach warns of it, and the log tells what it left out.
const MINUTE: Duration = Duration::from_secs(60);

/// Threads for the servers, the fills and some connections, beside one a core.
const THREADS_SPARE: usize = 32;

const EXIT_FAILED: u8 = 1;
const EXIT_SETTINGS: u8 = 2;
const EXIT_CUT_SHORT: i32 = 130;

/// Why the node did not start: its exit code, and the message for the operator.
struct Refused(u8, String);

impl<E: fmt::Display> From<E> for Refused {
    fn from(why: E) -> Self {
        Self(EXIT_FAILED, why.to_string())
    }
}

fn main() -> ExitCode {
    match run(Args::try_parse().unwrap_or_else(|why| named(why).exit())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Refused(code, why)) => {
            // The exit code tells it too, if standard error takes nothing.
            let _ = writeln!(io::stderr(), "larder-node: {why}");
            ExitCode::from(code)
        }
    }
}

/// Names the variable that is not UTF-8, since clap does not.
fn named(error: clap::Error) -> clap::Error {
    let mut command = Args::command();
    let is_odd = |name: &&OsStr| std::env::var_os(name).is_some_and(|set| set.to_str().is_none());
    let odd = command.get_arguments().filter_map(Arg::get_env).find(is_odd);
    match odd.map(OsStr::to_owned) {
        Some(name) if error.kind() == InvalidUtf8 => {
            let why = format!("{} is not UTF-8: set it again", name.display());
            command.error(InvalidUtf8, why)
        }
        _ => error,
    }
}

fn run(args: Args) -> Result<(), Refused> {
    if args.detach {
        return start_again().map_err(|why| format!("can't go on in the background: {why}").into());
    }
    if args.detached {
        leave_session().map_err(|why| format!("no session of its own: {why}"))?;
    }
    let repeats = log::start();
    let (as_json, exit_with_stdin) = (args.output == "json", args.exit_with_stdin);
    let remove_when_done = args.remove_when_done.clone();
    let config = Config::try_from(args).map_err(|why| Refused(EXIT_SETTINGS, why.to_string()))?;
    raise_limits();
    check_threads()?;
    // Before any thread is started, so that the signals reach the thread that waits for them.
    let stop = signals()?;
    let (node_id, exposed) = (config.node_id.clone(), config.beyond_loopback);
    let mut node = Node::start(config).map_err(|why| match why.kind() {
        ErrorKind::InvalidArgument => Refused(EXIT_SETTINGS, why.to_string()),
        _ => why.into(),
    })?;
    announce(&node_id, &node, as_json)?;
    if exit_with_stdin {
        stop.with_stdin();
    }
    node.when_unused(stop.when_unused())?;
    node.when_refused(stop.when_refused());
    if let Word::Refused(why) = stop.wait(exposed, &repeats) {
        node.shutdown(Duration::ZERO);
        return Err(why.into());
    }
    notify(&[sd_notify::NotifyState::Stopping]);
    tracing::info!("stopping: requests in flight have {} s", limits::DRAIN_TIMEOUT.as_secs());
    node.shutdown(limits::DRAIN_TIMEOUT);
    // If it can't be removed, there is no remedy here.
    let _ = remove_when_done.map(std::fs::remove_dir);
    Ok(())
}

/// Raises the limits on open files, locked memory and the size of files: each shard is a file in
/// locked memory.
fn raise_limits() {
    for resource in [Resource::RLIMIT_NOFILE, Resource::RLIMIT_MEMLOCK, Resource::RLIMIT_FSIZE] {
        let raised = getrlimit(resource).and_then(|(_, most)| setrlimit(resource, most, most));
        if let Err(why) = raised {
            tracing::warn!("{resource:?} stays as it is: {why}");
        }
    }
}

/// Refuses a host on which requests would wait for threads for ever.
fn check_threads() -> Result<(), Refused> {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    larder_dataset::check_threads(workers + THREADS_SPARE).map_err(Refused::from)
}

/// Prints one line with the addresses of the node, and notifies the service manager.
fn announce(node_id: &str, node: &Node, as_json: bool) -> io::Result<()> {
    let at = node.addresses();
    let (listen, data, socket) = (at.listen, at.data, at.socket.display());
    let mut out = io::stdout().lock();
    if as_json {
        let node_id = json_string(node_id);
        let socket = json_string(&socket.to_string());
        writeln!(
            out,
            r#"{{"node_id":{node_id},"listen":"{listen}","data":"{data}","socket":{socket}}}"#
        )?;
    } else {
        writeln!(out, "listening: control {listen}, data {data}, socket {socket}, node {node_id}")?;
    }
    out.flush()?;
    notify(&[sd_notify::NotifyState::Ready]);
    Ok(())
}

/// Encodes a string as JSON.
fn json_string(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            control if control < ' ' => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(control)));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

fn notify(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(why) = sd_notify::notify(states) {
        tracing::warn!("the service manager can't be told: {why}");
    }
}

/// Why the node ends.
enum Word {
    /// A signal, or a setting that ends it.
    Stop,
    /// The cluster does not take it, for this reason.
    Refused(String),
}

/// Receives the request to stop.
struct Stop {
    word: Receiver<Word>,
    send: SyncSender<Word>,
}

/// Waits for signals on a thread of its own. The first that asks for an end starts a drain, the
/// second ends the process at once. Signals that other programs reload by, or report by, are
/// ignored: the default is to end the process, and its memory with it. So is SIGXFSZ: the write
/// beyond a limit on the size of files then fails.
fn signals() -> io::Result<Stop> {
    let ends = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT]);
    let ignored = [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGXFSZ];
    let ignored = SigSet::from_iter(ignored);
    let awaited = ends | ignored;
    awaited.thread_block()?;
    let (send, word) = sync_channel(1);
    let first = send.clone();
    let wait = move || {
        let mut is_stopping = false;
        while let Ok(signal) = awaited.wait() {
            if ignored.contains(signal) {
                tracing::info!("{signal} is ignored: nothing is reloaded; SIGTERM stops this node");
            } else if is_stopping {
                std::process::exit(EXIT_CUT_SHORT);
            } else {
                is_stopping = true;
                let _ = first.try_send(Word::Stop);
            }
        }
    };
    thread::Builder::new().name("larder-signals".to_owned()).spawn(wait)?;
    Ok(Stop { word, send })
}

impl Stop {
    /// Also stops when standard input ends.
    fn with_stdin(&self) {
        let send = self.send.clone();
        let wait = move || {
            let mut scrap = [0; 512];
            while matches!(io::stdin().read(&mut scrap), Ok(1..)) {}
            let _ = send.try_send(Word::Stop);
        };
        let started = thread::Builder::new().name("larder-stdin".to_owned()).spawn(wait);
        if let Err(why) = started {
            tracing::warn!("standard input is not watched: {why}");
        }
    }

    /// Returns the function to call when the node is unused.
    fn when_unused(&self) -> impl FnOnce() + Send + 'static {
        let send = self.send.clone();
        move || {
            tracing::info!("no client uses this node any more");
            let _ = send.try_send(Word::Stop);
        }
    }

    /// Returns the function to call when the cluster does not take the node.
    fn when_refused(&self) -> impl FnOnce(Error) + Send + 'static {
        let send = self.send.clone();
        move |why| {
            let _ = send.try_send(Word::Refused(why.to_string()));
        }
    }

    /// Waits for the request to stop. Meanwhile a node that other hosts can reach repeats its
    /// warning, and the log tells what it left out.
    fn wait(&self, exposed: bool, repeats: &Repeats) -> Word {
        loop {
            if exposed {
                tracing::warn!(
                    "this node listens beyond loopback without authentication: every host that \
                     reaches it can read its datasets"
                );
            }
            let word = self.word.recv_timeout(MINUTE);
            repeats.tell();
            match word {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(word) => return word,
                Err(RecvTimeoutError::Disconnected) => return Word::Stop,
            }
        }
    }
}

/// Starts this program again with the same arguments, detached from the process that started it.
///
/// The processes of a host share the node. So it must not end with the one that came first, keep
/// its files open, or stay as its child. `--detach` starts the program again with `--detached`, and
/// ends. The new process has no parent to wait for it, and keeps only standard input, output and
/// error open. The starter may hold a lock in standard input: that lock is held while the node
/// lives.
///
/// # Errors
/// The system's error.
fn start_again() -> io::Result<()> {
    larder_extent::keep_descriptors_from_programs()?;
    let arguments = std::env::args_os().skip(1).map(|argument| {
        if argument == "--detach" { OsString::from("--detached") } else { argument }
    });
    Command::new(std::env::current_exe()?).args(arguments).spawn().map(drop)
}

/// Creates a session for this process alone, which signals of a terminal do not reach. Uses all
/// cores again. The starter may be bound to a few, as a rank of a job is, but the node serves every
/// rank.
///
/// # Errors
/// The system's error.
fn leave_session() -> io::Result<()> {
    nix::unistd::setsid()?;
    let mut cores = CpuSet::new();
    for core in 0..CpuSet::count() {
        cores.set(core)?;
    }
    // The kernel reduces the set to the process's cpuset. If it refuses, the node is only slower.
    let _ = sched_setaffinity(Pid::from_raw(0), &cores);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::json_string;

    #[test]
    fn names_with_quotes_and_newlines_stay_one_json_string() {
        assert_eq!(json_string("a\"b\\c\nd"), r#""a\"b\\c\u000ad""#);
    }
}
