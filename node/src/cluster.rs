//! What makes nodes a cluster: the shell around the pure rules.
//!
//! - [`coordinator`]: what a cluster agrees on, kept in one place.
//!
//! Thread rule: async, on the node's runtime; what touches a disk goes to a blocking thread. Non-goals: placement,
//! and what to do about what was agreed on.

pub mod coordinator;
