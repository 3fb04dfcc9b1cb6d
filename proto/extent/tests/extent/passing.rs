//! Descriptors over sockets, and the peer's credentials and life.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use larder_extent::socket::{FDS_MAX, recv_with_fds, send_with_fds};
use larder_extent::socket::{PeerProcess, has_exited};
use larder_extent::{Attached, ExtentError, ExtentId};
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use crate::support::{ID, handed_out, no_other_forks, sealed};

#[test]
fn extent_sent_over_a_socket_reads_the_same() {
    let sealed = sealed();
    let (near, far) = UnixStream::pair().unwrap();
    send_with_fds(&near, b"here", &[handed_out(&sealed).as_fd()]).unwrap();
    let mut bytes = [0; 16];
    let (count, mut fds) = recv_with_fds(&far, &mut bytes).unwrap();
    assert_eq!((&bytes[..count], fds.len()), (&b"here"[..], 1));
    let fd = fds.pop().unwrap();
    let flags = fcntl(&fd, FcntlArg::F_GETFD).unwrap();
    assert!(FdFlag::from_bits_retain(flags).contains(FdFlag::FD_CLOEXEC));
    let mode = fcntl(&fd, FcntlArg::F_GETFL).unwrap();
    assert_eq!(mode & OFlag::O_ACCMODE.bits(), OFlag::O_RDONLY.bits());
    let attached = Attached::shared(fd, ID).unwrap();
    attached.verify().unwrap();
    for region in 0..attached.layout().region_count() {
        assert_eq!(attached.region(region), sealed.region(region));
    }
    assert_eq!(attached.unit_crcs().collect::<Vec<_>>(), sealed.unit_crcs().collect::<Vec<_>>());
}

#[test]
fn read_only_file_has_rows_at_the_ranges_of_the_view() {
    let sealed = sealed();
    let range = sealed.row_file_range(0, 42);
    let mut bytes = vec![0; 1000];
    let file = File::from(handed_out(&sealed));
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, range.start).unwrap();
    assert_eq!((bytes.as_slice(), range.end - range.start), (sealed.row(0, 42), 1000));
}

#[test]
fn an_intact_extent_of_another_name_is_refused() {
    let sealed = sealed();
    let other = ExtentId::from_bytes([1; 16]);
    let refused = Attached::shared(handed_out(&sealed), other).unwrap_err();
    assert!(matches!(refused, ExtentError::WrongId { found: ID, .. }), "{refused}");
}

#[test]
fn long_messages_arrive_whole_with_their_descriptors_first() {
    let (near, far) = UnixStream::pair().unwrap();
    let long = vec![3; 4 << 20];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            send_with_fds(&near, &long, &[near.as_fd(), near.as_fd()]).unwrap();
            near.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut bytes = vec![0; 1000];
        let (count, fds) = recv_with_fds(&far, &mut bytes).unwrap();
        assert!(count > 0 && fds.len() == 2);
        let mut total = count;
        loop {
            let (count, fds) = recv_with_fds(&far, &mut bytes).unwrap();
            assert!(fds.is_empty());
            if count == 0 {
                break;
            }
            total += count;
        }
        assert_eq!(total, long.len());
    });
}

#[test]
fn refuses_too_many_descriptors_at_both_ends_without_leaks() {
    // A child of another test would hold the descriptors counted here.
    let _alone = no_other_forks();
    let (near, far) = UnixStream::pair().unwrap();
    let (marker, mut marked) = UnixStream::pair().unwrap();
    let many = vec![marker.as_fd(); FDS_MAX + 1];
    assert!(send_with_fds(&near, b"x", &many).is_err());
    assert!(send_with_fds(&near, b"", &many[..1]).is_err());

    let raw: Vec<_> = many.iter().map(AsRawFd::as_raw_fd).collect();
    let control = [ControlMessage::ScmRights(&raw)];
    let bytes = [IoSlice::new(b"x")];
    sendmsg::<()>(near.as_raw_fd(), &bytes, &control, MsgFlags::empty(), None).unwrap();
    let refused = recv_with_fds(&far, &mut [0; 8]).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidData, "{refused}");
    // The marked socket ends when the last descriptor of its other end is closed.
    drop(marker);
    assert_eq!(marked.read(&mut [0]).unwrap(), 0);
}

#[test]
fn peer_of_a_socket_is_identified_and_alive() {
    let (near, mut far) = UnixStream::pair().unwrap();
    far.write_all(b"x").unwrap();
    let peer = PeerProcess::of(&near).unwrap();
    assert_eq!(peer.pid(), nix::unistd::getpid().as_raw());
    assert_eq!(peer.uid(), nix::unistd::geteuid().as_raw());
    assert_eq!(peer.gid(), nix::unistd::getegid().as_raw());
    let alive = |pidfd: BorrowedFd<'_>| !has_exited(pidfd);
    assert!(peer.pidfd().is_none_or(alive));
}
