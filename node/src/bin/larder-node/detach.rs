//! Leaving the process that started this one: a node that is shared by the processes of a host must
//! not end with the one that happened to come first, keep its files open, or be its child to wait
//! for.
//!
//! `--detach` starts the program again, as `--detached`, and ends. What goes on is nobody's child,
//! and takes with it standard input, output and error only. Whoever started it may hold a lock in
//! standard input: it is held for as long as the node lives.

use std::ffi::OsString;
use std::io;
use std::process::Command;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Starts this program again with the same arguments, to be left alone.
///
/// # Errors
/// The system's.
pub(super) fn start_again() -> io::Result<()> {
    larder_extent::keep_descriptors_from_programs()?;
    let arguments = std::env::args_os().skip(1).map(|argument| {
        if argument == "--detach" { OsString::from("--detached") } else { argument }
    });
    Command::new(std::env::current_exe()?).args(arguments).spawn().map(drop)
}

/// Makes a session for this process alone, which no terminal's signals reach, and leaves the cores
/// that the starter was bound to: a rank of a job has a few, the node serves them all.
///
/// # Errors
/// The system's.
pub(super) fn leave_session() -> io::Result<()> {
    nix::unistd::setsid()?;
    let mut cores = CpuSet::new();
    for core in 0..CpuSet::count() {
        cores.set(core)?;
    }
    // The kernel takes those that our cpuset has. Where it refuses, the node is slower and no
    // worse.
    let _ = sched_setaffinity(Pid::from_raw(0), &cores);
    Ok(())
}
