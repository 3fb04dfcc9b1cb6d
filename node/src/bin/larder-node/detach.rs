//! Detaches a node from the process that started it. The processes of a host share the node. So it
//! must not end with the one that came first, keep its files open, or stay as its child.
//!
//! `--detach` starts the program again with `--detached`, and ends. The new process has no parent
//! to wait for it, and keeps only standard input, output and error open. The starter may hold a
//! lock in standard input: that lock is held while the node lives.

use std::ffi::OsString;
use std::io;
use std::process::Command;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Starts this program again with the same arguments, detached.
///
/// # Errors
/// The system's error.
pub(super) fn start_again() -> io::Result<()> {
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
pub(super) fn leave_session() -> io::Result<()> {
    nix::unistd::setsid()?;
    let mut cores = CpuSet::new();
    for core in 0..CpuSet::count() {
        cores.set(core)?;
    }
    // The kernel reduces the set to the process's cpuset. If it refuses, the node is only slower.
    let _ = sched_setaffinity(Pid::from_raw(0), &cores);
    Ok(())
}
