//! Failures: injected errors, lost devices, the stub, old drivers and forked children.

use super::*;
use crate::api::copy::cuMemcpyDtoHAsync_v2;
use crate::api::device::{cuDeviceGet, cuDeviceGetCount};
use crate::api::error::{cuDriverGetVersion, cuGetErrorName};
use crate::api::event::{cuEventElapsedTime_v2, cuEventQuery};
use crate::api::memory::{cuMemFree_v2, cuMemGetInfo_v2};
use crate::mistakes::{AFTER_FORK, NEWER_SYMBOL, POLLED_AFTER_LOSS};

#[test]
fn stays_lost_after_a_sticky_error() {
    let ended =
        run(&[("STANDIN_FAIL", "cuEventQuery:700@2"), ("STANDIN_DELAY_US", "500000")], || {
            begin();
            let (stream, block) = (stream(), device_memory(4096));
            let event = made(|to| cuEventCreate(to, 2));
            let back = page_locked(4096, 9);
            send(block, 4096, stream);
            ok(cuMemcpyDtoHAsync_v2(back, block, 4096, stream));
            ok(cuEventRecord(event, stream));
            assert_eq!(cuEventQuery(event), 600);
            assert_eq!(cuEventQuery(event), 700);
            pause(60);
            assert_eq!(peek(back), 9, "queued copies do not run");
            assert_eq!(cuMemcpyDtoHAsync_v2(0, block, 1, stream), 700);
            assert_eq!(cuStreamSynchronize(stream), 700);
            assert_eq!(cuMemFree_v2(block), 700);
            ok(cuDeviceGet(Out::to(&mut 0), 0));
            ok(cuDriverGetVersion(Out::to(&mut 0)));
            (0..200).for_each(|_| assert_eq!(cuEventQuery(event), 700));
        });
    assert!(ended.kinds().is_empty(), "{}", ended.report);
    assert_eq!(ended.report["left"]["device_allocations"], 0);
}

#[test]
fn reports_a_program_that_polls_a_lost_device() {
    let ended = run(&[("STANDIN_FAIL", "cuEventQuery:700")], || {
        begin();
        let event = made(|to| cuEventCreate(to, 2));
        (0..500).for_each(|_| assert_eq!(cuEventQuery(event), 700));
    });
    assert_eq!(ended.kinds(), [POLLED_AFTER_LOSS]);
}

#[test]
fn fails_one_call_by_an_error_that_does_not_stay() {
    let ended = run(&[("STANDIN_FAIL", "cuMemAlloc:2@1")], || {
        begin();
        assert_eq!(cuMemAlloc_v2(Out::to(&mut 0), 64), 2);
        device_memory(64);
    });
    assert_eq!(ended.report["calls"]["cuMemAlloc_v2"], 2);
}

#[test]
fn runs_out_of_memory_at_the_limit() {
    run(&[("STANDIN_MEMORY", "8192")], || {
        begin();
        let block = device_memory(8192);
        assert_eq!(cuMemAlloc_v2(Out::to(&mut 0), 1), 2);
        let (mut free, mut total) = (1, 1);
        ok(cuMemGetInfo_v2(Out::to(&mut free), Out::to(&mut total)));
        assert_eq!((free, total), (0, 8192));
        ok(cuMemFree_v2(block));
        device_memory(1);
    });
}

#[test]
fn finds_no_device_when_there_is_none() {
    run(&[("STANDIN_DEVICES", "0")], || {
        assert_eq!(cuInit(0), 100);
        assert_eq!(cuDeviceGetCount(Out::to(&mut 0)), 3);
    });
}

#[test]
fn refuses_an_ordinal_beyond_the_last_device() {
    run(&[], || {
        ok(cuInit(0));
        assert_eq!(cuDeviceGet(Out::to(&mut 0), 7), 101);
    });
}

#[test]
fn answers_only_the_version_when_it_plays_the_stub() {
    run(&[("STANDIN_STUB", "1"), ("STANDIN_VERSION", "12040")], || {
        let mut version = 0;
        ok(cuDriverGetVersion(Out::to(&mut version)));
        assert_eq!(version, 12040);
        assert_eq!(cuInit(0), 34);
        assert_eq!(cuGetErrorName(34, Out::to(&mut std::ptr::null())), 34);
    });
}

#[test]
fn reports_a_symbol_that_the_driver_lacks() {
    let ended = run(&[("STANDIN_VERSION", "12040")], || {
        begin();
        let event = made(|to| cuEventCreate(to, 0));
        assert_eq!(cuEventElapsedTime_v2(Out::to(&mut 0.0), event, event), 500);
    });
    assert_eq!(ended.kinds(), [NEWER_SYMBOL]);
}

#[test]
fn refuses_a_forked_child_and_keeps_the_report() {
    let folder = std::env::temp_dir().join(format!("standin-fork-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let pattern = folder.join("%p.json");
    let pattern = pattern.to_str().expect("a path in UTF-8");
    run_with_report(pattern, || {
        begin();
        // The parent holds the state's mutex, as another thread of it might.
        let held = crate::state::lock();
        // SAFETY: the child calls the stand-in, which takes no lock of the parent there, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = cuMemAlloc_v2(Out::to(&mut 0), 64) == 3;
            std::process::exit(i32::from(!refused));
        }
        drop(held);
        let mut status = -1;
        // SAFETY: the child exists, and `status` is valid for a write.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    });
    let mut kinds: Vec<String> = std::fs::read_dir(&folder)
        .expect("a folder of reports")
        .map(|entry| std::fs::read(entry.expect("a file").path()).expect("a report"))
        .map(|bytes| serde_json::from_slice::<Value>(&bytes).expect("a report in JSON"))
        .map(|report| report["mistakes"][0]["kind"].as_str().unwrap_or("none").to_owned())
        .collect();
    kinds.sort();
    std::fs::remove_dir_all(&folder).expect("a folder to remove");
    assert_eq!(kinds, [AFTER_FORK, "none"]);
}

/// Runs a program with its report in files of this pattern.
fn run_with_report(pattern: &str, program: impl FnOnce()) {
    assert_eq!(run(&[("STANDIN_REPORT", pattern)], program).signal, None);
}
