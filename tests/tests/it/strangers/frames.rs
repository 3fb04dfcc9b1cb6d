//! Frames of HTTP/2 that follow no rule.

use std::collections::VecDeque;
use std::io;

use fastrand::Rng;
use larder_tests::repeats;
use larder_tests::stranger::{Http2, frame, head};

use super::memory::{CALL, Small};

/// Connections that stay open while others come.
const HELD: usize = 64;

/// The kinds of frames that the standard knows.
const KINDS: u8 = 10;

/// Sends a frame that fits the connection so far.
fn send_lawful(http: &mut Http2, rng: &mut Rng, next: &mut u32) -> io::Result<()> {
    let old = 1 + 2 * rng.u32(..1 + *next / 2);
    match rng.u8(..6) {
        0 => http.send(frame::DATA, 0, old, &vec![0; rng.usize(..4_096)]),
        1 => http.send(frame::RST_STREAM, 0, old, &[0, 0, 0, 8]),
        2 => http.send(frame::SETTINGS, 0, 0, &[0, 4, 0, rng.u8(..), 0, 0]),
        3 => http.send(frame::WINDOW_UPDATE, 0, old, &[0, 0, rng.u8(..), 1]),
        _ => {
            *next += 2;
            http.begin(*next - 2, CALL)
        }
    }
}

/// Sends a frame of which any part may be wrong.
fn send_wild(http: &mut Http2, rng: &mut Rng) -> io::Result<()> {
    let mut body = match rng.u8(..4) {
        0 => head(CALL),
        1 => vec![rng.u8(..); rng.usize(..20_000)],
        _ => (0..rng.usize(..40)).map(|_| rng.u8(..)).collect(),
    };
    if !body.is_empty() {
        let at = rng.usize(..body.len());
        body[at] = rng.u8(..);
    }
    let rarely = |rng: &mut Rng| rng.u8(..8) == 0;
    let kind = if rarely(rng) { rng.u8(..) } else { rng.u8(..KINDS) };
    let stream = if rarely(rng) { rng.u32(..) } else { rng.u32(..32) };
    if rarely(rng) {
        return http.send_raw(&body);
    }
    http.send(kind, rng.u8(..), stream, &body)
}

/// Sends frames until the node refuses the connection. Some connections are lawful for long.
fn converse(listen: &str, seed: u64) -> io::Result<Http2> {
    let mut rng = Rng::with_seed(seed);
    let wildness = rng.u8(..64);
    let mut http = Http2::connect(listen)?;
    let mut next = 1;
    for _ in 0..rng.usize(..64) {
        if rng.u8(..) < wildness {
            send_wild(&mut http, &mut rng)?;
        } else {
            send_lawful(&mut http, &mut rng, &mut next)?;
        }
    }
    Ok(http)
}

#[test]
fn random_frames_neither_end_nor_fill_a_node() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let small = Small::start(folder.path());
    let mut held = VecDeque::new();
    for seed in 0..repeats(1_000, 20_000) {
        held.extend(converse(&small.listen(), seed as u64).ok());
        if held.len() > HELD {
            held.pop_front();
        }
        if seed % 100 == 0 {
            small.check_held();
        }
    }
    assert!(!held.is_empty(), "no connection was served");
    small.check();
}
