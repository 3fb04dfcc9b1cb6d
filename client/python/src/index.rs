//! Indexing for Python.

use std::str::FromStr;

use larder_client::{
    Error, ErrorKind,
    admin::{
        Dtype, IndexOptions, Indexed, OriginUri, TokenSpec, WindowSpec, index_prefix,
        index_warnings, left_out_by_reason,
    },
};
use pyo3::{prelude::*, types::PyDict};

use crate::{
    dataset,
    error::OrRaise,
    wait::{Reports, reporting},
};

/// The options of the caller. [`IndexOptions`] describes each.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Request {
    uris: Vec<String>,
    tag: Option<String>,
    shard_bytes: Option<u64>,
    dtype: Option<String>,
    window: Option<u64>,
    stride: Option<u64>,
    column: Option<String>,
    between: Option<i64>,
    offset: Option<u64>,
    checksum: bool,
    manifest: Option<String>,
    write: Option<String>,
    key: Option<String>,
    include: Vec<String>,
    format: Option<String>,
    file_samples: bool,
    columns: Option<Vec<String>>,
    missing: Option<String>,
    bad: Option<String>,
}

impl Request {
    fn options(&self) -> Result<IndexOptions, Error> {
        let Self { tag, checksum, key, .. } = self;
        let manifest = self.manifest.as_deref().map(OriginUri::parse).transpose();
        let manifest = manifest.map_err(|error| {
            Error::new(ErrorKind::InvalidArgument, "the manifest can't go there").with_source(error)
        })?;
        let shard_bytes = self.shard_bytes.unwrap_or(IndexOptions::default().shard_bytes);
        let (tokens, checksum, tag) = (self.tokens()?, *checksum, tag.clone());
        Ok(IndexOptions {
            shard_bytes,
            include: self.include.clone(),
            format: chosen("format", self.format.as_deref())?,
            file_samples: self.file_samples,
            columns: self.columns.clone(),
            missing: chosen("missing", self.missing.as_deref())?,
            bad: chosen("bad", self.bad.as_deref())?,
            tokens,
            windows: self.windows()?,
            checksum,
            manifest,
            write: self.write.as_deref().map(|text| dataset::parsed("write", text)).transpose()?,
            tag,
            key: key.clone(),
        })
    }

    fn tokens(&self) -> Result<Option<TokenSpec>, Error> {
        let invalid = |what: String| Error::new(ErrorKind::InvalidArgument, what);
        if self.column.is_some() {
            return Ok(None);
        }
        match (&self.dtype, self.window) {
            (Some(name), Some(window)) => {
                let dtype = Dtype::from_numpy(name);
                let dtype = dtype.or_else(|| Dtype::from_safetensors_name(&name.to_uppercase()));
                let dtype = dtype.ok_or_else(|| {
                    invalid(format!("'{name}' is no type of tokens"))
                        .hint("examples are 'uint16' and 'int32'")
                })?;
                let stride = self.stride.unwrap_or(window);
                Ok(Some(TokenSpec { dtype, window, stride, offset: self.offset }))
            }
            (None, None) if self.stride.is_none() && self.offset.is_none() => Ok(None),
            _ => Err(invalid("flat token files need both dtype and window".to_owned())
                .hint("as in index(uri, dtype='uint16', window=2049, stride=2048)")),
        }
    }

    fn windows(&self) -> Result<Option<WindowSpec>, Error> {
        let Self { column, window, stride, between, dtype, offset, .. } = self;
        match (column.clone(), *window) {
            (Some(column), Some(window)) if dtype.is_none() && offset.is_none() => {
                let (stride, between) = (stride.unwrap_or(window), *between);
                Ok(Some(WindowSpec { column, window, stride, between }))
            }
            (None, _) if between.is_none() => Ok(None),
            _ => Err(Error::new(
                ErrorKind::InvalidArgument,
                "windows over documents need column and window, and neither dtype nor offset",
            )
            .hint("as in index(uri, column='tokens', window=1025, stride=1024)")),
        }
    }
}

/// Parses a choice by name; the default if none is given.
fn chosen<T: Default + FromStr<Err = String>>(
    name: &str,
    choice: Option<&str>,
) -> Result<T, Error> {
    choice.map_or_else(|| Ok(T::default()), |text| dataset::parsed(name, text))
}

/// Indexes the files under a prefix. An exception of `reporter` ends the indexing.
#[pyfunction]
pub(crate) fn index<'py>(
    py: Python<'py>,
    request: Request,
    reporter: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let options = request.options().or_raise(py)?;
    let uris = request.uris;
    let indexed = reporting(py, Reports::to(reporter), "indexing", move |cancel, say| {
        index_prefix(&uris, &options, &*say, cancel)
    });
    report(py, &indexed?)
}

fn report<'py>(py: Python<'py>, indexed: &Indexed) -> PyResult<Bound<'py, PyDict>> {
    let (manifest, report) = (&indexed.snapshot.manifest, PyDict::new(py));
    let left_out = indexed.left_out.iter();
    let left_out = left_out.map(|left| (&*left.object, left.tensor.as_deref(), &*left.why));
    report.set_item("snapshot", manifest.snapshot().to_string())?;
    report.set_item("samples", manifest.samples())?;
    report.set_item("shards", manifest.shard_count())?;
    report.set_item("bytes", manifest.total_bytes())?;
    report.set_item("tensors", dataset::facts(manifest.tensors()))?;
    report.set_item("left_out", left_out.collect::<Vec<_>>())?;
    let reasons = left_out_by_reason(&indexed.left_out);
    let reasons = reasons.iter().map(|group| (&*group.why, group.count));
    report.set_item("reasons", reasons.collect::<Vec<_>>())?;
    report.set_item("warnings", index_warnings(&indexed.snapshot))?;
    Ok(report)
}
