//! Extents between real processes: what a reader can and cannot do to one, when its memory is free,
//! what is refused on attach, and descriptors over sockets.

#![expect(clippy::unwrap_used, reason = "tests, and the helpers around them")]

mod support;

mod hostile;
mod immutable;
mod passing;
mod private;
mod release;
mod rows;
