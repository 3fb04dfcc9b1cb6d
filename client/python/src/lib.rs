//! The native module of the Python package `larder`: thin faces over the Rust client.
//!
//! One file per class. Functions here have no optional arguments, and return plain values and
//! [`array::Array`]s. The package beside it, `python/larder`, adds defaults, conversion to numpy,
//! torch and jax, and iteration over epochs.
//!
//! Thread rule: importing starts no thread. Every class is frozen, and its fields are `Sync` with
//! and without a GIL. Every wait releases the interpreter ([`wait`]). A lock taken here is never
//! held while Python runs ([`lock`]), so a child forked by any thread finds it free. After a fork
//! everything works on both sides, except an epoch, which belongs to the process that began it.
//! Non-goals: anything that could be written in Python at the same speed.

#![expect(clippy::needless_pass_by_value, reason = "PyO3 hands arguments over by value")]

mod array;
mod dataset;
mod error;
mod host;
mod index;
mod iteration;
mod loader;
mod locality;
mod mixture;
mod pump;
mod stats;
mod wait;
mod warnings;

use pyo3::prelude::*;

#[pymodule]
mod _larder {
    #[pymodule_export]
    use crate::array::{Array, ArrowBatch, DeviceTensor};
    #[pymodule_export]
    use crate::dataset::Dataset;
    #[pymodule_export]
    use crate::host::Node;
    #[pymodule_export]
    use crate::index::index;
    #[pymodule_export]
    use crate::iteration::Iteration;
    #[pymodule_export]
    use crate::loader::{Batch, Epoch, Loader, Schedule};
    #[pymodule_export]
    use crate::locality::Locality;
    #[pymodule_export]
    use crate::mixture::Mixture;
    #[pymodule_export]
    use crate::pump::{Pump, devices};
    #[pymodule_export]
    use crate::stats::stats;
    #[pymodule_export]
    use crate::warnings::hand_over;

    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::warnings::listen();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
