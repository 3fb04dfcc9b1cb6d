//! Batches of random rows over TCP, two outstanding: Larder on two threads, the baseline on one
//! pipelined connection.

use std::path::Path;

use larder_client::{Dataset, RowRef};

use crate::Error;
use crate::bare::BareClient;
use crate::children::{Bare, Node, refs};
use crate::matrix::Matrix;
use crate::measure::{Round, alternate, begin};
use crate::report::Report;

/// Payload of a round.
const ROUND_BYTES: usize = 1 << 30;

pub(crate) fn measure(
    report: &mut Report,
    node: &Node,
    data: &Path,
    shape: usize,
    matrix: &Matrix,
) -> Result<(), Error> {
    let dataset = node.open(data, false, matrix)?;
    let bare = Bare::start(data, shape)?;
    let mut client = BareClient::connect(bare.address())?;
    let shape = matrix.shape();
    let batches = shape.batches((ROUND_BYTES / shape.batch_bytes()).max(2));
    let wanted: Vec<Vec<RowRef>> = batches.iter().map(|rows| refs(&dataset, rows)).collect();
    let mut buffers = [vec![0; shape.batch_bytes()], vec![0; shape.batch_bytes()]];
    let mut plain = vec![0; shape.batch_bytes()];
    let results = alternate(
        report.rounds(),
        &mut [&mut || bare_round(&mut client, &batches, &mut plain, bare.pid()), &mut || {
            gather_round(&dataset, &wanted, &mut buffers, node.pid())
        }],
    )?;
    let title = format!("remote gather, {}", shape.label());
    report.add(&title, "GiB/s", &["bare TCP rows, no checksum", "larder, CRC checked"], &results);
    Ok(())
}

fn bare_round(
    client: &mut BareClient,
    batches: &[Vec<u32>],
    out: &mut [u8],
    server: u32,
) -> Result<Round, Error> {
    let begun = begin(Some(server));
    client.ask(&batches[0])?;
    for next in batches[1..].iter().map(Some).chain([None]) {
        if let Some(rows) = next {
            client.ask(rows)?;
        }
        client.receive(out)?;
    }
    Ok(begun.end(batches.len() * out.len()))
}

fn gather_round(
    dataset: &Dataset,
    wanted: &[Vec<RowRef>],
    buffers: &mut [Vec<u8>; 2],
    server: u32,
) -> Result<Round, Error> {
    let bytes = wanted.len() * buffers[0].len();
    let begun = begin(Some(server));
    let (first, second) = wanted.split_at(wanted.len() / 2);
    let gather = |wanted: &[Vec<RowRef>], out: &mut Vec<u8>| -> Result<(), Error> {
        for rows in wanted {
            dataset.fetcher().gather(rows, &[0], &mut [out])?;
        }
        Ok(())
    };
    let [a, b] = buffers;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| gather(second, b));
        gather(first, a)?;
        other.join().map_err(|_| "a gathering thread panicked")?
    })?;
    Ok(begun.end(bytes))
}
