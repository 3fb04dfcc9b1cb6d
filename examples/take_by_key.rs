//! Reads the rows of samples that a program names by their keys.
//!
//! ```text
//! larder dataset index s3://bucket/images --key label
//! cargo run --example take_by_key -- s3://bucket/images 55 7
//! ```

use std::{env, error::Error};

use larder_client::Dataset;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = env::args().skip(1);
    let uri = words.next().ok_or("usage: take_by_key URI KEY...")?;
    let words: Vec<String> = words.collect();
    let cluster = env::var("LARDER_CLUSTER").ok();
    let dataset = Dataset::open(&uri, cluster.as_deref())?;

    let keys = dataset.read_keys(words.iter().map(String::as_str))?;
    let found = dataset.find(keys.iter().copied())?;
    if let Some(missing) = dataset.missing(keys, &found) {
        return Err(missing.into());
    }
    let samples: Vec<i64> =
        found.into_iter().flatten().map(i64::try_from).collect::<Result<_, _>>()?;
    println!("samples {samples:?}");
    // One tensor for each name, its rows in the order of the keys.
    for tensor in dataset.take(&samples, None)?.read()? {
        println!("{}: {} {:?}", tensor.name, tensor.dtype, tensor.shape);
    }
    Ok(())
}
