//! By what ranks divide batches, as Python sees it.

use larder_client::Locality as Inner;
use pyo3::{prelude::*, types::PyBytes};

use crate::error::OrRaise;

/// By what the ranks of a job divide their global batches: made by ``locality()`` of a dataset or
/// mixture, in one process, and handed to all. It pickles.
#[pyclass(frozen, eq, hash, module = "larder")]
#[derive(PartialEq, Eq)]
pub(crate) struct Locality {
    inner: Inner,
}

impl Locality {
    pub(crate) fn new(inner: Inner) -> Self {
        Self { inner }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }
}

impl std::hash::Hash for Locality {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.inner.id().hash(state);
    }
}

#[pymethods]
impl Locality {
    /// Reads what ``to_bytes`` wrote.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, content: &[u8]) -> PyResult<Self> {
        Inner::from_bytes(content).map(Self::new).or_raise(py)
    }

    /// For ranks that a pickle can't be sent to.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.inner.to_bytes())
    }

    /// Equal for two exactly when they divide batches alike: 32 hexadecimal digits.
    #[getter]
    fn id(&self) -> String {
        self.inner.id().to_string()
    }

    /// How many ranks it is for.
    #[getter]
    fn world_size(&self) -> u32 {
        self.inner.ranks().world()
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let read = slf.get_type().getattr("from_bytes")?;
        Ok((read, (slf.get().to_bytes(slf.py()),)))
    }

    fn __repr__(&self) -> String {
        format!("<larder.Locality {} of {} ranks>", self.id(), self.world_size())
    }
}
