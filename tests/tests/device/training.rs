//! A training loop onto a device, which checks every byte there.

use larder_client::{Batch, Dataset, Device, DeviceWay, OnDevice};
use larder_tests::words;

/// Variables by which the parent tells a training loop what to do.
pub(crate) const URI: &str = "LARDER_DEVICE_URI";
pub(crate) const CLUSTER: &str = "LARDER_DEVICE_CLUSTER";
pub(crate) const WAY: &str = "LARDER_DEVICE_WAY";
pub(crate) const BATCHES: &str = "LARDER_DEVICE_BATCHES";

pub(crate) const BATCH_SIZE: u32 = 16;

/// Checks every byte of a batch, as the device has it. Returns its samples.
pub(crate) fn checked(batch: Batch<OnDevice>) -> Vec<u64> {
    let samples = batch.samples().to_vec();
    for tensor in batch.into_tensors() {
        assert_eq!((&*tensor.name, tensor.shape[0]), (words::TENSOR, samples.len() as u64));
        let mut bytes = vec![0; tensor.memory.len()];
        tensor.memory.read(&mut bytes).expect("bytes that come back");
        let rows = bytes.chunks_exact(bytes.len() / samples.len());
        for (&sample, row) in samples.iter().zip(rows) {
            assert!(words::is_right(sample, row), "sample {sample} is not as it was written");
        }
    }
    samples
}

/// Goes through epochs until it had so many batches, and says each.
pub(crate) fn train(device: &Device) {
    let said = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is set"));
    let dataset = Dataset::open(&said(URI), Some(&said(CLUSTER))).expect("a dataset");
    let wanted: usize = said(BATCHES).parse().expect("a number");
    let way: DeviceWay = said(WAY).parse().expect("a way");
    let mut loader = dataset.loader().batch_size(BATCH_SIZE).build().expect("a loader");
    let pump = loader.pump(device, way).expect("a pump");
    let mut batches = 0;
    for epoch in 0.. {
        println!(
            "epoch={epoch} copied_bytes_before={}",
            loader.stats().sources.copies.copied_bytes
        );
        for batch in loader.epoch_on(epoch, &pump).expect("an epoch") {
            checked(batch.expect("a batch"));
            batches += 1;
            println!("batch {batches}");
            if batches == wanted {
                let copies = loader.stats().sources.copies;
                return println!(
                    "device_bytes={} staged_bytes={} copied_bytes={}",
                    copies.device_bytes, copies.staged_bytes, copies.copied_bytes
                );
            }
        }
    }
}
