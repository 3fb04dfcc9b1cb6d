//! Lifetimes: memory that is given back, unmapped or page-locked for another device.

use super::*;
use crate::api::context::cuDevicePrimaryCtxRelease_v2;
use crate::api::copy::{cuMemcpyDtoHAsync_v2, cuMemsetD8Async};
use crate::api::event::{cuEventDestroy_v2, cuEventQuery};
use crate::api::memory::{
    cuMemFree_v2, cuMemFreeHost, cuMemHostRegister_v2, cuMemHostUnregister, cuPointerGetAttribute,
};
use crate::mistakes::{
    DOUBLE_FREE, FREED, NO_CONTEXT, NOT_PAGE_LOCKED, NOT_PORTABLE, PARTLY_REGISTERED, UNMAPPED,
    UNREGISTERED,
};

const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Registers memory, copies it, and unregisters it.
fn copy_registered(wait: impl FnOnce(u64)) {
    begin();
    let (stream, source, target) = (stream(), mapped(8192, BOTH), device_memory(8192));
    ok(cuMemHostRegister_v2(source, 8192, 0));
    ok(cuMemcpyHtoDAsync_v2(target, source, 4096, stream));
    ok(cuMemcpyHtoDAsync_v2(target + 4096, source, 4096, stream));
    wait(stream);
    ok(cuMemHostUnregister(source));
    finish(stream);
}

#[test]
fn reports_memory_that_is_unregistered_under_copies() {
    let ended = run(&[("STANDIN_DELAY_US", "2000")], || copy_registered(|_| ()));
    assert_eq!(ended.kinds(), [UNREGISTERED]);
    let detail = ended.report["mistakes"][0]["detail"].as_str().expect("a sentence");
    assert!(detail.contains("cuMemHostUnregister") && detail.contains("2 copies"), "{detail}");
}

#[test]
fn accepts_memory_that_is_unregistered_after_a_wait() {
    let mistakes = mistakes_of(|| copy_registered(finish));
    assert!(mistakes.is_empty(), "{mistakes:?}");
}

#[test]
fn accepts_memory_unregistered_after_a_query_reports_done() {
    let mistakes = mistakes_of(|| {
        copy_registered(|stream| {
            let event = made(|to| cuEventCreate(to, 2));
            ok(cuEventRecord(event, stream));
            while cuEventQuery(event) == 600 {
                std::thread::yield_now();
            }
        });
    });
    assert!(mistakes.is_empty(), "{mistakes:?}");
}

#[test]
fn reports_memory_that_is_unmapped_under_a_copy() {
    let ended = run(&[("STANDIN_DELAY_US", "200000")], || {
        begin();
        let (stream, source, target) = (stream(), mapped(4096, BOTH), device_memory(4096));
        ok(cuMemHostRegister_v2(source, 4096, 0));
        ok(cuMemcpyHtoDAsync_v2(target, source, 4096, stream));
        unmap(source, 4096);
        finish(stream);
        ok(cuMemHostUnregister(source));
    });
    assert_eq!(ended.kinds(), [UNMAPPED]);
}

/// Fills a block and frees it.
fn fill_and_free(wait: impl FnOnce(u64)) {
    begin();
    let (stream, block) = (stream(), device_memory(4096));
    ok(cuMemsetD8Async(block, 1, 4096, stream));
    wait(stream);
    ok(cuMemFree_v2(block));
    finish(stream);
}

#[test]
fn reports_device_memory_that_is_freed_under_a_fill() {
    assert_eq!(mistakes_of(|| fill_and_free(|_| ())), [FREED]);
}

#[test]
fn accepts_device_memory_that_is_freed_after_a_wait() {
    let mistakes = mistakes_of(|| fill_and_free(finish));
    assert!(mistakes.is_empty(), "{mistakes:?}");
}

#[test]
fn reports_page_locked_memory_that_is_freed_under_a_copy() {
    let mistakes = mistakes_of(|| {
        begin();
        let (stream, source, target) = (stream(), page_locked(4096, 1), device_memory(4096));
        ok(cuMemcpyHtoDAsync_v2(target, source, 4096, stream));
        ok(cuMemFreeHost(source));
        finish(stream);
    });
    assert_eq!(mistakes, [FREED]);
}

#[test]
fn reports_a_double_free() {
    let mistakes = mistakes_of(|| {
        begin();
        let (block, event) = (device_memory(64), made(|to| cuEventCreate(to, 0)));
        ok(cuMemFree_v2(block));
        assert_eq!(cuMemFree_v2(block), 1);
        ok(cuEventDestroy_v2(event));
        assert_eq!(cuEventDestroy_v2(event), 400);
        assert_eq!(cuMemFree_v2(12345), 1, "an address that was never allocated is no double free");
    });
    assert_eq!(mistakes, [DOUBLE_FREE, DOUBLE_FREE]);
}

#[test]
fn reports_an_asynchronous_copy_from_pageable_memory() {
    let mistakes = mistakes_of(|| {
        begin();
        let (stream, target, mut back) = (stream(), device_memory(64), [0_u8; 64]);
        let mut source = [9_u8; 64];
        ok(cuMemcpyHtoDAsync_v2(target, source.as_ptr() as u64, 64, stream));
        source.fill(1);
        ok(cuMemcpyDtoHAsync_v2(back.as_mut_ptr() as u64, target, 64, stream));
        assert_eq!((back, source), ([9; 64], [1; 64]), "the call takes the bytes");
    });
    assert_eq!(mistakes, [NOT_PAGE_LOCKED]);
}

#[test]
fn reports_a_copy_beyond_its_registration() {
    let mistakes = mistakes_of(|| {
        begin();
        let (stream, source, target) = (stream(), mapped(8192, BOTH), device_memory(8192));
        ok(cuMemHostRegister_v2(source, 4096, 0));
        ok(cuMemcpyHtoDAsync_v2(target, source, 4096, stream));
        assert_eq!(cuMemcpyHtoDAsync_v2(target, source + 1, 4096, stream), 1);
        ok(cuMemHostRegister_v2(source + 4096, 4096, 0));
        assert_eq!(cuMemcpyHtoDAsync_v2(target, source, 8192, stream), 1, "two registrations");
        finish(stream);
    });
    assert_eq!(mistakes, [PARTLY_REGISTERED, PARTLY_REGISTERED]);
}

/// Page-locks memory while device 0 is current, and copies it to device 1.
fn copy_to_the_other_device(flags: u32) {
    begin();
    let source = mapped(4096, BOTH);
    ok(cuMemHostRegister_v2(source, 4096, flags));
    let locked = made(|to| cuMemHostAlloc(to, 4096, flags));
    use_device(1);
    let (stream, target) = (stream(), device_memory(4096));
    for source in [source, locked] {
        ok(cuMemcpyHtoDAsync_v2(target, source, 4096, stream));
    }
    finish(stream);
}

#[test]
fn reports_memory_that_is_page_locked_for_another_device() {
    assert_eq!(mistakes_of(|| copy_to_the_other_device(0)), [NOT_PORTABLE, NOT_PORTABLE]);
}

#[test]
fn accepts_portable_memory_on_every_device() {
    let mistakes = mistakes_of(|| copy_to_the_other_device(1));
    assert!(mistakes.is_empty(), "{mistakes:?}");
}

#[test]
fn reports_a_call_of_a_thread_without_a_context() {
    let mistakes = mistakes_of(|| {
        begin();
        let thread = std::thread::spawn(|| cuMemAlloc_v2(Out::to(&mut 0), 64));
        assert_eq!(thread.join().expect("no panic"), 201);
    });
    assert_eq!(mistakes, [NO_CONTEXT]);
}

#[test]
fn registers_read_only_memory_with_the_flag_only() {
    let ended = run(&[], || {
        begin();
        let (both, fixed) = (mapped(8192, BOTH), mapped(4096, libc::PROT_READ));
        assert_eq!(cuMemHostRegister_v2(fixed, 4096, 0), 1);
        ok(cuMemHostRegister_v2(fixed, 4096, 8));
        ok(cuMemHostRegister_v2(both, 4096, 0));
        assert_eq!(cuMemHostRegister_v2(both, 8192, 0), 712);
        assert_eq!(cuMemHostUnregister(both + 1), 713);
        let mut kind = 0;
        ok(cuPointerGetAttribute(Out::to(&mut kind).cast(), 2, fixed + 8));
        assert_eq!(kind, 1_u32);
        ok(cuMemHostUnregister(fixed));
        unmap(fixed, 4096);
        assert_eq!(cuMemHostRegister_v2(fixed, 4096, 8), 1, "not mapped");
    });
    assert!(ended.kinds().is_empty(), "{}", ended.report);
    assert_eq!(ended.report["left"]["registrations"], 1);
    assert_eq!(ended.report["counts"]["registered_bytes_max"], 8192);
}

#[test]
fn refuses_read_only_registration_on_a_device_that_lacks_it() {
    let ended = run(&[("STANDIN_READ_ONLY", "0")], || {
        begin();
        assert_eq!(cuMemHostRegister_v2(mapped(4096, libc::PROT_READ), 4096, 8), 801);
    });
    assert!(ended.kinds().is_empty());
}

#[test]
fn reports_a_call_after_the_last_release_of_its_context() {
    let ended = run(&[], || {
        begin();
        use_device(0);
        ok(cuDevicePrimaryCtxRelease_v2(0));
        device_memory(64);
        ok(cuDevicePrimaryCtxRelease_v2(0));
        assert_eq!(cuMemAlloc_v2(Out::to(&mut 0), 64), 201);
        assert_eq!(cuDevicePrimaryCtxRelease_v2(0), 201);
    });
    assert_eq!(ended.kinds(), [NO_CONTEXT]);
    assert_eq!(ended.report["left"]["contexts"], 0);
}
