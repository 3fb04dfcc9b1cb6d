//! The cases that need no node, each in a process of its own.

use std::{
    collections::BTreeSet,
    env,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};

use larder_client::{
    CallerBlock, ConsumerStream, Dataset, Device, DeviceSlice, DeviceWay,
    device_testing::{OwnMemory, Rig, has_gpu_open, read_on, write_on},
};
use larder_extent::{Attached, ExtentId, ExtentLayout, Filling, PagePreference, PartSpec, Region};
use larder_tests::{until, words};

use crate::{child::DRIVER, failures, training};

/// Bytes of most batches here.
pub(crate) const BYTES: usize = 1 << 20;

/// Runs one, and waits until the device has nothing left to do for it.
pub(crate) fn run(case: &str) {
    let alone = |case: fn(&Device)| case(&device());
    match case {
        "sent_bytes_arrive" => alone(sent_bytes_arrive),
        "a_buffer_is_used_again_after_its_copy" => alone(a_buffer_is_used_again_after_its_copy),
        "a_block_is_used_again_after_its_reader" => alone(a_block_is_used_again_after_its_reader),
        "a_block_is_used_again_after_its_writer" => alone(a_block_is_used_again_after_its_writer),
        "page_locked_memory_is_bounded" => alone(page_locked_memory_is_bounded),
        "threads_send_side_by_side" => alone(threads_send_side_by_side),
        "a_slice_dropped_under_its_copy_is_parked" => alone(dropped_under_its_copy),
        "a_pump_dropped_under_copies_is_parked" => alone(pump_dropped_under_copies),
        "parts_of_an_extent_arrive" => alone(parts_of_an_extent_arrive),
        "an_extent_dropped_under_a_copy_is_held" => alone(extent_dropped_under_a_copy),
        "a_given_block_is_held_until_it_is_written" => alone(given_block_is_held),
        "a_given_block_goes_back_once_its_streams_wait" => alone(given_block_goes_back),
        "an_epoch_arrives_from_the_origin" => alone(an_epoch_arrives_from_the_origin),
        "two_devices" => two_devices(),
        "training" => alone(training::train),
        _ => failures::run(case),
    }
    if case == "a_lost_device_ends_every_wait" {
        return;
    }
    until("the device has nothing left to do", || !has_gpu_open());
}

/// The first device of the driver that the parent named.
pub(crate) fn device() -> Device {
    match env::var(DRIVER).as_deref() {
        Ok("host") => Device::host(),
        _ => Device::cuda(0).expect("a device"),
    }
}

/// Bytes that differ from batch to batch and from place to place.
pub(crate) fn content(batch: usize, bytes: usize) -> Vec<u8> {
    let word = |index: usize| (batch * 31 + index).wrapping_mul(2_654_435_761) >> 7;
    (0..bytes).map(|index| word(index).to_le_bytes()[0]).collect()
}

/// Checks that a slice has the bytes of a batch.
pub(crate) fn check(slice: &DeviceSlice, batch: usize) {
    let mut back = vec![0; slice.len()];
    slice.read(&mut back).expect("bytes that come back");
    assert!(back == content(batch, slice.len()), "batch {batch}");
}

pub(crate) fn sent_bytes_arrive(device: &Device) {
    let rig = Rig::new(device, 2, 4).expect("a rig");
    for bytes in [1, 4096, 100_001, BYTES] {
        check(&rig.send(&content(bytes, bytes), None).expect("sent"), bytes);
    }
}

fn a_buffer_is_used_again_after_its_copy(device: &Device) {
    let rig = Rig::new(device, 1, 16).expect("a rig");
    let send = |batch| rig.send(&content(batch, BYTES), None).expect("sent");
    let slices: Vec<_> = (0..16).map(send).collect();
    slices.iter().enumerate().for_each(|(batch, slice)| check(slice, batch));
}

fn a_block_is_used_again_after_its_reader(device: &Device) {
    let rig = Rig::new(device, 2, 1).expect("a rig");
    let stream = device.new_stream().expect("a stream");
    for batch in 0..20 {
        let slice = rig.send(&content(batch, BYTES), None).expect("sent");
        slice.begin_use(stream.consumer()).expect("a stream that waits");
        let back = read_on(&stream, &slice).expect("bytes");
        assert!(back == content(batch, BYTES), "batch {batch}");
        slice.end_use(stream.consumer());
    }
}

/// The program's work on a block is still queued when the block is dropped.
fn a_block_is_used_again_after_its_writer(device: &Device) {
    let [rig, program] = [(), ()].map(|()| Rig::new(device, 2, 0).expect("a rig"));
    let stream = device.new_stream().expect("a stream");
    for batch in 0..10 {
        let slice = rig.send(&content(batch, BYTES), None).expect("sent");
        slice.begin_use(stream.consumer()).expect("a stream that waits");
        write_on(&stream, &slice, &content(99, BYTES), &program).expect("queued");
        slice.end_use(stream.consumer());
    }
    check(&rig.send(&content(7, BYTES), None).expect("sent"), 7);
}

/// Eight threads, with the pump of a loader of two: the report says how much was page-locked at
/// once.
fn page_locked_memory_is_bounded(device: &Device) {
    let rig = Rig::new(device, 2, 8).expect("a rig");
    send_from_threads(&rig, 8, 5);
}

fn threads_send_side_by_side(device: &Device) {
    let rig = Rig::new(device, 4, 8).expect("a rig");
    send_from_threads(&rig, 4, 25);
}

fn send_from_threads(rig: &Rig, threads: usize, batches: usize) {
    thread::scope(|scope| {
        for number in 0..threads {
            scope.spawn(move || {
                for batch in (0..batches).map(|batch| number * batches + batch) {
                    check(&rig.send(&content(batch, 1 << 16), None).expect("sent"), batch);
                }
            });
        }
    });
}

fn dropped_under_its_copy(device: &Device) {
    let rig = Rig::new(device, 2, 2).expect("a rig");
    for batch in 0..20 {
        drop(rig.send(&content(batch, BYTES), None).expect("sent"));
    }
    check(&rig.send(&content(99, BYTES), None).expect("sent"), 99);
}

fn pump_dropped_under_copies(device: &Device) {
    let rig = Rig::new(device, 4, 4).expect("a rig");
    let send = |batch| rig.send(&content(batch, BYTES), None).expect("sent");
    let slices: Vec<_> = (0..4).map(send).collect();
    drop(rig);
    check(&slices[0], 0);
}

/// An extent with one region of these bytes, as a client has it.
pub(crate) fn extent(content: &[u8]) -> Arc<Attached> {
    let bytes = content.len() as u64;
    let layout = ExtentLayout::new(&[Region::Blocks { bytes }]).expect("a layout");
    let id = ExtentId::from_bytes([7; 16]);
    let parts = vec![PartSpec { region: 0, range: 0..bytes }];
    let filling = Filling::create(id, layout, parts, PagePreference::Small).expect("memory");
    let mut part = filling.take_part(0).expect("the only part");
    part.write(content).expect("bytes");
    part.finish().expect("a whole part");
    let sealed = filling.seal().expect("a sealed extent");
    Arc::new(
        Attached::with_private_views(sealed.open_for_peer().expect("a file"), id)
            .expect("an extent"),
    )
}

/// Parts of the region of an extent, in the extent's bytes.
pub(crate) fn parts(extent: &Attached, parts: &[Range<usize>]) -> Vec<Range<usize>> {
    let begin = usize::try_from(extent.file_offset(0)).expect("an offset");
    parts.iter().map(|part| begin + part.start..begin + part.end).collect()
}

fn parts_of_an_extent_arrive(device: &Device) {
    let rig = Rig::new(device, 2, 4).expect("a rig");
    let bytes = content(1, BYTES);
    let extent = extent(&bytes);
    let whole = 0..BYTES;
    let scattered = [5..70_000, 700_000..700_001, 0..40_960, 300_000..BYTES];
    for wanted in [std::slice::from_ref(&whole), &scattered] {
        let slice = rig.send_parts(&extent, &parts(&extent, wanted)).expect("sent");
        let mut back = vec![0; slice.len()];
        slice.read(&mut back).expect("bytes that come back");
        let expected: Vec<u8> =
            wanted.iter().flat_map(|part| bytes[part.clone()].to_vec()).collect();
        assert!(back == expected, "{wanted:?}");
    }
}

fn extent_dropped_under_a_copy(device: &Device) {
    let rig = Rig::new(device, 2, 4).expect("a rig");
    for round in 0..3 {
        // So large that memory which is mapped later does not come to lie in place of its
        // beginning.
        let extent = extent(&content(round, 32 * BYTES));
        let begin = parts(&extent, std::slice::from_ref(&(0..BYTES)));
        let slice = rig.send_parts(&extent, &begin).expect("sent");
        drop(extent);
        check(&slice, round);
    }
}

/// Device memory of this program, and whether it was released.
struct Given {
    memory: OwnMemory,
    stream: ConsumerStream,
    dropped: Arc<AtomicBool>,
}

impl CallerBlock for Given {
    fn address(&self) -> u64 {
        self.memory.address()
    }

    fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    fn stream(&self) -> ConsumerStream {
        self.stream
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.dropped.store(true, SeqCst);
    }
}

fn given(device: &Device, stream: ConsumerStream) -> Box<Given> {
    let memory = OwnMemory::new(device, BYTES).expect("device memory");
    Box::new(Given { memory, stream, dropped: Arc::default() })
}

fn given_block_is_held(device: &Device) {
    let rig = Rig::new(device, 2, 2).expect("a rig");
    let block = given(device, ConsumerStream::DEFAULT);
    let dropped = Arc::clone(&block.dropped);
    let ready = rig.pump().given(block).expect("a block");
    drop(rig.send(&content(1, BYTES), Some(ready)).expect("sent"));
    until("the block is let go of", || dropped.load(SeqCst));
}

fn given_block_goes_back(device: &Device) {
    let rig = Rig::new(device, 2, 2).expect("a rig");
    let streams = [device.new_stream().expect("one"), device.new_stream().expect("another")];
    let block = given(device, streams[0].consumer());
    let (address, dropped) = (block.address(), Arc::clone(&block.dropped));
    let ready = rig.pump().given(block).expect("a block");
    let slice = rig.send(&content(1, BYTES), Some(ready)).expect("sent");
    let part = slice.part(0, BYTES);
    let back = slice.take_given(streams[1].consumer()).expect("streams that wait");
    assert!(back.is_none(), "another slice has it");
    // Either stream may use the block now, as its owner's allocator does.
    for stream in &streams {
        part.begin_use(stream.consumer()).expect("a stream that waits");
        assert!(read_on(stream, &part).expect("bytes") == content(1, BYTES));
    }
    let back = part.take_given(streams[1].consumer()).expect("streams that wait");
    assert_eq!(back.as_ref().map(|block| block.address()), Some(address));
    assert!(!dropped.load(SeqCst), "it is the caller's");
    drop(back);
    assert!(dropped.load(SeqCst), "nothing else holds it");
}

/// No node: each row comes from the origin, into page-locked memory.
fn an_epoch_arrives_from_the_origin(device: &Device) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    words::write(folder.path(), 2, 50, 300);
    let uri = format!("file://{}", folder.path().display());
    let dataset = Dataset::open(&uri, None).expect("a dataset");
    let mut loader = dataset.loader().batch_size(training::BATCH_SIZE).build().expect("a loader");
    let pump = loader.pump(device, DeviceWay::Auto).expect("a pump");
    let mut seen = BTreeSet::new();
    for batch in loader.epoch_on(0, &pump).expect("an epoch") {
        seen.extend(training::checked(batch.expect("a batch")));
    }
    assert_eq!(seen.len(), 96, "six batches");
    assert_eq!(loader.digest(), loader.expected_digest());
}

fn two_devices() {
    let devices = [0, 1].map(|ordinal| Device::cuda(ordinal).expect("a device"));
    let extent = extent(&content(1, BYTES));
    let whole = parts(&extent, std::slice::from_ref(&(0..BYTES)));
    thread::scope(|scope| {
        for device in &devices {
            let (extent, whole) = (&extent, &whole);
            scope.spawn(move || {
                let rig = Rig::new(device, 2, 4).expect("a rig");
                for batch in 0..10 {
                    let slice = rig.send(&content(batch, BYTES), None).expect("sent");
                    assert_eq!(slice.ordinal(), device.ordinal());
                    check(&slice, batch);
                    check(&rig.send_parts(extent, whole).expect("sent"), 1);
                }
            });
        }
    });
}
