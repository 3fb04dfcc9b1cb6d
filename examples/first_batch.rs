//! Opens a dataset and prints the tensors of its first batch.
//!
//! ```text
//! cargo run --example first_batch -- s3://bucket/images
//! ```

use std::{env, error::Error};

use larder_client::Dataset;

fn main() -> Result<(), Box<dyn Error>> {
    let uri = env::args().nth(1).ok_or("usage: first_batch URI")?;
    // The addresses of nodes. Without them, rows come from the bucket itself.
    let cluster = env::var("LARDER_CLUSTER").ok();
    let dataset = Dataset::open(&uri, cluster.as_deref())?;
    println!("{} samples", dataset.samples());

    let mut loader = dataset.loader().batch_size(32).seed(0).build()?;
    for batch in loader.epoch(0)?.take(1) {
        let batch = batch?;
        println!("samples {:?}", batch.samples());
        for tensor in batch.tensors() {
            println!("{tensor:?}: {} bytes", tensor.bytes().len());
        }
    }
    Ok(())
}
