//! The locality by which ranks divide batches, for Python.

use larder_client::{Error, ErrorKind, Locality as Inner};
use pyo3::{prelude::*, types::PyBytes};

use crate::error::OrRaise;

/// The division of a job's global batches among its ranks. One process makes it by ``locality()``
/// of a dataset or mixture, and sends it to all. It pickles.
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
    /// Reads the bytes of ``to_bytes``.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, content: &Bound<'_, PyAny>) -> PyResult<Self> {
        let bytes = content.extract().map_err(|_| {
            let what = format!("the content is of type {}", content.get_type());
            Error::new(ErrorKind::InvalidArgument, what).hint("give the bytes of to_bytes()")
        });
        bytes.and_then(Inner::from_bytes).map(Self::new).or_raise(py)
    }

    /// The locality as bytes, for ranks that can't receive a pickle.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.inner.to_bytes())
    }

    /// 32 hexadecimal digits. Two ids are equal exactly if both localities divide batches alike.
    #[getter]
    fn id(&self) -> String {
        self.inner.id().to_string()
    }

    /// The number of ranks.
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
