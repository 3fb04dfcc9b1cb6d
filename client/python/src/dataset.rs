//! The dataset for Python.

use std::{
    collections::BTreeMap, ops::Range, path::PathBuf, str::FromStr, sync::Arc, time::Duration,
};

use larder_client::{
    Dataset as Inner, Error, ErrorKind, HostOptions, HostTensor, Key, OpenOptions, Take, Tensor,
    columns_left_out, renew_credentials,
};
use pyo3::{
    buffer::PyBuffer,
    exceptions::PyIndexError,
    prelude::*,
    types::{PyBytes, PyDict},
};

use crate::{
    array::{Array, GivenBytes, arrays},
    error::OrRaise,
    host::{StartedNode, started},
    wait::{Reports, interruptible, reading, reporting},
};

/// One opened snapshot.
#[pyclass(frozen, module = "larder._larder")]
pub(crate) struct Dataset {
    inner: Arc<Inner>,
}

impl Dataset {
    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }
}

/// Name, type (as numpy and ml_dtypes call it), the shape of one sample, and the meaning of the
/// values. The first dimension of ragged rows is `None`.
pub(crate) type TensorFacts = (String, &'static str, Vec<Option<u64>>, &'static str);

/// The facts of each tensor of a snapshot.
pub(crate) fn facts<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Vec<TensorFacts> {
    let facts = |tensor: &Tensor| {
        let (name, logical) = (tensor.name().to_owned(), tensor.logical().name());
        (name, tensor.dtype().name(), tensor.sample_shape(), logical)
    };
    tensors.into_iter().map(facts).collect()
}

/// Parses a choice by name.
pub(crate) fn parsed<T: FromStr<Err = String>>(name: &str, text: &str) -> Result<T, Error> {
    text.parse().map_err(|why: String| {
        Error::new(ErrorKind::InvalidArgument, format!("{name}='{text}' is not known")).hint(why)
    })
}

/// A dataset to open. `patience` is in seconds. Without a cluster, rows come through the node of
/// this host, which is started from `node_bin` if it does not run. With the cluster `none` they
/// come from the origin directly.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct OpenRequest {
    uris: Vec<String>,
    cluster: Option<String>,
    manifest: Option<String>,
    write: Option<String>,
    local: bool,
    patience: f64,
    node_bin: Option<PathBuf>,
}

impl OpenRequest {
    fn options(&self) -> Result<OpenOptions, Error> {
        let Self { cluster, manifest, local, patience, node_bin, .. } = self;
        let patience = Duration::try_from_secs_f64(*patience).map_err(|error| {
            let what = format!("the patience can't be {patience} seconds");
            Error::new(ErrorKind::InvalidArgument, what).because(error)
        });
        let options = Inner::options().local(*local).patience(patience?);
        let node_bin = node_bin.clone();
        let options = match cluster.as_deref() {
            None => options.host_node(HostOptions { node_bin, ..HostOptions::default() }),
            Some("none") => options,
            Some(addresses) => options.cluster(addresses),
        };
        let write = self.write.as_deref().map(|text| parsed("write", text)).transpose()?;
        let options = write.into_iter().fold(options, OpenOptions::write);
        Ok(manifest.iter().fold(options, OpenOptions::manifest))
    }
}

#[pymethods]
impl Dataset {
    /// Opens a dataset. The progress goes to `reporter`.
    #[staticmethod]
    fn open(py: Python<'_>, request: OpenRequest, reporter: Option<Py<PyAny>>) -> PyResult<Self> {
        let is_shown = reporter.is_some();
        let options = request.options().or_raise(py)?;
        let inner = reporting(py, Reports::to(reporter), "opening", move |_, say| {
            let options = if is_shown { options.progress(move |step| say(step)) } else { options };
            options.open_all(&request.uris)
        });
        Ok(Self { inner: Arc::new(inner?) })
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.inner.samples()).unwrap_or(usize::MAX)
    }

    /// The address of the prefix, without tag or snapshot.
    #[getter]
    fn uri(&self) -> String {
        self.inner.name().reference.uri().to_string()
    }

    /// The address pinned to the snapshot.
    #[getter]
    fn pinned_uri(&self) -> String {
        self.inner.pinned_uri()
    }

    /// Names snapshot and selection: equal for equal samples in equal order.
    #[getter]
    fn view(&self) -> String {
        let digest = self.inner.view().digest();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Only these samples, by their numbers in this dataset.
    fn select_range(&self, py: Python<'_>, start: u64, end: u64) -> PyResult<Self> {
        Ok(Self { inner: Arc::new(self.inner.select(start..end).or_raise(py)?) })
    }

    /// Only the samples with these numbers, which ascend.
    fn select_indices(&self, py: Python<'_>, indices: PyBuffer<u64>) -> PyResult<Self> {
        let indices = indices.to_vec(py)?;
        Ok(Self { inner: Arc::new(self.inner.select(indices).or_raise(py)?) })
    }

    /// Only these columns, in this order.
    fn with_columns(&self, py: Python<'_>, names: Vec<String>) -> PyResult<Self> {
        Ok(Self { inner: Arc::new(self.inner.with_columns(&names).or_raise(py)?) })
    }

    /// Disjoint random parts of these sizes, which together have all samples.
    fn split(&self, py: Python<'_>, fractions: Vec<f64>, seed: u64) -> PyResult<Vec<Self>> {
        let parts = self.inner.split(&fractions, seed).or_raise(py)?;
        Ok(parts.into_iter().map(|inner| Self { inner: Arc::new(inner) }).collect())
    }

    /// The name of the snapshot, in hexadecimal digits.
    #[getter]
    fn snapshot(&self) -> String {
        self.inner.snapshot().to_string()
    }

    /// What the index noted about the columns, as a JSON document. Empty if nothing.
    #[getter]
    fn metadata(&self) -> String {
        self.inner.manifest().metadata().to_owned()
    }

    /// The columns that the index left out, each with the reason.
    #[getter]
    fn left_out(&self) -> BTreeMap<String, String> {
        columns_left_out(self.inner.manifest())
    }

    /// Facts of the node of this host, if this call to open started it.
    #[getter]
    fn started_node(&self) -> Option<StartedNode> {
        started(&*self.inner.cluster()?.host()?)
    }

    /// Whether rows come through nodes.
    #[getter]
    fn through_cluster(&self) -> bool {
        self.inner.cluster().is_some()
    }

    #[getter]
    fn tensors(&self) -> Vec<TensorFacts> {
        facts(self.inner.tensors())
    }

    /// The facts of all tensors of the snapshot, whatever columns are chosen.
    #[getter]
    fn all_tensors(&self) -> Vec<TensorFacts> {
        facts(self.inner.manifest().tensors())
    }

    /// Chosen samples of the named tensors, or of all: one array for each tensor. A ragged tensor
    /// has two: its elements, and the begin of each row in them.
    #[pyo3(signature = (indices, tensors, reporter=None))]
    fn take<'py>(
        &self,
        py: Python<'py>,
        indices: PyBuffer<i64>,
        tensors: Option<Vec<String>>,
        reporter: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let take = Arc::new(self.prepare(py, &indices, tensors.as_deref())?);
        let followed = Arc::clone(&take);
        let read =
            reading(py, reporter, move || followed.follow(), |cancel| take.read_unless(cancel));
        arrays(py, read?)
    }

    /// As [`take`](Self::take), into memory of the caller: `out` has one buffer for each tensor.
    #[pyo3(signature = (indices, tensors, out, reporter=None))]
    fn take_into(
        &self,
        py: Python<'_>,
        indices: PyBuffer<i64>,
        tensors: Vec<String>,
        out: Vec<PyBuffer<u8>>,
        reporter: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let take = Arc::new(self.prepare(py, &indices, Some(&tensors))?);
        let followed = Arc::clone(&take);
        let mut out: Vec<GivenBytes> =
            out.into_iter().map(GivenBytes::new).collect::<PyResult<_>>()?;
        reading(
            py,
            reporter,
            move || followed.follow(),
            |cancel| {
                let mut parts: Vec<&mut [u8]> = out.iter_mut().map(GivenBytes::bytes_mut).collect();
                take.fill(&mut parts, cancel)
            },
        )
    }

    /// Raises that there is no such sample, at this place of a list of indices if it came in one.
    fn refuse(&self, index: String, place: Option<usize>) -> PyResult<()> {
        Err(index_error(&self.inner.no_sample(index, place)))
    }

    /// The numbers of the samples with these keys, in their order, and which keys were found: one
    /// byte each. With `strict` a missing key raises.
    fn positions<'py>(
        &self,
        py: Python<'py>,
        keys: GivenKeys,
        strict: bool,
    ) -> PyResult<(Array, Bound<'py, PyBytes>)> {
        let keys = keys.taken(py)?;
        if !self.inner.has_keys_open() {
            let inner = Arc::clone(&self.inner);
            interruptible(py, move |_| inner.find([]).map(drop))?;
        }
        let found = py.detach(|| {
            let found = self.inner.find(keys.iter())?;
            let missing = strict.then(|| self.inner.missing(keys.iter(), &found)).flatten();
            missing.map_or(Ok(found), Err)
        });
        let found = found.or_raise(py)?;
        let mask: Vec<u8> = found.iter().map(|found| found.is_some().into()).collect();
        let found: Vec<u64> = found.into_iter().flatten().collect();
        Ok((Array::of_integers(py, &found)?, PyBytes::new(py, &mask)))
    }

    /// Consecutive samples of the named tensors, or of all: one array for each tensor. Rows of one
    /// shard in the memory of a node on this host are views.
    #[pyo3(signature = (start, end, tensors, reporter=None))]
    fn slice<'py>(
        &self,
        py: Python<'py>,
        start: u64,
        end: u64,
        tensors: Option<Vec<String>>,
        reporter: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        arrays(py, self.read(py, start..end, tensors.as_deref(), reporter)?)
    }

    /// One sample, as [`slice`](Self::slice), without the axis that counts samples. A row of a
    /// ragged tensor is one array. A negative index counts from the end.
    #[pyo3(signature = (index, reporter=None))]
    fn sample<'py>(
        &self,
        py: Python<'py>,
        index: i64,
        reporter: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let at = self.inner.position(index).map_err(|error| index_error(&error))?;
        let mut tensors = self.read(py, at..at + 1, None, reporter)?;
        for tensor in &mut tensors {
            if tensor.offsets.take().is_none() {
                tensor.shape.remove(0);
            }
        }
        arrays(py, tensors)
    }
}

impl Dataset {
    /// Consecutive samples.
    fn read(
        &self,
        py: Python<'_>,
        samples: Range<u64>,
        tensors: Option<&[String]>,
        reporter: Option<Py<PyAny>>,
    ) -> PyResult<Vec<HostTensor>> {
        let (inner, followed) = (Arc::clone(&self.inner), samples.clone());
        reading(
            py,
            reporter,
            move || inner.follow(followed.clone()),
            |cancel| self.inner.slice_unless(samples, tensors, cancel),
        )
    }

    /// Finds the rows of these indices. An index outside the dataset raises `IndexError`.
    fn prepare(
        &self,
        py: Python<'_>,
        indices: &PyBuffer<i64>,
        tensors: Option<&[String]>,
    ) -> PyResult<Take> {
        let indices = indices.to_vec(py)?;
        renew_credentials();
        py.detach(|| self.inner.take(&indices, tensors)).or_else(|error| {
            self.inner.check_indices(&indices).map_err(|error| index_error(&error))?;
            Err(error).or_raise(py)
        })
    }
}

/// Keys as Python gives them.
#[derive(FromPyObject)]
enum GivenKeys {
    Signed(PyBuffer<i64>),
    Unsigned(PyBuffer<u64>),
    Texts(Vec<Vec<u8>>),
}

/// Keys without the interpreter.
enum Keys {
    Signed(Vec<i64>),
    Unsigned(Vec<u64>),
    Texts(Vec<Vec<u8>>),
}

impl GivenKeys {
    fn taken(self, py: Python<'_>) -> PyResult<Keys> {
        Ok(match self {
            Self::Signed(keys) => Keys::Signed(keys.to_vec(py)?),
            Self::Unsigned(keys) => Keys::Unsigned(keys.to_vec(py)?),
            Self::Texts(keys) => Keys::Texts(keys),
        })
    }
}

impl Keys {
    fn iter(&self) -> impl Iterator<Item = Key<'_>> {
        let (signed, unsigned, texts): (&[i64], &[u64], &[Vec<u8>]) = match self {
            Self::Signed(keys) => (keys, &[], &[]),
            Self::Unsigned(keys) => (&[], keys, &[]),
            Self::Texts(keys) => (&[], &[], keys),
        };
        let integers = signed.iter().map(|&key| Key::Signed(key));
        let integers = integers.chain(unsigned.iter().map(|&key| Key::Unsigned(key)));
        integers.chain(texts.iter().map(|key| Key::Text(key)))
    }
}

/// Python's own exception for an index outside a sequence, which also ends a `for` loop.
fn index_error(error: &Error) -> PyErr {
    let hint = error.advice_text().map(|hint| format!("\nhint: {hint}"));
    PyIndexError::new_err(format!("{}{}", error.what(), hint.unwrap_or_default()))
}
