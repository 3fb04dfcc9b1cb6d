//! The client library: datasets, routing, sampling, loaders.

pub mod sampler;
