//! `larder-node`: parses, starts, says where it listens, waits for a reason to stop, drains.
fn main() {}
