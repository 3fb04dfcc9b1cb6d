//! Calls of a friend while a stranger holds the control port's connections. Their baseline are the
//! same calls without a stranger, in turns.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use larder_tests::stranger::{ADDRESS, connect};

use crate::Error;
use crate::children::Node;
use crate::measure::seconds;
use crate::report::Report;

/// Connections of the stranger: more than a node serves at once.
const HELD: usize = 1_030;

/// Calls of each kind in a round.
const HEALTH_CALLS: usize = 50;
const LISTINGS: usize = 5;

/// A request whose body never arrives.
const HALF_SENT: &[u8] = b"POST /larder.v1.Node/Describe HTTP/1.1\r\nhost: 127.0.0.1\r\n\
    content-type: application/grpc\r\ncontent-length: 100\r\n\r\nx";

pub(crate) fn measure(report: &mut Report) -> Result<(), Error> {
    let folder = tempfile::tempdir()?;
    let node = Node::start(&format!("file://{}", folder.path().display()), &[])?;
    let mut health = [Vec::new(), Vec::new()];
    let mut listings = [Vec::new(), Vec::new()];
    for _ in 0..report.rounds() {
        for (beside, count) in [0, HELD].into_iter().enumerate() {
            let held: Vec<_> = (0..count).filter_map(|_| hold(&node)).collect();
            for _ in 0..HEALTH_CALLS {
                let (took, healthy) = seconds(|| is_healthy(&node));
                healthy?;
                health[beside].push(took);
            }
            for _ in 0..LISTINGS {
                let (took, listed) = seconds(|| list(&node));
                listed?;
                listings[beside].push(took);
            }
            drop(held);
        }
    }
    let names = ["no stranger", "1,030 half-sent requests"];
    report.add_times("/healthz beside a stranger", &names, &health);
    report.add_times("larder node ls beside a stranger", &names, &listings);
    Ok(())
}

/// Opens a connection of the stranger. The node may refuse it.
fn hold(node: &Node) -> Option<TcpStream> {
    let mut stream = connect(ADDRESS, listen(node)).ok()?;
    stream.write_all(HALF_SENT).ok()?;
    Some(stream)
}

fn listen(node: &Node) -> &str {
    node.address().trim_start_matches("http://")
}

fn is_healthy(node: &Node) -> Result<(), Error> {
    let mut stream = TcpStream::connect(listen(node))?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.starts_with("HTTP/1.1 200") {
        true => Ok(()),
        false => Err(format!("the node answers {answer:?}").into()),
    }
}

fn list(node: &Node) -> Result<(), Error> {
    let program = std::env::current_exe()?.with_file_name("larder");
    let mut listing = Command::new(program);
    let listed = listing.args(["node", "ls", "--cluster", node.address()]).output()?;
    match listed.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&listed.stderr).into_owned().into()),
    }
}
