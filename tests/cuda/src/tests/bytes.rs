//! Bytes: copies move them, and host code that touches the wrong ones dies.

use super::*;
use crate::api::copy::{
    Attributes, Rectangle, Side, cuMemcpy2DAsync_v2, cuMemcpyBatchAsync, cuMemcpyDtoH_v2,
};
use crate::api::event::{cuEventElapsedTime, cuEventSynchronize};
use crate::api::memory::{cuMemFree_v2, cuMemHostRegister_v2};
use crate::mistakes::WRITE_BEFORE_WRITE;
use crate::report::{larder_standin_mistakes, larder_standin_report};

#[test]
fn kills_host_code_that_reads_a_device_address() {
    let ended = run(&[], || {
        begin();
        peek(device_memory(4096));
    });
    assert_eq!(ended.signal, Some(libc::SIGSEGV));
}

/// Rewrites page-locked memory under a copy of its first bytes.
fn rewrite(wait: impl FnOnce(u64)) {
    begin();
    let (stream, source, target) = (stream(), page_locked(10_000, 1), device_memory(10_000));
    ok(cuMemcpyHtoDAsync_v2(target, source, 100, stream));
    wait(stream);
    poke(source + 9_999, 2);
}

#[test]
fn kills_host_code_that_writes_page_locked_memory_under_a_copy() {
    let ended = run(&[("STANDIN_DELAY_US", "1000000")], || rewrite(|_| ()));
    assert_eq!(ended.signal, Some(libc::SIGSEGV));
}

#[test]
fn accepts_writes_to_page_locked_memory_after_the_copy() {
    let ended = run(&[("STANDIN_DELAY_US", "1000")], || rewrite(finish));
    assert!(ended.kinds().is_empty());
}

fn batch(rows: &[(u64, u64, usize)], access_order: u32, stream: u64) -> (Code, usize) {
    let to: Vec<u64> = rows.iter().map(|row| row.0).collect();
    let from: Vec<u64> = rows.iter().map(|row| row.1).collect();
    let sizes: Vec<usize> = rows.iter().map(|row| row.2).collect();
    let attributes = [Attributes { access_order, hints: [0; 4], flags: 0 }];
    let mut failed = 0;
    let code = cuMemcpyBatchAsync(
        In::from(&to),
        In::from(&from),
        In::from(&sizes),
        rows.len(),
        In::from(&attributes),
        In::from(&[0]),
        1,
        Out::to(&mut failed),
        stream,
    );
    (code, failed)
}

#[test]
fn copies_the_rows_of_a_batch() {
    let ended = run(&[("STANDIN_DELAY_US", "100000")], || {
        begin();
        let (stream, target) = (stream(), device_memory(256));
        let source = mapped(4096, libc::PROT_READ | libc::PROT_WRITE);
        (0..4096).for_each(|at| poke(source + at, u8::try_from(at % 251).expect("a byte")));
        ok(cuMemHostRegister_v2(source, 4096, 0));
        let row = |row: u64| (target + row * 16, source + row * 100, 16);
        let rows: Vec<_> = (0..16).map(row).collect();
        assert_eq!(batch(&rows, 1, stream), (0, usize::MAX));
        poke(source, 77);
        finish(stream);
        let mut back = [0_u8; 256];
        ok(cuMemcpyDtoH_v2(back.as_mut_ptr() as u64, target, 256));
        assert_eq!(back[0], 77, "registered memory is read when the copy runs");
        let expected = |at: u64| u8::try_from((at / 16 * 100 + at % 16) % 251).expect("a byte");
        (1..256).for_each(|at: u64| assert_eq!(peek(back.as_ptr() as u64 + at), expected(at)));
        let beyond = (target, source + 4090, 16);
        assert_eq!(batch(&[rows[0], beyond], 1, stream), (1, 1));
        assert_eq!(batch(&rows, 1, 0).0, 1, "the legacy default stream takes no batch");
    });
    assert_eq!(ended.kinds(), [crate::mistakes::PARTLY_REGISTERED]);
    let counts = &ended.report["counts"];
    assert_eq!((&counts["batched_copies"], &counts["direct_bytes"]), (&16.into(), &256.into()));
    assert_eq!((&counts["copies"], &counts["copied_bytes"]), (&17.into(), &512.into()));
}

#[test]
fn can_copy_the_bytes_of_a_batch_at_the_call() {
    let ended = run(&[("STANDIN_DELAY_US", "2000")], || {
        begin();
        let (stream, source, target) = (stream(), page_locked(4096, 3), device_memory(4096));
        assert_eq!(batch(&[(target, source, 4096)], 2, stream).0, 0);
        poke(source, 4);
        finish(stream);
        let mut back = 0_u8;
        ok(cuMemcpyDtoH_v2(&raw mut back as u64, target, 1));
        assert_eq!(back, 3);
    });
    assert!(ended.kinds().is_empty());
}

#[test]
fn reports_rows_of_a_batch_that_overlap() {
    let mistakes = mistakes_of(|| {
        begin();
        let (stream, source, target) = (stream(), page_locked(64, 3), device_memory(64));
        assert_eq!(batch(&[(target, source, 32), (target + 31, source, 32)], 1, stream).0, 0);
        finish(stream);
    });
    assert_eq!(mistakes, [WRITE_BEFORE_WRITE]);
}

#[test]
fn copies_a_rectangle() {
    let ended = run(&[], || {
        begin();
        let (stream, source, target) = (stream(), page_locked(64, 0), device_memory(12));
        (0..64).for_each(|at| poke(source + at, u8::try_from(at).expect("a byte")));
        let from = Side { x_bytes: 2, y: 1, kind: 1, host: source, pitch: 16, ..Side::default() };
        let to = Side { kind: 2, device: target, pitch: 4, ..Side::default() };
        let rectangle = Rectangle { from, to, width_bytes: 4, height: 3 };
        ok(cuMemcpy2DAsync_v2(In::from(&[rectangle]), stream));
        finish(stream);
        let mut back = [0_u8; 12];
        ok(cuMemcpyDtoH_v2(back.as_mut_ptr() as u64, target, 12));
        assert_eq!(back, [18, 19, 20, 21, 34, 35, 36, 37, 50, 51, 52, 53]);
    });
    assert!(ended.kinds().is_empty());
    assert_eq!(ended.report["counts"]["pinned_bytes"], 12);
}

#[test]
fn reports_calls_counts_and_leftovers() {
    let ended = run(&[("STANDIN_DELAY_US", "3000")], || {
        begin();
        let (stream, block) = (stream(), device_memory(4096));
        let (start, end) = (made(|to| cuEventCreate(to, 0)), made(|to| cuEventCreate(to, 0)));
        ok(cuEventRecord(start, stream));
        send(block, 4096, stream);
        ok(cuEventRecord(end, stream));
        ok(cuEventSynchronize(end));
        let mut milliseconds = 0.0;
        ok(cuEventElapsedTime(Out::to(&mut milliseconds), start, end));
        assert!(milliseconds >= 2.9, "{milliseconds}");
    });
    assert!(ended.kinds().is_empty());
    let report = &ended.report;
    assert_eq!(report["calls"]["cuEventCreate"], 2);
    assert_eq!(report["mistakes_total"], 0);
    assert_eq!(report["counts"]["device_bytes_max"], 4096);
    assert_eq!(report["counts"]["pinned_bytes_max"], 4096);
    let left = serde_json::json!({"streams": 1, "events": 2, "registrations": 0,
        "host_allocations": 1, "device_allocations": 1, "contexts": 1});
    assert_eq!(report["left"], left);
}

#[test]
fn writes_a_report_on_request() {
    let ended = run(&[], || {
        begin();
        let file = std::env::temp_dir().join(format!("standin-asked-{}", std::process::id()));
        let path = std::ffi::CString::new(file.as_os_str().as_encoded_bytes()).expect("a path");
        assert_eq!(cuMemFree_v2(device_memory(64)) + cuMemAlloc_v2(Out::to(&mut 0), 0), 1);
        assert_eq!(larder_standin_report(path.as_ptr()), 0);
        let report: Value = serde_json::from_slice(&std::fs::read(&file).expect("a report"))
            .expect("a report in JSON");
        std::fs::remove_file(&file).expect("a file to remove");
        assert_eq!(report["calls"]["cuMemAlloc_v2"], 2);
        assert_eq!(larder_standin_mistakes(), 0);
        assert_eq!(larder_standin_report(c"/nowhere/report".as_ptr()), 1);
    });
    assert!(ended.kinds().is_empty());
}
