//! Batches on a device. Here the device is memory of this process.

use super::*;
use crate::{Device, DeviceTensor, DeviceWay, OnDevice};

/// The bytes of each tensor of a batch, as the device has them.
fn bytes_of(batch: Batch<OnDevice>) -> Vec<Vec<u8>> {
    let read = |tensor: DeviceTensor| {
        let mut bytes = vec![0; tensor.memory.len()];
        tensor.memory.read(&mut bytes).unwrap();
        bytes
    };
    batch.into_tensors().into_iter().map(read).collect()
}

/// Compares the rest of an epoch on the host and on a device, batch by batch.
fn compare(loaders: [Loader; 2], epoch: u64) -> usize {
    let [mut on_host, mut on_device] = loaders;
    let pump = on_device.pump(&Device::host(), DeviceWay::Auto).unwrap();
    let mut batches = 0;
    let sent = on_device.epoch_on(epoch, &pump).unwrap();
    for (expected, sent) in on_host.epoch(epoch).unwrap().zip(sent) {
        let (expected, sent) = (expected.unwrap(), sent.unwrap());
        assert_eq!(expected.samples(), sent.samples());
        assert_eq!((expected.padding(), expected.state()), (sent.padding(), sent.state()));
        let expected: Vec<&[u8]> = expected.tensors().map(|tensor| tensor.bytes()).collect();
        assert_eq!(bytes_of(sent), expected);
        batches += 1;
    }
    assert_eq!(on_host.digest(), on_device.digest());
    assert_eq!(on_host.state(), on_device.state());
    let (host, device) = (on_host.stats(), on_device.stats());
    assert_eq!((host.batches, host.sources.bytes), (device.batches, device.sources.bytes));
    let copies = device.sources.copies;
    assert_eq!(
        (copies.device_bytes, copies.staged_bytes),
        (host.sources.bytes, host.sources.bytes)
    );
    batches
}

#[test]
fn epoch_on_a_device_equals_the_one_on_the_host() {
    let build = || builder().batch_size(20).last(Last::Pad).build().unwrap();
    assert_eq!(compare([build(), build()], 3), 11);
}

#[test]
fn mixture_on_a_device_equals_the_one_on_the_host() {
    let build = || mixture::builder().batch_size(24).build().unwrap();
    assert!(compare([build(), build()], 1) > 5);
}

#[test]
fn selected_tensors_keep_the_requested_order() {
    let build = || builder().batch_size(64).tensors(["label", "image"]).build().unwrap();
    assert_eq!(compare([build(), build()], 0), 3);
}

#[test]
fn resumed_epoch_continues_on_a_device() {
    let mut loader = builder().batch_size(16).build().unwrap();
    let state = loader.epoch(0).unwrap().nth(4).unwrap().unwrap().state();
    let build = || builder().batch_size(16).resume(state).build().unwrap();
    assert_eq!(compare([build(), build()], 0), 7);
}

#[test]
fn batches_of_a_dropped_epoch_keep_their_bytes() {
    let mut loader = builder().batch_size(20).prefetch(4).build().unwrap();
    let pump = loader.pump(&Device::host(), DeviceWay::Staged).unwrap();
    let kept: Vec<_> = loader.epoch_on(0, &pump).unwrap().take(3).map(Result::unwrap).collect();
    drop((loader, pump));
    for batch in kept {
        let samples = batch.samples().to_vec();
        let image: Vec<u8> = samples.iter().flat_map(|&sample| row(sample, 0, 15)).collect();
        assert_eq!(bytes_of(batch)[0], image);
    }
}
