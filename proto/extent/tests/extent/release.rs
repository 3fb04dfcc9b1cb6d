//! When memory is free, as the kernel sees it.

#![expect(unsafe_code, reason = "one prctl, to be told when a grandchild ends")]

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use larder_extent::socket::{recv_with_fds, send_with_fds};
use larder_extent::{Attached, ExtentLayout, Filling, PagePreference, PartSpec, Region, socket};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getpid, pause};

use crate::support::{ID, child, handed_out, no_other_forks, sealed};

#[test]
fn memory_is_free_only_after_the_last_mapping_is_dropped() {
    let _alone = no_other_forks();
    let sealed = sealed();
    let fd = handed_out(&sealed);
    let bytes = sealed.total_bytes();
    let retired = sealed.retire();
    assert_eq!(retired.bytes(), bytes);
    assert!(!retired.is_free(), "a descriptor is open");
    let attached = Attached::shared(fd, ID).unwrap();
    assert!(!retired.is_free(), "it is mapped");
    attached.verify().unwrap();
    drop(attached);
    assert!(retired.is_free());
    assert!(retired.is_free(), "and asking changes nothing");
}

#[test]
fn descriptor_in_socket_queue_keeps_memory() {
    let _alone = no_other_forks();
    let sealed = sealed();
    let (near, far) = UnixStream::pair().unwrap();
    send_with_fds(&near, b"x", &[handed_out(&sealed).as_fd()]).unwrap();
    let retired = sealed.retire();
    assert!(!retired.is_free());
    drop((near, far));
    assert!(retired.is_free());
}

/// Makes this process the parent of orphaned grandchildren, so that it can wait for their end.
fn adopt_orphans() {
    // SAFETY: an integer flag of this process.
    let set = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    assert_eq!(set, 0);
}

#[test]
fn forked_child_of_killed_client_keeps_memory() {
    let _alone = no_other_forks();
    adopt_orphans();
    let (mut node, client_end) = UnixStream::pair().unwrap();
    // The client starts before the extent exists, so that it has only the descriptor it is sent.
    let client = child(|| client_that_forks(&client_end));
    drop(client_end);

    let sealed = sealed();
    send_with_fds(&node, b"x", &[handed_out(&sealed).as_fd()]).unwrap();
    let mut forked = [0; 4];
    node.read_exact(&mut forked).unwrap();
    let forked = Pid::from_raw(i32::from_le_bytes(forked));
    let retired = sealed.retire();
    assert!(!retired.is_free());

    kill(client, Signal::SIGKILL).unwrap();
    waitpid(client, None).unwrap();
    assert!(!retired.is_free(), "the client is dead, its child has the map");
    kill(forked, Signal::SIGKILL).unwrap();
    waitpid(forked, None).unwrap();
    assert!(retired.is_free());
}

/// Attaches the extent it is sent and forks; the child sends its pid and stays.
fn client_that_forks(socket: &UnixStream) {
    let (_, mut fds) = recv_with_fds(socket, &mut [0]).unwrap();
    let attached = Attached::with_private_views(fds.pop().unwrap(), ID).unwrap();
    child(|| {
        attached.verify().unwrap();
        send_with_fds(socket, &getpid().as_raw().to_le_bytes(), &[]).unwrap();
        pause();
    });
    pause();
}

#[test]
fn pidfd_reports_dead_client_while_child_keeps_connection() {
    let _alone = no_other_forks();
    adopt_orphans();
    let (mut node, client_end) = UnixStream::pair().unwrap();
    let client = child(|| {
        let own = socket::own_pidfd().unwrap();
        send_with_fds(&client_end, b"x", &[own.as_fd()]).unwrap();
        child(|| {
            send_with_fds(&client_end, &getpid().as_raw().to_le_bytes(), &[]).unwrap();
            pause();
        });
        pause();
    });
    drop(client_end);
    let (_, fds) = recv_with_fds(&node, &mut [0]).unwrap();
    let mut forked = [0; 4];
    node.read_exact(&mut forked).unwrap();
    let forked = Pid::from_raw(i32::from_le_bytes(forked));
    assert!(!socket::has_exited(fds[0].as_fd()));
    kill(client, Signal::SIGKILL).unwrap();
    waitpid(client, None).unwrap();
    assert!(socket::has_exited(fds[0].as_fd()));
    node.set_nonblocking(true).unwrap();
    let still_open = node.read(&mut [0]).unwrap_err();
    assert_eq!(still_open.kind(), std::io::ErrorKind::WouldBlock);
    kill(forked, Signal::SIGKILL).unwrap();
    waitpid(forked, None).unwrap();
}

#[test]
fn seals_extent_while_child_forked_during_fill_lives() {
    let _alone = no_other_forks();
    let layout = ExtentLayout::new(&[Region::Blocks { bytes: 10_000 }]).unwrap();
    let parts = vec![PartSpec { region: 0, range: 0..10_000 }];
    let filling = Filling::create(ID, layout, parts, PagePreference::Auto).unwrap();
    let forked = child(|| {
        pause();
    });
    filling.take_part(0).unwrap().finish().unwrap();
    filling.seal().unwrap().verify().unwrap();
    kill(forked, Signal::SIGKILL).unwrap();
    waitpid(forked, None).unwrap();
}
