//! The cases in which something is wrong with the driver, each in a process of its own.

use std::{
    thread,
    time::{Duration, Instant},
};

use larder_client::{Device, Error, ErrorKind, device_testing::Rig};

use crate::cases::{self, BYTES, content};

/// Runs one.
pub(crate) fn run(case: &str) {
    match case {
        "a_lost_device_ends_every_wait" => a_lost_device_ends_every_wait(&cases::device()),
        "refused_pages" => refused_pages(&cases::device()),
        "no_driver" | "not_a_library" => no_driver(),
        "a_stub" => a_stub(),
        "too_old" => too_old(),
        "no_such_device" => no_such_device(),
        "no_device" => no_device(),
        "a_full_device" => a_full_device(&cases::device()),
        "no_memory" => no_memory(&cases::device()),
        _ => panic!("no case {case}"),
    }
}

/// Ends the process with 7 if a wait goes on after the device was lost: the report then says why.
fn a_lost_device_ends_every_wait(device: &Device) {
    let rig = Rig::new(device, 1, 8).expect("a rig");
    let bytes = content(0, BYTES);
    let begun = now();
    let sent: Vec<_> = thread::scope(|scope| {
        let send = |_| rig.send(&bytes, None);
        let sending = scope.spawn(move || (0..50).map(send).collect());
        while !sending.is_finished() {
            if begun.elapsed() > Duration::from_secs(5) {
                std::process::exit(7);
            }
            thread::park_timeout(Duration::from_millis(10));
        }
        sending.join().expect("no panic")
    });
    let error = sent.iter().find_map(|sent| sent.as_ref().err()).expect("a lost device");
    assert_eq!(error.what(), "device 'cuda:0' is lost", "{error:?}");
    assert!(error.why().unwrap_or_default().contains("returned CUDA_ERROR_"), "{error:?}");
    let hint = error.advice_text().unwrap_or_default();
    assert!(hint.starts_with("start this process again"), "{error:?}");
    let begun = now();
    assert_eq!(rig.send(&[1], None).expect_err("lost").what(), error.what());
    assert_eq!(device.new_stream().expect_err("lost").what(), error.what());
    for slice in sent.iter().flatten() {
        assert_eq!(slice.read(&mut vec![0; BYTES]).expect_err("lost").what(), error.what());
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "each call ends at once");
}

fn refused_pages(device: &Device) {
    let rig = Rig::new(device, 2, 4).expect("a rig");
    let extent = cases::extent(&content(1, BYTES));
    let whole = cases::parts(&extent, std::slice::from_ref(&(0..BYTES)));
    let error = rig.send_parts(&extent, &whole).expect_err("refused");
    assert_eq!(error.what(), "device 'cuda:0' refused to register pages of the cache");
    assert!(rig.pump().refused().is_some_and(|refused| refused.what() == error.what()));
    cases::sent_bytes_arrive(device);
}

fn error_of(ordinal: u32) -> Error {
    let error = Device::cuda(ordinal).expect_err("no such device can be opened");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
    assert_eq!(error.what(), format!("device 'cuda:{ordinal}' can't be used"), "{error:?}");
    error
}

fn says(error: &Error, words: &[&str]) {
    let text = format!("{error} {}", error.advice_text().unwrap_or_default());
    words.iter().for_each(|words| assert!(text.contains(words), "'{words}' in {text}"));
}

fn no_driver() {
    let error = error_of(0);
    let text = "device 'cuda:0' can't be used: no NVIDIA driver (libcuda.so) was found";
    assert_eq!(error.to_string(), text);
    let hint = "install the driver, start the container with GPUs, or leave `device` out";
    assert_eq!(error.advice_text(), Some(hint));
    assert_eq!(Device::list().expect("a list"), []);
}

fn a_stub() {
    says(&error_of(0), &["standin.so (CUDA 12.8)", "stub for linking", "CUDA 12.0 or later"]);
}

fn too_old() {
    says(&error_of(0), &["standin.so is for CUDA 11.4", "CUDA 12.0 or later is needed"]);
}

fn no_such_device() {
    let error = error_of(7);
    says(&error, &["this process sees 2 GPUs, cuda:0 to cuda:1", "CUDA_VISIBLE_DEVICES"]);
    assert_eq!(Device::list().expect("two").len(), 2);
}

fn no_device() {
    says(&error_of(0), &["the driver finds 0 GPUs", "CUDA_VISIBLE_DEVICES"]);
}

fn no_memory(device: &Device) {
    let rig = Rig::new(device, 1, 1).expect("a rig");
    let kept = rig.send(&[1; 600_000], None).expect("it fits");
    let error = rig.send(&[1; 600_000], None).expect_err("it does not");
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    assert_eq!(error.what(), "device 'cuda:0' has no memory for a batch of 600000 bytes");
    says(&error, &["400000 of its 1000000 bytes are free", "lower batch_size or prefetch"]);
    drop(kept);
    rig.send(&[2; 600_000], None).expect("it fits again");
}

/// Three batches fill the device. The next loader comes while they are still copied.
fn a_full_device(device: &Device) {
    for _ in 0..5 {
        let rig = Rig::new(device, 3, 3).expect("a rig");
        let send = |batch| rig.send(&content(batch, 300_000), None).expect("it will fit");
        let slices: Vec<_> = (0..3).map(send).collect();
        drop((slices, rig));
    }
}

#[expect(clippy::disallowed_methods, reason = "a bound on real time")]
fn now() -> Instant {
    Instant::now()
}
