//! Batches in the memory of a GPU, copied ahead of their use.
//!
//! ```text
//! cargo run --example gpu --features cuda -- s3://bucket/images
//! ```

use std::{env, error::Error};

use larder_client::{ConsumerStream, Dataset, Device, DeviceWay};

fn main() -> Result<(), Box<dyn Error>> {
    let uri = env::args().nth(1).ok_or("usage: gpu URI")?;
    let cluster = env::var("LARDER_CLUSTER").ok();
    let dataset = Dataset::open(&uri, cluster.as_deref())?;

    let mut loader = dataset.loader().batch_size(32).seed(0).build()?;
    let pump = loader.pump(&Device::cuda(0)?, DeviceWay::Auto)?;
    for batch in loader.epoch_on(0, &pump)? {
        let batch = batch?;
        println!("samples {:?}", batch.samples());
        let memory = batch.memory().clone();
        // The stream waits for the copy. This thread does not.
        memory.begin_use(ConsumerStream::DEFAULT)?;
        for tensor in batch.into_tensors() {
            // Here a job queues its kernels on the stream.
            println!("{}: {:?} at {:#x}", tensor.name, tensor.shape, tensor.memory.address());
        }
        // Larder writes to the memory again after the stream has done its kernels.
        memory.end_use(ConsumerStream::DEFAULT);
    }
    Ok(())
}
