//! Warm epochs of a loader, end to end, against only the copies that every batch needs.

use std::hint::black_box;
use std::path::Path;

use larder_client::Loader;
use larder_client::sampler::Shuffle;

use super::local::copy_round;
use crate::Error;
use crate::children::Node;
use crate::matrix::Matrix;
use crate::measure::{Round, alternate, begin};
use crate::report::Report;

/// Epochs of a round.
const EPOCHS: u64 = 2;

pub(crate) fn measure(
    report: &mut Report,
    node: &Node,
    data: &Path,
    matrix: &Matrix,
) -> Result<(), Error> {
    let shape = matrix.shape();
    let loader = |local| -> Result<Loader, Error> {
        let dataset = node.open(data, local, matrix)?;
        let samples = u32::try_from(shape.batch)?;
        Ok(dataset.loader().batch_size(samples).shuffle(Shuffle::Global).build()?)
    };
    let (mut local, mut remote) = (loader(true)?, loader(false)?);
    let epochs = usize::try_from(EPOCHS)?;
    let batches = shape.batches(epochs * shape.rows() as usize / shape.batch);
    let mut plain = vec![0; shape.batch_bytes()];
    let results = alternate(
        report.rounds(),
        &mut [
            &mut || Ok(copy_round(matrix, &batches, &mut plain)),
            &mut || epochs_of(&mut local, node),
            &mut || epochs_of(&mut remote, node),
        ],
    )?;
    let names = ["memcpy from mapped .npy, 1 thread", "larder local", "larder remote"];
    let title = format!("loader, {EPOCHS} warm epochs, {}", shape.label());
    report.add(&title, "GiB/s", &names, &results);
    report.add_samples(&title, &names, &results, shape.row_bytes);
    Ok(())
}

fn epochs_of(loader: &mut Loader, node: &Node) -> Result<Round, Error> {
    let begun = begin(Some(node.pid()));
    let mut bytes = 0;
    for epoch in 0..EPOCHS {
        for batch in loader.epoch(epoch)? {
            let batch = batch?;
            bytes += batch.tensors().map(|tensor| black_box(tensor.bytes()).len()).sum::<usize>();
        }
    }
    Ok(begun.end(bytes))
}
