//! Makes exceptions of the client's errors. The Python package chooses the class by kind.

use larder_client::Error;
use pyo3::{prelude::*, sync::PyOnceLock};

/// Converts the outcome of a call of the client for Python.
pub(crate) trait OrRaise<T> {
    /// The value, or the exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T, E: Into<Error>> OrRaise<T> for Result<T, E> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, &error.into()))
    }
}

/// The exception for an error.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    static FROM_KIND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let made = FROM_KIND.import(py, "larder._errors", "from_kind").and_then(|from_kind| {
        from_kind.call1((error.kind().name(), error.what(), error.why(), error.advice_text()))
    });
    made.map_or_else(|import| import, PyErr::from_value)
}
