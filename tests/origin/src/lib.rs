//! An S3 server for tests and the demo: real HTTP, real SigV4, real files, and faults on demand.
//!
//! [`S3Server`] runs `s3s` over `s3s-fs` in this process, on a thread of its own, so that synchronous tests can use it
//! and another process can talk to it over loopback. Buckets are plain directories: what is written into them with
//! the file system is there for every client. Object reads are answered by this crate (`objects`) rather than by
//! `s3s-fs`, which hashes a whole object and reads it in 4 KiB pieces for each GET.
//!
//! What the server did is told by [`Counts`]; what it does wrong, and how often, by a [`FaultPlan`]. The data set of
//! the demo is in [`demo_data`].
//!
//! Not for production: HTTP/1.1 on loopback only, one key pair, no versions, no user metadata on reads.

mod counts;
pub mod demo_data;
mod fault;
mod objects;
mod server;

pub use counts::{Counts, ObjectReads};
pub use fault::{Fault, FaultClass, FaultPlan};
pub use server::{Options, S3Server};

/// The access key that the server knows.
pub const ACCESS_KEY: &str = "LARDERTESTACCESSKEY";
/// The secret that belongs to [`ACCESS_KEY`].
pub const SECRET_KEY: &str = "larder/test/secret/key";
/// The region that clients are told; the server takes any.
pub const REGION: &str = "us-east-1";
