//! The dataset as Python sees it.

use std::time::Duration;

use larder_client::{Dataset as Inner, Error, ErrorKind, HostTensor};
use pyo3::{prelude::*, types::PyDict};

use crate::{
    array::{Array, dtype_name},
    error::OrRaise,
    loader::{Loader, Settings},
    wait::interruptible,
};

/// One opened snapshot.
#[pyclass(frozen, module = "larder._larder")]
pub(crate) struct Dataset {
    inner: Inner,
}

/// Name, type (as numpy and ml_dtypes call it) and the shape of one sample.
type TensorFacts = (String, &'static str, Vec<u64>);

#[pymethods]
impl Dataset {
    /// Opens a dataset; `patience` is in seconds.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        uri: String,
        cluster: Option<String>,
        manifest: Option<String>,
        local: bool,
        patience: f64,
    ) -> PyResult<Self> {
        let patience = Duration::try_from_secs_f64(patience).map_err(|error| {
            let what = format!("the patience can't be {patience} seconds");
            Error::new(ErrorKind::InvalidArgument, what).because(error)
        });
        let mut options = Inner::options().local(local).patience(patience.or_raise(py)?);
        if let Some(cluster) = cluster {
            options = options.cluster(cluster);
        }
        if let Some(manifest) = manifest {
            options = options.manifest(manifest);
        }
        let inner = interruptible(py, move || options.open(&uri))?;
        Ok(Self { inner })
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.inner.samples()).unwrap_or(usize::MAX)
    }

    /// The address of the prefix, without tag or snapshot.
    #[getter]
    fn uri(&self) -> String {
        self.inner.name().reference.uri().to_string()
    }

    /// The name of the snapshot, in hexadecimal digits.
    #[getter]
    fn snapshot(&self) -> String {
        self.inner.snapshot().to_string()
    }

    /// Whether nodes are asked for rows.
    #[getter]
    fn through_cluster(&self) -> bool {
        self.inner.cluster().is_some()
    }

    #[getter]
    fn tensors(&self) -> Vec<TensorFacts> {
        let facts = |tensor: &larder_client::Tensor| {
            let dtype = dtype_name(tensor.dtype());
            (tensor.name().to_owned(), dtype, tensor.shape().to_vec())
        };
        self.inner.tensors().iter().map(facts).collect()
    }

    /// Chosen samples of the named tensors, or of all: one array a tensor.
    fn take<'py>(
        &self,
        py: Python<'py>,
        samples: Vec<u64>,
        tensors: Option<Vec<String>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let inner = self.inner.clone();
        let taken = interruptible(py, move || inner.take(&samples, tensors.as_deref()))?;
        arrays(py, taken)
    }

    /// A loader of batches.
    fn loader(&self, py: Python<'_>, settings: Settings) -> PyResult<Loader> {
        let builder = settings.apply(py, self.inner.loader())?;
        let loader = interruptible(py, move || builder.build())?;
        Ok(Loader::new(loader))
    }
}

/// Tensors by name.
pub(crate) fn arrays<'py>(
    py: Python<'py>,
    tensors: Vec<HostTensor>,
) -> PyResult<Bound<'py, PyDict>> {
    let arrays = PyDict::new(py);
    for tensor in tensors {
        let name = tensor.name.clone();
        arrays.set_item(&*name, Array::new(tensor).or_raise(py)?)?;
    }
    Ok(arrays)
}
