//! For tests of what a forked child of a client does to leases: feature `testing`, never on in a product.

#![expect(unsafe_code, reason = "fork, which has no safe form")]

use std::io;

/// Forks a child that does nothing, with every descriptor and mapping of this process, until a signal or `seconds` end it.
/// Returns its process id; the caller reaps it or dies.
///
/// # Errors
/// When the kernel gives no process.
pub fn fork_idle_child(seconds: u32) -> io::Result<i32> {
    // SAFETY: the child calls nothing but `alarm` and `pause`, both async-signal-safe, so it touches no lock or
    // allocator that another thread may have held at the fork.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: plain system calls without pointers.
            unsafe { libc::alarm(seconds) };
            loop {
                // SAFETY: as above.
                unsafe { libc::pause() };
            }
        }
        child => Ok(child),
    }
}
