//! Plans on random rings: their goals in figures, and the laws of every one of them.

mod drift;
mod goals;
mod laws;
mod snapshots;
mod support;
