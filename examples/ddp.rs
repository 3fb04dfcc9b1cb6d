//! One rank of a job. Each global batch is divided among the ranks, and each sample comes on one.
//!
//! ```text
//! RANK=0 WORLD_SIZE=2 cargo run --example ddp -- s3://bucket/images
//! RANK=1 WORLD_SIZE=2 cargo run --example ddp -- s3://bucket/images
//! ```

use std::{env, error::Error};

use larder_client::Dataset;

fn main() -> Result<(), Box<dyn Error>> {
    let uri = env::args().nth(1).ok_or("usage: ddp URI")?;
    let cluster = env::var("LARDER_CLUSTER").ok();
    let dataset = Dataset::open(&uri, cluster.as_deref())?;

    let (rank, ranks) = (env::var("RANK")?.parse()?, env::var("WORLD_SIZE")?.parse()?);
    let mut loader = dataset.loader().batch_size(16).seed(0).rank(rank, ranks).build()?;
    for batch in loader.epoch(0)? {
        println!("samples {:?}", batch?.samples()); // here a rank trains
    }
    // A job compares the merged digests of its ranks with this one: then each sample came once.
    println!("digest {} of {}", loader.digest(), loader.expected_digest());
    Ok(())
}
