//! The server seen from outside: by object_store, and by a raw client that shows the bytes on the
//! wire.

mod support;

mod demo;
mod faults;
mod s3;
