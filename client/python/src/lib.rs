//! The native module of the Python package `larder`: thin faces over the Rust client.
//!
//! One file per class. What is comfortable in Python (defaults, conversion to numpy, torch and jax,
//! iteration over epochs) stands in the package beside it, `python/larder`; what is here has no
//! optional arguments and returns plain values and [`array::Array`]s.
//!
//! Thread rule: importing starts no thread. Every class is frozen and holds what is `Sync`, whether
//! the interpreter has a GIL or not; every wait is without it ([`wait`]). A lock taken here is
//! never held while Python runs ([`lock`]), so that a child forked by any thread finds it free.
//! After a fork everything works on both sides, except an epoch, which belongs to the process that
//! began it. Non-goals: anything that could be written in Python at the same speed.

#![expect(clippy::needless_pass_by_value, reason = "PyO3 hands arguments over by value")]

mod array;
mod dataset;
mod error;
mod host;
mod index;
mod iteration;
mod loader;
mod locality;
mod lock;
mod mixture;
mod pump;
mod stats;
mod wait;
mod warnings;

use pyo3::prelude::*;

#[pymodule]
mod _larder {
    #[pymodule_export]
    use crate::array::{Array, DeviceTensor};
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
