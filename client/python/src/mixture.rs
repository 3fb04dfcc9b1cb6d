//! The data of loaders for Python: one dataset, or a mixture of several.

use std::num::NonZeroU64;

use larder_client::{Error, ErrorKind, LoaderOptions, Mixture as Inner, sampler::Stop};
use pyo3::prelude::*;

use crate::{
    dataset::Dataset, error::OrRaise, loader::Loader, locality::Locality, wait::interruptible,
};

/// Datasets in fixed proportions, or one dataset.
#[pyclass(frozen, module = "larder._larder")]
pub(crate) struct Mixture {
    inner: Inner,
}

/// The end of an epoch, as the caller gives it.
#[derive(FromPyObject)]
enum StopAt {
    Samples(u64),
    Named(String),
}

impl StopAt {
    fn parse(&self) -> Result<Stop, Error> {
        let wrong = |what: String| {
            let hint = "say stop='first', stop='all', or how many samples an epoch has";
            Err(Error::new(ErrorKind::InvalidArgument, what).hint(hint))
        };
        match self {
            Self::Samples(samples) => match NonZeroU64::new(*samples) {
                Some(samples) => Ok(Stop::Samples(samples)),
                None => wrong("an epoch of a mixture can't have 0 samples".to_owned()),
            },
            Self::Named(name) => match name.as_str() {
                "first" => Ok(Stop::First),
                "all" => Ok(Stop::All),
                _ => wrong(format!("a mixture can't stop at '{name}'")),
            },
        }
    }
}

#[pymethods]
impl Mixture {
    /// Mixes datasets, each with its weight.
    #[new]
    fn new(
        py: Python<'_>,
        datasets: Vec<(Py<Dataset>, f64)>,
        seed: u64,
        stop: StopAt,
    ) -> PyResult<Self> {
        let stop = stop.parse().or_raise(py)?;
        let datasets = datasets.iter().map(|(dataset, weight)| (dataset.get().inner(), *weight));
        let datasets = datasets.map(|(dataset, weight)| (dataset.clone(), weight));
        Ok(Self { inner: Inner::new(datasets, seed, stop).or_raise(py)? })
    }

    /// One dataset that is not mixed.
    #[staticmethod]
    fn alone(dataset: &Dataset) -> Self {
        Self { inner: dataset.inner().clone().into() }
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.inner.samples()).unwrap_or(usize::MAX)
    }

    /// The number of samples that an epoch draws from each dataset.
    #[getter]
    fn draws(&self) -> Vec<u64> {
        self.inner.draws().collect()
    }

    /// A loader of batches. Its options are JSON. Waits for batches are told to `reporter`.
    fn loader(
        &self,
        py: Python<'_>,
        options: &str,
        locality: Option<&Locality>,
        reporter: Option<Py<PyAny>>,
    ) -> PyResult<Loader> {
        let mut builder =
            self.inner.loader().options(LoaderOptions::from_json(options).or_raise(py)?);
        if let Some(locality) = locality {
            builder = builder.locality(locality.inner().clone());
        }
        let loader = interruptible(py, move |_| builder.build())?;
        Ok(Loader::new(loader, reporter))
    }

    /// The nodes of the cluster on this host, by name.
    fn nodes_here(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let inner = self.inner.clone();
        interruptible(py, move |_| Ok(inner.nodes_here()))
    }

    /// The locality by which ranks on these hosts can divide batches.
    fn locality(&self, py: Python<'_>, ranks: Vec<Vec<String>>) -> PyResult<Locality> {
        let inner = self.inner.clone();
        interruptible(py, move |_| inner.locality(&ranks)).map(Locality::new)
    }
}
