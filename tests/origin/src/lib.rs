//! An S3 server for tests and the demo: real HTTP, real SigV4, real files, and faults on demand.
//!
//! [`S3Server`] runs `s3s` over `s3s-fs` in this process, on a thread of its own. Synchronous tests
//! can use it, and other processes can reach it over loopback. Buckets are plain directories: every
//! client sees a file that is written into them. This crate answers object reads itself
//! (`objects`). `s3s-fs` hashes a whole object and reads it in 4 KiB pieces for each GET.
//!
//! [`Counts`] reports the server's work. A [`FaultPlan`] injects faults. [`demo_data`] holds the
//! demo's dataset.
//!
//! Not for production: HTTP/1.1 on loopback only, one key pair at a time, no versions, no user
//! metadata on reads.

mod counts;
mod credentials;
pub mod demo_data;
mod fault;
mod objects;
mod server;

pub use counts::{Counts, ObjectReads};
pub use credentials::Credentials;
pub use fault::{Fault, FaultClass, FaultPlan, RequestKind};
pub use server::{Options, S3Server};

/// The access key that the server knows at first.
pub const ACCESS_KEY: &str = "LARDERTESTACCESSKEY";
/// The secret that belongs to [`ACCESS_KEY`].
pub const SECRET_KEY: &str = "larder/test/secret/key";
/// The region in the settings of clients; the server accepts any.
pub const REGION: &str = "us-east-1";
