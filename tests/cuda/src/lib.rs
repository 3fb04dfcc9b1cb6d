//! A strict stand-in for NVIDIA's driver library, so that the GPU path can be tested without a GPU.
//!
//! It exports the driver symbols that Larder's Rust client (through cudarc) and its Python code
//! (through ctypes) call. A test links `liblarder_cuda_standin.so` as `libcuda.so` in a folder of
//! its own and puts that folder on the `LD_LIBRARY_PATH` of a child process. The stand-in copies
//! real bytes, and it reports mistakes of order and lifetime that a real GPU hides.
//!
//! How it works:
//!
//! * `gate` admits each call: it counts calls, injects failures and keeps a lost device lost.
//! * Device memory is a file mapped twice. The device address belongs to a mapping without rights,
//!   so host code that touches it dies at that instruction (`pages`).
//! * Each stream is a thread with a bounded queue (`stream`). The legacy default stream waits for
//!   the blocking streams of its context, and they wait for it.
//! * Vector clocks judge the order that the program asked for, not the order that happened to
//!   occur (`order`).
//! * The report is JSON. `STANDIN_REPORT` names its file (`report`).
//!
//! Points at which the stand-in is stricter than most drivers:
//!
//! * Freeing or unregistering memory needs a host wait for every copy that uses the memory.
//! * While a copy reads page-locked memory, host code must not write anywhere in that allocation.
//! * `cuMemsetD8_v2`, `cuMemcpyDtoD_v2` and `cuMemcpyHtoD_v2` from pageable memory do not wait for
//!   the device, as their documentation says. A non-blocking stream must still be ordered after
//!   them.
//!
//! The settings are in `settings`, and [`mistakes`] lists the kinds of mistakes.
//!
//! Thread rule: one mutex guards all state. Stream threads copy bytes outside of it, and no call
//! waits while it holds the mutex. A forked child gets an error before it meets the mutex.
//! Non-goals: speed of a GPU, kernels, the runtime API, and the quirks of one driver version.

mod api;
mod codes;
mod context;
mod copies;
mod gate;
mod memory;
pub mod mistakes;
mod order;
mod pages;
mod report;
mod settings;
mod state;
mod stream;

#[cfg(test)]
mod tests;
