//! Plans on random rings: what they promise in figures, and what holds for every one of them.

mod drift;
mod goals;
mod laws;
mod snapshots;
mod support;
