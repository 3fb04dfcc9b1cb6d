//! System calls that no crate wraps in the way this one needs.

#![expect(unsafe_code, reason = "raw system calls; each block names what makes it sound")]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{
    Once,
    atomic::{AtomicU32, Ordering},
};

/// `fcntl`: sets the signal to send in place of SIGIO. Missing in libc for this target.
const F_SETSIG: libc::c_int = 10;

/// Returns whether `file`, a read-only description, is the only way to the file. Then no other
/// description exists, and so no mapping through one, in any process.
///
/// The kernel grants a write lease exactly then; this returns the lease at once. If another process
/// opens the file within that instant, the kernel signals us. The default signal (SIGIO) would end
/// the process, so it is set to one that is ignored unless a handler is installed.
pub(crate) fn is_sole_description(file: BorrowedFd<'_>) -> bool {
    let fd = file.as_raw_fd();
    // SAFETY: three fcntl calls with integer arguments on a descriptor that is open for as long as
    // the borrow; none touches memory.
    unsafe {
        if libc::fcntl(fd, F_SETSIG, libc::SIGURG) == -1 {
            return false;
        }
        let sole = libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK) == 0;
        if sole {
            libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK);
        }
        sole
    }
}

/// Opens a handle on this process that a peer can wait on.
pub(crate) fn own_pidfd() -> io::Result<OwnedFd> {
    // SAFETY: two system calls with integer arguments; the descriptor returned is new and ours.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        if fd == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// See [`crate::keep_descriptors_from_programs`].
pub(crate) fn keep_descriptors_from_programs() -> io::Result<()> {
    let first = libc::STDERR_FILENO.unsigned_abs() + 1;
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: a system call with integer arguments; it closes nothing in this process.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// One range of `PAGEMAP_SCAN`'s answer (`struct page_region`, 24 bytes).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// The argument of `PAGEMAP_SCAN` (`struct pm_scan_arg`, 96 bytes).
#[repr(C)]
#[derive(Default)]
struct PageScan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

const _: () = assert!(size_of::<PageRegion>() == 24);
const _: () = assert!(size_of::<PageScan>() == 96);

const PAGE_IS_HUGE: u64 = 1 << 6;

mod ioctl {
    use super::PageScan;
    nix::ioctl_readwrite!(pagemap_scan, b'f', 16, PageScan);
}

/// Counts the bytes at `addresses` that huge pages map. Fails before Linux 6.7.
pub(crate) fn huge_bytes(addresses: &Range<usize>) -> io::Result<u64> {
    let pagemap = std::fs::File::open("/proc/self/pagemap")?;
    let mut found = [PageRegion::default(); 64];
    let mut huge = 0;
    let mut start = u64::try_from(addresses.start).map_err(io::Error::other)?;
    let end = u64::try_from(addresses.end).map_err(io::Error::other)?;
    while start < end {
        let mut scan = PageScan {
            size: 96,
            start,
            end,
            vec: u64::try_from(found.as_mut_ptr().addr()).map_err(io::Error::other)?,
            vec_len: 64,
            category_mask: PAGE_IS_HUGE,
            return_mask: PAGE_IS_HUGE,
            ..PageScan::default()
        };
        // SAFETY: the argument has the size and shape the call expects, and `vec` points to
        // `vec_len` regions that live and are not otherwise used during the call. The scan only
        // reads page tables.
        let count = unsafe { ioctl::pagemap_scan(pagemap.as_raw_fd(), &raw mut scan)? };
        let count = usize::try_from(count).map_err(io::Error::other)?;
        huge += found.iter().take(count).map(|region| region.end - region.start).sum::<u64>();
        if scan.walk_end <= start {
            break;
        }
        start = scan.walk_end;
    }
    Ok(huge)
}

/// The most descriptors received with one message.
pub(crate) const FDS_MAX: u32 = 16;

/// Bytes of control data that hold [`FDS_MAX`] descriptors.
// SAFETY: pure arithmetic.
const CONTROL_BYTES: usize = unsafe { libc::CMSG_SPACE(FDS_MAX * 4) as usize };

/// Room for control data, aligned for its header.
#[repr(C)]
union Control {
    header: libc::cmsghdr,
    bytes: [MaybeUninit<u8>; CONTROL_BYTES],
}

/// Receives bytes and up to [`FDS_MAX`] descriptors, close-on-exec. More are an error. It takes
/// ownership of the descriptors before it looks at anything else, so that none can leak.
///
/// Written out because nix gives no way to the descriptors of a truncated message.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = Control { bytes: [MaybeUninit::uninit(); CONTROL_BYTES] };
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: a message header is integers and pointers, for which zero is a value; the pointers
    // set below outlive the call.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = CONTROL_BYTES;
    // SAFETY: the header describes buffers that are ours, live, and as long as it says.
    let received =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let fds = received_fds(&message);
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a message came with more than {FDS_MAX} descriptors, or none could be opened"),
        ));
    }
    Ok((received, fds))
}

/// Returns the descriptors of a message that `recvmsg` has just filled in.
fn received_fds(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the kernel has written well-formed control messages within `msg_controllen`, which
    // the CMSG macros walk; descriptors in SCM_RIGHTS are new and ours, each seen once.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(message);
        while let Some(control) = next.as_ref() {
            if control.cmsg_level == libc::SOL_SOCKET && control.cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(next).cast::<libc::c_int>();
                let count = (control.cmsg_len - libc::CMSG_LEN(0) as usize) / 4;
                for index in 0..count {
                    fds.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            next = libc::CMSG_NXTHDR(message, next);
        }
    }
    fds
}

/// Number of forks between the process that first asked and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Runs in every child, on its only thread, before `fork` returns there.
extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// See [`crate::fork_count`].
pub(crate) fn fork_count() -> u32 {
    static REGISTERED: Once = Once::new();
    // SAFETY: the handler is a function, so it lives as long as the program. It does only what is
    // allowed between fork and return: one atomic addition. If registering fails for want of
    // memory, nothing was changed.
    REGISTERED.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(count_fork));
    });
    FORKS.load(Ordering::Relaxed)
}
