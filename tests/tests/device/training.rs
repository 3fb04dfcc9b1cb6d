//! A training loop onto a device, which checks every byte there.

use larder_client::{Batch, Dataset, Device, DeviceWay, Loader, OnDevice};
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

/// In place of a number of batches: until an epoch copied nothing on the host.
pub(crate) const UNTIL_DIRECT: &str = "until direct";

/// Shards are mapped and registered long before so many epochs.
const EPOCHS_MAX: u64 = 20_000;

/// Reads epochs until it had this many batches, and prints each.
pub(crate) fn train(device: &Device) {
    let said = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is set"));
    let dataset = Dataset::open(&said(URI), Some(&said(CLUSTER))).expect("a dataset");
    let wanted: Option<usize> = match said(BATCHES).as_str() {
        UNTIL_DIRECT => None,
        number => Some(number.parse().expect("a number")),
    };
    let way: DeviceWay = said(WAY).parse().expect("a way");
    let mut loader = dataset.loader().batch_size(BATCH_SIZE).build().expect("a loader");
    let pump = loader.pump(device, way).expect("a pump");
    let mut batches = 0;
    for epoch in 0..EPOCHS_MAX {
        let before = loader.stats().sources.copies.copied_bytes;
        for batch in loader.epoch_on(epoch, &pump).expect("an epoch") {
            checked(batch.expect("a batch"));
            batches += 1;
            println!("batch {batches}");
            if Some(batches) == wanted {
                return say(&loader);
            }
        }
        if wanted.is_none() && loader.stats().sources.copies.copied_bytes == before {
            return say(&loader);
        }
    }
    panic!("{EPOCHS_MAX} epochs were not enough");
}

/// Prints how often bytes were copied.
fn say(loader: &Loader) {
    let copies = loader.stats().sources.copies;
    let (device, staged) = (copies.device_bytes, copies.staged_bytes);
    println!("device_bytes={device} staged_bytes={staged} copied_bytes={}", copies.copied_bytes);
}
