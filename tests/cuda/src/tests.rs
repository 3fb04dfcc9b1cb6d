//! Programs that call the exported functions, each in a process of its own.
//!
//! [`run`] starts the test's own binary again with one test's name, and the child runs the program
//! there. So each program has fresh state and its own settings, and it may die.
//! Thread rule: a program begins on one thread. Non-goals: cudarc and ctypes.

#![expect(unsafe_code, reason = "programs touch memory by address, map pages and fork")]

mod bytes;
mod failures;
mod lifetimes;
mod order;

use std::any::type_name_of_val;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use serde_json::Value;

use crate::api::context::{cuCtxSetCurrent, cuDevicePrimaryCtxRetain};
use crate::api::copy::cuMemcpyHtoDAsync_v2;
use crate::api::error::cuInit;
use crate::api::event::{cuEventCreate, cuEventRecord};
use crate::api::memory::{cuMemAlloc_v2, cuMemHostAlloc};
use crate::api::stream::{cuStreamCreate, cuStreamSynchronize, cuStreamWaitEvent};
use crate::api::{In, Out};
use crate::codes::Code;

/// The result of a program.
struct Ended {
    signal: Option<i32>,
    /// Null if the program died.
    report: Value,
}

impl Ended {
    fn kinds(&self) -> Vec<&str> {
        assert_eq!(self.signal, None, "the program died");
        let mistakes = self.report["mistakes"].as_array().expect("a list of mistakes");
        mistakes.iter().filter_map(|mistake| mistake["kind"].as_str()).collect()
    }
}

/// Runs a program in a child process. The closure must stand in the test's own body, because its
/// type names the test. A test runs one program.
fn run(settings: &[(&str, &str)], program: impl FnOnce()) -> Ended {
    const CHILD: &str = "STANDIN_TEST_CHILD";
    /// The child's exit status if it ran the program to its end.
    const RAN: i32 = 42;
    let path = type_name_of_val(&program);
    let path =
        path.split_once("::").map_or(path, |(_, path)| path).trim_end_matches("::{{closure}}");
    if std::env::var(CHILD).is_ok_and(|child| child == path) {
        program();
        std::process::exit(RAN);
    }
    let name = format!("standin-{}-{}.json", std::process::id(), path.replace(':', "-"));
    let file = std::env::temp_dir().join(name);
    let output = Command::new(std::env::current_exe().expect("the test's binary"))
        .args([path, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, path)
        .env("STANDIN_REPORT", &file)
        .envs(settings.iter().copied())
        .output()
        .expect("a child process");
    let text = String::from_utf8_lossy(&output.stderr);
    let signal = output.status.signal();
    let died = signal.is_some_and(|signal| signal != libc::SIGABRT);
    assert!(died || output.status.code() == Some(RAN), "{path}: {text}");
    let report = std::fs::read(&file).ok().map(|bytes| serde_json::from_slice(&bytes));
    let _ = std::fs::remove_file(&file);
    let report = report.transpose().expect("a report in JSON").unwrap_or_default();
    Ended { signal, report }
}

/// The mistakes of a program that runs with 2 ms per copy.
fn mistakes_of(program: impl FnOnce()) -> Vec<String> {
    let ended = run(&[("STANDIN_DELAY_US", "2000"), ("STANDIN_DEVICES", "2")], program);
    ended.kinds().into_iter().map(str::to_owned).collect()
}

#[track_caller]
fn ok(code: Code) {
    assert_eq!(code, 0);
}

fn made(make: impl FnOnce(Out<u64>) -> Code) -> u64 {
    let mut made = 0;
    ok(make(Out::to(&mut made)));
    made
}

/// Makes the context of device 0 current.
fn begin() {
    ok(cuInit(0));
    use_device(0);
}

fn use_device(device: i32) {
    ok(cuCtxSetCurrent(made(|to| cuDevicePrimaryCtxRetain(to, device))));
}

/// Creates a stream that does not wait for the legacy default stream.
fn stream() -> u64 {
    made(|to| cuStreamCreate(to, 1))
}

fn device_memory(bytes: usize) -> u64 {
    made(|to| cuMemAlloc_v2(to, bytes))
}

/// Page-locked memory with all bytes equal to `byte`.
fn page_locked(bytes: usize, byte: u8) -> u64 {
    let address = made(|to| cuMemHostAlloc(to, bytes, 0));
    (0..bytes as u64).for_each(|offset| poke(address + offset, byte));
    address
}

/// Queues a copy of fresh page-locked memory with all bytes 1.
fn send(to: u64, bytes: usize, stream: u64) {
    ok(cuMemcpyHtoDAsync_v2(to, page_locked(bytes, 1), bytes, stream));
}

/// Orders later work of a stream after all work of another.
fn wait_for(stream: u64, other: u64) {
    let event = made(|to| cuEventCreate(to, 2));
    ok(cuEventRecord(event, other));
    ok(cuStreamWaitEvent(stream, event, 0));
}

fn finish(stream: u64) {
    ok(cuStreamSynchronize(stream));
}

fn poke(address: u64, byte: u8) {
    // SAFETY: the programs pass addresses of memory that they own, or mean to die here.
    unsafe { (address as *mut u8).write_volatile(byte) };
}

fn peek(address: u64) -> u8 {
    // SAFETY: the programs pass addresses of memory that they own, or mean to die here.
    unsafe { (address as *const u8).read_volatile() }
}

/// Lets time pass. No program needs it to be right; some would hide a mistake without it.
fn pause(milliseconds: u64) {
    let (passed, waiting) = (std::sync::Condvar::new(), std::sync::Mutex::new(()));
    let guard = waiting.lock().expect("a lock");
    drop(passed.wait_timeout(guard, std::time::Duration::from_millis(milliseconds)));
}

/// Maps pages of zeros.
fn mapped(bytes: usize, rights: i32) -> u64 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the kernel's choice replaces no other mapping.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at as u64
}

fn unmap(address: u64, bytes: usize) {
    // SAFETY: the program mapped these pages by `mapped` and touches them no more.
    assert_eq!(unsafe { libc::munmap(address as *mut libc::c_void, bytes) }, 0);
}
