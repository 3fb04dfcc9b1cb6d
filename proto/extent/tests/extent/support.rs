//! Test extents, forked children, and the kernel's figures about a mapping.

#![expect(unsafe_code, reason = "fork, and ending a child without running the parent's exit code")]

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_extent::{ExtentId, ExtentLayout, Filling, PagePreference, PartSpec, Region, Sealed};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

pub(crate) const ID: ExtentId = ExtentId([0x5a; 16]);

/// Held by every test that forks, and by every test that asks whether memory is free. A child holds
/// a copy of every descriptor and mapping its parent has at that moment.
static FORKING: Mutex<()> = Mutex::new(());

pub(crate) fn no_other_forks() -> MutexGuard<'static, ()> {
    FORKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Seals an extent of 100 rows of 1000 bytes, 500 rows of 8, and 3 MiB of blocks.
pub(crate) fn sealed() -> Sealed {
    let regions = [
        Region::Rows { rows: 100, row_bytes: 1000, stride_bytes: 1000 },
        Region::Rows { rows: 500, row_bytes: 8, stride_bytes: 8 },
        Region::Blocks { bytes: 3 << 20 },
    ];
    let layout = ExtentLayout::new(&regions).unwrap();
    let parts: Vec<_> = (0..regions.len())
        .map(|region| PartSpec { region, range: 0..layout.region_bytes(region) })
        .collect();
    let filling = Filling::create(ID, layout, parts, PagePreference::Auto).unwrap();
    for index in 0..regions.len() {
        let mut part = filling.take_part(index).unwrap();
        let byte = |at: usize| (at * 7 + at / 251 + index).to_le_bytes()[0];
        let range = part.spec().range.clone();
        let bytes: Vec<u8> = (0..).zip(range).map(|(at, _)| byte(at)).collect();
        part.write(&bytes).unwrap();
        part.finish().unwrap();
    }
    filling.seal().unwrap()
}

/// Opens the descriptor that the sealed extent hands to a reader.
pub(crate) fn handed_out(sealed: &Sealed) -> OwnedFd {
    sealed.open_for_peer().unwrap()
}

/// Starts a child that runs `body` and ends. Call under [`no_other_forks`].
pub(crate) fn child(body: impl FnOnce()) -> Pid {
    // SAFETY: the child goes on in this one thread, with glibc's allocator made ready for it. It
    // ends without touching locks that other threads of the parent may hold.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(if outcome.is_ok() { 0 } else { 101 }) }
        }
    }
}

/// Runs `body` in a child and fails if it panicked there.
pub(crate) fn in_child(body: impl FnOnce()) {
    let child = child(body);
    assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
}

/// Sums one field of `/proc/self/smaps` over a mapping, in KiB.
pub(crate) fn smaps_kib(addresses: &Range<usize>, field: &str) -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut within = false;
    let mut sum = 0;
    for line in smaps.lines() {
        let head = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        if let Some((start, end)) = head {
            let number = |text| usize::from_str_radix(text, 16).unwrap();
            within = number(start) < addresses.end && number(end) > addresses.start;
        } else if within && let Some(rest) = line.strip_prefix(field) {
            sum += rest.trim_matches([':', ' ', 'k', 'B']).parse::<u64>().unwrap();
        }
    }
    sum
}
