//! Whether this process can open files at all. A socket is one too: who has no descriptor left
//! finds every node and the origin away, and would wait for them in vain.

use std::{fs::File, io};

use larder_base::limits;
use nix::errno::Errno;

use crate::{Error, ErrorKind};

/// Whether as many descriptors are left as opening a dataset takes, or the first call of a forked
/// child.
///
/// # Errors
/// `ResourceExhausted` if not.
pub(crate) fn check() -> Result<(), Error> {
    if can_open(limits::FILES_LEFT_MIN) { Ok(()) } else { Err(none_left()) }
}

/// Whether any descriptor is left.
pub(crate) fn are_left() -> bool {
    can_open(1)
}

/// What to say if none is.
pub(crate) fn none_left() -> Error {
    Error::new(ErrorKind::ResourceExhausted, "this process has no file descriptors left")
        .hint("raise its limit (ulimit -n 65536), or close files that it does not need")
}

/// Whether so many files can be opened, which are closed again.
fn can_open(count: usize) -> bool {
    let opened: io::Result<Vec<File>> = (0..count).map(|_| File::open("/dev/null")).collect();
    !opened.is_err_and(|error| error.raw_os_error() == Some(Errno::EMFILE as i32))
}
