//! Peers that are no clients, or misbehave.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use larder_base::{ErrorKind, Ticket, limits};
use larder_wire::data::{ErrorReply, Gather, Kind, Ping};

use super::{Client, TestNode};
use crate::serve::acceptor::{Bounds, Connections, Listener};
use crate::serve::session::Session;
use crate::testing::{Folder, until};

fn node() -> (Folder, TestNode) {
    let folder = Folder::new(10, 1000, 1 << 20, false);
    let node = TestNode::new(&folder, 16 << 20);
    (folder, node)
}

fn nothing_is_left(node: &TestNode) {
    until("no connection is left", || node.servers.context.data.count() == 0);
    assert!(node.servers.context.data.wait_empty(super::PATIENCE));
}

#[test]
fn a_wrong_ticket_is_refused_with_the_reason() {
    let (_folder, node) = node();
    let mut client = Client::new(TcpStream::connect(node.data).unwrap());
    let refused = client.hello(Ticket::from_bytes([1; 16])).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unauthenticated);
    assert!(client.hung_up());
    nothing_is_left(&node);
}

#[test]
fn garbage_and_other_protocols_are_disconnected() {
    let (_folder, node) = node();
    let mut noise = vec![0; 4096];
    fastrand::Rng::with_seed(3).fill(&mut noise);
    for bytes in [b"GET / HTTP/1.1\r\nHost: here\r\n\r\n".as_slice(), &noise] {
        let mut client = Client::new(TcpStream::connect(node.data).unwrap());
        client.socket.write_all(bytes).unwrap();
        assert!(client.hung_up());
    }
    nothing_is_left(&node);
}

#[test]
fn a_request_before_hello_is_refused() {
    let (_folder, node) = node();
    let mut client = Client::new(TcpStream::connect(node.data).unwrap());
    let wanted = node.gather([1]);
    client.send(|out| wanted.encode(42, out));
    assert!(client.hung_up());
    nothing_is_left(&node);
}

#[test]
fn an_oversized_frame_is_refused_before_its_body_is_read() {
    let (_folder, node) = node();
    let mut client = node.remote();
    let mut frame = Vec::new();
    Ping.encode(1, &mut frame);
    frame[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
    client.socket.write_all(&frame).unwrap();
    let (header, body) = client.frame().unwrap();
    assert_eq!(header.kind(), Kind::Error);
    let error = ErrorReply::decode(&body).unwrap().error;
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(client.hung_up());
    nothing_is_left(&node);
}

#[test]
fn damaged_frame_ends_the_connection() {
    let (_folder, node) = node();
    let wanted = node.gather([1, 2, 3]);
    let mut frame = Vec::new();
    wanted.encode(1, &mut frame);
    for at in [9, 40, frame.len() - 1] {
        let mut client = node.remote();
        let mut damaged = frame.clone();
        damaged[at] ^= 1;
        client.socket.write_all(&damaged).unwrap();
        let (header, body) = client.frame().unwrap();
        assert_eq!(header.kind(), Kind::Error);
        assert_eq!(ErrorReply::decode(&body).unwrap().error.kind(), ErrorKind::DataLoss);
        assert!(client.hung_up());
    }
    nothing_is_left(&node);
}

#[test]
fn frames_of_the_unix_socket_are_refused_over_tcp() {
    let (_folder, node) = node();
    let mut client = node.remote();
    let attach = larder_wire::data::Attach { snapshot: node.dataset.snapshot(), shard: 0 };
    client.send(|out| attach.encode(1, out));
    assert_eq!(client.frame().unwrap().0.kind(), Kind::Error);
    assert!(client.hung_up());
    nothing_is_left(&node);
}

#[test]
fn unfinished_handshake_is_disconnected_and_others_are_served() {
    let (folder, node) = node();
    let mut slow = Client::new(TcpStream::connect(node.data).unwrap());
    slow.socket.write_all(b"LRD1").unwrap();
    let got = node.remote().gather(&node.gather([6])).unwrap();
    assert_eq!(got.rows, [folder.row(6)]);
    assert!(slow.hung_up());
    nothing_is_left(&node);
}

#[test]
fn client_that_disconnects_between_rows_leaves_no_state() {
    let folder = Folder::new(64, 1 << 20, 8 << 20, false);
    let node = TestNode::new(&folder, 256 << 20);
    for verify in [false, true] {
        let mut client = node.remote();
        let wanted = Gather { verify, ..node.gather(0..64) };
        client.send(|out| wanted.encode(42, out));
        client.frame().unwrap();
        drop(client);
        nothing_is_left(&node);
        until("the gather ends", || node.servers.context.activity.gathering.get() == 0);
    }
}

#[test]
fn connection_over_the_limit_gets_an_error() {
    let (_folder, node) = node();
    let bounds = Bounds { connections: 2, handshakes: 4 };
    let connections = Connections::new(bounds);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let context = Arc::clone(&node.servers.context);
    let stop = Arc::clone(&context.stop);
    let serve = move |peer: &_, slot| {
        if let Some(mut session) = Session::open(&context, peer, slot, |_| Ok(())) {
            while session.header().and_then(|header| session.answer(&header)).is_ok() {}
        }
    };
    connections.accept("test", Listener::Tcp(listener), &stop, Box::new(serve)).unwrap();
    let connect = || {
        let mut client = Client::new(TcpStream::connect(address).unwrap());
        client.hello(Ticket::from_bytes([0; 16])).map(|_| client)
    };
    let (first, second) = (connect().unwrap(), connect().unwrap());
    let refused = connect().err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
    drop((first, second));
    until("both places are free", || connections.count() == 0);
    connect().unwrap();
}

#[test]
fn silent_connections_hold_nobody_up() {
    let (_folder, node) = node();
    let connect = || TcpStream::connect(node.data).unwrap();
    let mut silent: Vec<_> = (0..2 * limits::HANDSHAKES_MAX).map(|_| connect()).collect();
    for half in silent.iter_mut().step_by(2) {
        half.write_all(b"LRD1").unwrap();
    }
    node.remote();
    // It did not wait until they were disconnected.
    for mut one in silent {
        one.set_nonblocking(true).unwrap();
        let still = one.read(&mut [0]).unwrap_err();
        assert_eq!(still.kind(), std::io::ErrorKind::WouldBlock);
    }
    nothing_is_left(&node);
}

/// The first bytes of an HTTP/2 client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[test]
fn unfinished_http_greeting_is_disconnected() {
    let (_folder, node) = node();
    let settings_without_body = [PREFACE, &[0, 0, 6, 4, 0, 0, 0, 0, 0]].concat();
    let beginnings = [b"".as_slice(), b"GET /healthz", &PREFACE[..10], PREFACE];
    thread::scope(|scope| {
        for beginning in beginnings.into_iter().chain([settings_without_body.as_slice()]) {
            let node = &node;
            scope.spawn(move || {
                let mut client = Client::new(TcpStream::connect(node.listen).unwrap());
                client.socket.write_all(beginning).unwrap();
                assert!(client.hung_up(), "after {beginning:?}");
            });
        }
        scope.spawn(|| {
            let mut client = Client::new(TcpStream::connect(node.listen).unwrap());
            for byte in PREFACE {
                if client.socket.write_all(&[*byte]).is_err() {
                    return;
                }
                thread::park_timeout(Duration::from_millis(400));
            }
            assert!(client.hung_up(), "byte by byte");
        });
    });
}
