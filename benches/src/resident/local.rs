//! Rows of mapped extents against the same rows of a mapped `.npy`, in the same order, on one
//! thread.

use std::hint::black_box;
use std::path::Path;

use larder_client::{Dataset, RowRef};

use crate::Error;
use crate::children::{Node, refs};
use crate::matrix::Matrix;
use crate::measure::{Round, alternate, begin};
use crate::report::Report;

/// Payload of a round.
const ROUND_BYTES: usize = 2 << 30;
/// Rows from this size on are also read without a copy.
const VIEW_ROW_BYTES_MIN: usize = 64 << 10;

pub(crate) fn measure(
    report: &mut Report,
    node: &Node,
    data: &Path,
    matrix: &Matrix,
) -> Result<(), Error> {
    let dataset = node.open(data, true, matrix)?;
    let shape = matrix.shape();
    let batches = shape.batches(ROUND_BYTES / shape.batch_bytes());
    let wanted: Vec<Vec<RowRef>> = batches.iter().map(|rows| refs(&dataset, rows)).collect();
    if shape.row_bytes >= VIEW_ROW_BYTES_MIN {
        let results = alternate(
            report.rounds(),
            &mut [&mut || read_mapped(matrix, &batches), &mut || {
                read_views(&dataset, &wanted, matrix)
            }],
        )?;
        let names = ["mapped .npy", "larder views, CRC checked"];
        let title = format!("local, read every byte of random rows of {} B", shape.row_bytes);
        report.add(&title, "GiB/s", &names, &results);
    }
    let (mut plain, mut ours) = (vec![0; shape.batch_bytes()], vec![0; shape.batch_bytes()]);
    let results = alternate(
        report.rounds(),
        &mut [&mut || Ok(copy_round(matrix, &batches, &mut plain)), &mut || {
            gather_round(&dataset, &wanted, &mut ours)
        }],
    )?;
    let names = ["memcpy from mapped .npy", "larder, CRC checked"];
    report.add(&format!("local gather, {}", shape.label()), "GiB/s", &names, &results);
    Ok(())
}

/// Copies batches into one buffer.
pub(crate) fn copy_round(matrix: &Matrix, batches: &[Vec<u32>], out: &mut [u8]) -> Round {
    let begun = begin(None);
    for rows in batches {
        matrix.gather(rows, out);
        black_box(&mut *out);
    }
    begun.end(batches.len() * out.len())
}

fn gather_round(dataset: &Dataset, wanted: &[Vec<RowRef>], out: &mut [u8]) -> Result<Round, Error> {
    let begun = begin(None);
    for rows in wanted {
        dataset.fetcher().gather(rows, &[0], &mut [&mut *out])?;
    }
    Ok(begun.end(wanted.len() * out.len()))
}

fn read_mapped(matrix: &Matrix, batches: &[Vec<u32>]) -> Result<Round, Error> {
    let begun = begin(None);
    let rows = batches.iter().flatten();
    black_box(rows.fold(0, |total: u64, &row| total.wrapping_add(sum(matrix.row(row)))));
    Ok(begun.end(batches.len() * matrix.shape().batch_bytes()))
}

fn read_views(dataset: &Dataset, wanted: &[Vec<RowRef>], matrix: &Matrix) -> Result<Round, Error> {
    let begun = begin(None);
    let mut total = 0_u64;
    for &row in wanted.iter().flatten() {
        let view = dataset.fetcher().view(row, 0).ok_or("a resident row has no view")?;
        total = total.wrapping_add(sum(&view));
    }
    black_box(total);
    Ok(begun.end(wanted.len() * matrix.shape().batch_bytes()))
}

fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    words.fold(0, u64::wrapping_add)
}
