//! Extents between real processes: attacks by a reader, when memory is free, files refused on
//! attach, and descriptors over sockets.

#![expect(clippy::unwrap_used, reason = "tests, and the helpers around them")]

mod support;

mod hostile;
mod immutable;
mod passing;
mod private;
mod release;
mod rows;
