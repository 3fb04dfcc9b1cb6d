//! Stops after two batches, and saves its position in a file. Run it again: it continues there.
//!
//! ```text
//! cargo run --example resume -- s3://bucket/images position
//! ```

use std::{env, error::Error, fs};

use larder_client::Dataset;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [uri, file] = &words[..] else { return Err("usage: resume URI FILE".into()) };
    let cluster = env::var("LARDER_CLUSTER").ok();
    let dataset = Dataset::open(uri, cluster.as_deref())?;

    let mut loader = dataset.loader().batch_size(32).seed(0).build()?;
    if let Ok(saved) = fs::read_to_string(file) {
        loader.resume(saved.parse()?)?;
    }
    let epoch = loader.state().pass_id().epoch();
    for batch in loader.epoch(epoch)?.take(2) {
        println!("samples {:?}", batch?.samples()); // here a job trains
    }
    // Save it beside the model. It fits any batch size and any number of ranks.
    fs::write(file, loader.state().to_string())?;
    Ok(())
}
