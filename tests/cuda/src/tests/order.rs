//! Order: mistakes of programs with streams that do not wait, and none of those with waits.

use super::*;
use crate::api::context::cuCtxSynchronize;
use crate::api::copy::{
    cuMemcpyDtoDAsync_v2, cuMemcpyDtoHAsync_v2, cuMemcpyHtoD_v2, cuMemsetD8_v2, cuMemsetD8Async,
};
use crate::api::event::cuEventSynchronize;
use crate::api::memory::cuMemFree_v2;
use crate::api::stream::cuLaunchHostFunc;
use crate::mistakes::{READ_BEFORE_WRITE, WRITE_BEFORE_READ, WRITE_BEFORE_WRITE};

/// One stream writes a block, and another copies it elsewhere.
fn write_then_read(order: impl FnOnce(u64, u64)) {
    begin();
    let (writer, reader) = (stream(), stream());
    let (block, copy) = (device_memory(4096), device_memory(4096));
    send(block, 4096, writer);
    order(writer, reader);
    ok(cuMemcpyDtoDAsync_v2(copy, block, 4096, reader));
    ok(cuCtxSynchronize());
}

#[test]
fn reports_a_read_that_does_not_wait_for_its_write() {
    assert_eq!(mistakes_of(|| write_then_read(|_, _| ())), [READ_BEFORE_WRITE]);
}

#[test]
fn accepts_a_read_whose_stream_waits_for_the_write() {
    let mistakes = mistakes_of(|| write_then_read(|writer, reader| wait_for(reader, writer)));
    assert!(mistakes.is_empty(), "{mistakes:?}");
}

#[test]
fn accepts_a_read_after_a_host_wait_for_the_write() {
    let mistakes = mistakes_of(|| write_then_read(|writer, _| finish(writer)));
    assert!(mistakes.is_empty(), "{mistakes:?}");
}

#[test]
fn reports_a_read_although_the_write_happened_to_be_done() {
    let ended = run(&[], || {
        write_then_read(|writer, _| {
            // An event that the host does not ask about orders nothing.
            let event = made(|to| cuEventCreate(to, 2));
            ok(cuEventRecord(event, writer));
            pause(20);
        });
    });
    assert_eq!(ended.kinds(), [READ_BEFORE_WRITE]);
}

/// Two streams write a block.
fn write_twice(order: impl FnOnce(u64, u64)) {
    begin();
    let (first, second) = (stream(), stream());
    let block = device_memory(4096);
    send(block, 4096, first);
    order(first, second);
    ok(cuMemsetD8Async(block, 3, 4096, second));
    ok(cuCtxSynchronize());
}

#[test]
fn reports_a_write_that_does_not_wait_for_the_last_write() {
    assert_eq!(mistakes_of(|| write_twice(|_, _| ())), [WRITE_BEFORE_WRITE]);
}

#[test]
fn accepts_a_write_whose_stream_waits_for_the_last_write() {
    let mistakes = mistakes_of(|| write_twice(|first, second| wait_for(second, first)));
    assert!(mistakes.is_empty(), "{mistakes:?}");
}

/// A stream reads a block that the next batch overwrites.
fn rewrite_under_a_reader(order: impl FnOnce(u64, u64)) {
    begin();
    let (writer, reader) = (stream(), stream());
    let (block, copy) = (device_memory(4096), device_memory(4096));
    send(block, 4096, writer);
    wait_for(reader, writer);
    ok(cuMemcpyDtoDAsync_v2(copy, block, 4096, reader));
    order(writer, reader);
    send(block, 4096, writer);
    ok(cuCtxSynchronize());
}

#[test]
fn reports_a_write_that_does_not_wait_for_readers() {
    assert_eq!(mistakes_of(|| rewrite_under_a_reader(|_, _| ())), [WRITE_BEFORE_READ]);
}

#[test]
fn accepts_a_write_whose_stream_waits_for_readers() {
    let mistakes = mistakes_of(|| rewrite_under_a_reader(wait_for));
    assert!(mistakes.is_empty(), "{mistakes:?}");
}

#[test]
fn accepts_copies_of_two_streams_into_disjoint_ranges() {
    let mistakes = mistakes_of(|| {
        begin();
        let (first, second) = (stream(), stream());
        let block = device_memory(8192);
        for row in 0..4 {
            send(block + row * 2048, 1024, first);
            send(block + row * 2048 + 1024, 1024, second);
        }
        ok(cuCtxSynchronize());
    });
    assert!(mistakes.is_empty(), "{mistakes:?}");
}

#[test]
fn reports_a_read_that_overlaps_one_of_two_unordered_writes() {
    let mistakes = mistakes_of(|| {
        begin();
        let (first, second) = (stream(), stream());
        let (block, copy) = (device_memory(8192), device_memory(8192));
        send(block, 4096, first);
        send(block + 4096, 4096, second);
        ok(cuMemcpyDtoDAsync_v2(copy, block, 4097, first));
        ok(cuCtxSynchronize());
    });
    assert_eq!(mistakes, [READ_BEFORE_WRITE]);
}

#[test]
fn waits_only_for_the_work_before_the_record() {
    let mistakes = mistakes_of(|| {
        begin();
        let (writer, reader) = (stream(), stream());
        let (block, copy) = (device_memory(4096), device_memory(4096));
        let event = made(|to| cuEventCreate(to, 2));
        ok(cuEventRecord(event, writer));
        send(block, 4096, writer);
        ok(cuStreamWaitEvent(reader, event, 0));
        ok(cuEventSynchronize(event));
        ok(cuMemcpyDtoDAsync_v2(copy, block, 4096, reader));
        ok(cuCtxSynchronize());
    });
    assert_eq!(mistakes, [READ_BEFORE_WRITE]);
}

/// The legacy default stream fills a block, and a stream with `flags` reads it.
fn read_after_legacy(flags: u32) {
    begin();
    let reader = made(|to| cuStreamCreate(to, flags));
    let (block, copy) = (device_memory(4096), device_memory(4096));
    ok(cuMemsetD8_v2(block, 5, 4096));
    ok(cuMemcpyDtoDAsync_v2(copy, block, 4096, reader));
    // The legacy default stream waits for blocking streams in turn.
    ok(cuMemsetD8_v2(block, 6, 4096));
    ok(cuCtxSynchronize());
}

#[test]
fn orders_blocking_streams_with_the_legacy_stream() {
    let mistakes = mistakes_of(|| read_after_legacy(0));
    assert!(mistakes.is_empty(), "{mistakes:?}");
}

#[test]
fn does_not_order_non_blocking_streams_with_the_legacy_stream() {
    assert_eq!(mistakes_of(|| read_after_legacy(1)), [READ_BEFORE_WRITE, WRITE_BEFORE_READ]);
}

#[test]
fn orders_nothing_by_a_synchronous_copy_from_pageable_memory() {
    let mistakes = mistakes_of(|| {
        begin();
        let (block, copy) = (device_memory(64), device_memory(64));
        ok(cuMemcpyHtoD_v2(block, [7_u8; 64].as_ptr() as u64, 64));
        ok(cuMemcpyDtoDAsync_v2(copy, block, 64, stream()));
        ok(cuCtxSynchronize());
    });
    assert_eq!(mistakes, [READ_BEFORE_WRITE]);
}

#[test]
fn orders_the_host_by_a_host_function() {
    extern "C" fn done(argument: *mut std::ffi::c_void) {
        // SAFETY: the program passes the address of a sender that it keeps alive.
        let sender = unsafe { &*argument.cast::<std::sync::mpsc::SyncSender<()>>() };
        sender.send(()).expect("the program waits");
    }
    let mistakes = mistakes_of(|| {
        begin();
        let (stream, block) = (stream(), device_memory(4096));
        let (sender, receiver) = std::sync::mpsc::sync_channel::<()>(1);
        send(block, 4096, stream);
        ok(cuLaunchHostFunc(stream, Some(done), (&raw const sender).cast_mut().cast()));
        receiver.recv().expect("a call of the host function");
        ok(cuMemFree_v2(block));
    });
    assert!(mistakes.is_empty(), "{mistakes:?}");
}

/// Hands batches from a copying stream to a reading stream through one page-locked slot.
fn hand_over_batches(context: u64) {
    const BYTES: usize = 64 << 10;
    ok(cuCtxSetCurrent(context));
    let (copying, reading) = (stream(), stream());
    let (source, back) = (page_locked(BYTES, 0), page_locked(BYTES, 0));
    let block = device_memory(BYTES);
    let event = made(|to| cuEventCreate(to, 2));
    for batch in 0..100 {
        poke(source + 5, batch);
        ok(cuMemcpyHtoDAsync_v2(block, source, BYTES, copying));
        ok(cuEventRecord(event, copying));
        ok(cuStreamWaitEvent(reading, event, 0));
        ok(cuMemcpyDtoHAsync_v2(back, block, BYTES, reading));
        wait_for(copying, reading);
        ok(cuEventSynchronize(event));
        finish(reading);
        assert_eq!(peek(back + 5), batch);
    }
    ok(cuMemFree_v2(block));
}

#[test]
fn accepts_four_threads_that_wait_correctly() {
    let ended = run(&[], || {
        begin();
        let context = crate::context::current_handle();
        std::thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(move || hand_over_batches(context))));
        });
    });
    assert!(ended.kinds().is_empty(), "{}", ended.report);
    assert_eq!(ended.report["counts"]["copies"], 800);
}

#[test]
fn orders_thread_default_streams_with_the_legacy_stream_only() {
    let mistakes = mistakes_of(|| {
        begin();
        let context = crate::context::current_handle();
        let (block, copy) = (device_memory(4096), device_memory(4096));
        ok(cuMemsetD8Async(block, 1, 4096, 0));
        ok(cuMemsetD8Async(block, 2, 4096, 2));
        let thread = std::thread::spawn(move || {
            ok(cuCtxSetCurrent(context));
            ok(cuMemcpyDtoDAsync_v2(copy, block, 4096, 2));
            ok(cuCtxSynchronize());
        });
        thread.join().expect("no panic");
    });
    assert_eq!(mistakes, [READ_BEFORE_WRITE]);
}

#[test]
fn refuses_driver_calls_of_host_functions() {
    extern "C" fn asks(argument: *mut std::ffi::c_void) {
        // SAFETY: the program passes the address of a number that it keeps alive.
        unsafe { argument.cast::<Code>().write(cuCtxSynchronize()) };
    }
    let mistakes = mistakes_of(|| {
        begin();
        let (stream, mut answer) = (stream(), 0);
        ok(cuLaunchHostFunc(stream, Some(asks), (&raw mut answer).cast()));
        finish(stream);
        assert_eq!(answer, 800);
    });
    assert!(mistakes.is_empty(), "{mistakes:?}");
}
