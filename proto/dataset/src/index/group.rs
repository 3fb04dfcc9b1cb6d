//! Chooses the tensors that make up the samples, and checks that all files agree on them.

use std::collections::{BTreeMap, BTreeSet};

use larder_formats::{Rows, Spans};

use super::{LeftOut, LeftOuts, shown};
use crate::{
    ColumnSpec, DatasetError, Dtype, GroupSpec, Layout, Logical, ObjectInfo, ObjectSpec, OriginUri,
    RowLocator, TensorSpec,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundTensor {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    /// The shape of one row.
    pub(super) shape: Vec<u64>,
    pub(super) rows: u64,
    /// Index of its file in the candidate.
    pub(super) file: usize,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// The bytes in the file of each row of a ragged tensor. Its shape is then that of an element,
    /// and its rows are the samples.
    pub(super) spans: Option<Spans>,
}

/// Files that may hold one run of samples: one file with several tensors, or one file for each
/// tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) files: Vec<ObjectInfo>,
    pub(super) tensors: Vec<FoundTensor>,
}

#[derive(Debug)]
pub(super) struct IndexPlan {
    pub(super) tensors: Vec<TensorSpec>,
    pub(super) groups: Vec<GroupSpec>,
}

impl Candidate {
    fn key_of(&self, tensor: &FoundTensor) -> &str {
        &self.files[tensor.file].key
    }

    /// Returns the leading dimension that most bytes share; of equals the larger.
    fn rows(&self) -> u64 {
        leading_rows(self.tensors.iter())
    }

    /// Returns the leading dimension that most bytes of the named tensors share.
    fn rows_of(&self, names: &BTreeSet<String>) -> u64 {
        leading_rows(self.tensors.iter().filter(|tensor| names.contains(&tensor.name)))
    }

    fn find(&self, name: &str) -> Option<&FoundTensor> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// Takes the places of a tensor's rows.
    fn take_column(&mut self, name: &str) -> Option<ColumnSpec> {
        let found = self.tensors.iter_mut().find(|tensor| tensor.name == name)?;
        let object = u32::try_from(found.file).expect("few files hold the same samples");
        let stride = found.bytes / found.rows;
        let rows = match found.spans.take() {
            Some(spans) => Rows::Spans(spans),
            None => Rows::Strided { begin: found.offset, stride },
        };
        Some(ColumnSpec { object, rows })
    }
}

impl FoundTensor {
    fn layout(&self) -> (RowLocator, Layout) {
        if self.spans.is_some() {
            return (RowLocator::Ragged, Layout::Spans);
        }
        let row_bytes = self.bytes / self.rows;
        (RowLocator::Strided { row_bytes, stride_bytes: row_bytes }, Layout::Column)
    }
}

fn leading_rows<'a>(tensors: impl Iterator<Item = &'a FoundTensor>) -> u64 {
    let mut bytes: BTreeMap<u64, u64> = BTreeMap::new();
    for tensor in tensors {
        let sum = bytes.entry(tensor.rows).or_default();
        *sum = sum.saturating_add(tensor.bytes);
    }
    let most = bytes.into_iter().max_by_key(|(rows, bytes)| (*bytes, *rows));
    most.map_or(0, |(rows, _)| rows)
}

/// Finds the tensors of the samples and concatenates the candidates, in their order.
///
/// The kind of candidate with the most bytes sets the tensors. Every other candidate must have the
/// same tensors, of the same dtype and shape. A candidate that has none of them is left out.
pub(super) fn plan(
    uri: &OriginUri,
    candidates: Vec<Candidate>,
    left_out: &mut LeftOuts,
) -> Result<IndexPlan, DatasetError> {
    let mut names = leading_names(&candidates);
    let (members, strangers): (Vec<_>, Vec<_>) = candidates
        .into_iter()
        .partition(|candidate| candidate.tensors.iter().any(|tensor| names.contains(&tensor.name)));
    for file in strangers.iter().flat_map(|candidate| &candidate.files) {
        left_out.push(LeftOut::object(&file.key, "has none of the tensors of the samples"));
    }
    drop_uneven(&members, &mut names);
    let model = check_agreement(uri, &members, &names)?;
    let spec = |tensor: &&FoundTensor| {
        let (locator, layout) = tensor.layout();
        let (name, dtype, shape) = (tensor.name.clone(), tensor.dtype, tensor.shape.clone());
        let logical = Logical::of(dtype);
        TensorSpec { name, dtype, logical, shape, locator, layout }
    };
    let tensors = model.iter().map(spec).collect();
    let groups = members.into_iter().map(|member| group(member, &names, left_out)).collect();
    Ok(IndexPlan { tensors, groups })
}

/// Returns the names of the sample tensors of the kind of candidate with the most bytes. Candidates
/// are of one kind if the same names share the leading dimension.
fn leading_names(candidates: &[Candidate]) -> BTreeSet<String> {
    let mut kinds: BTreeMap<BTreeSet<String>, u64> = BTreeMap::new();
    for candidate in candidates {
        let rows = candidate.rows();
        let of_samples = || candidate.tensors.iter().filter(|tensor| tensor.rows == rows);
        let names = of_samples().map(|tensor| tensor.name.clone()).collect();
        let bytes = of_samples().fold(0u64, |sum, tensor| sum.saturating_add(tensor.bytes));
        let sum = kinds.entry(names).or_default();
        *sum = sum.saturating_add(bytes);
    }
    kinds.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(names, _)| names).unwrap_or_default()
}

/// Drops names that have one row for each sample only in some files, by chance.
fn drop_uneven(members: &[Candidate], names: &mut BTreeSet<String>) {
    for member in members {
        let rows = member.rows_of(names);
        names.retain(|name| member.find(name).is_none_or(|tensor| tensor.rows == rows));
    }
}

/// Checks that every member has every named tensor, of one dtype and shape.
fn check_agreement<'a>(
    uri: &OriginUri,
    members: &'a [Candidate],
    names: &BTreeSet<String>,
) -> Result<Vec<&'a FoundTensor>, DatasetError> {
    let refused = |why| Err(DatasetError::Inconsistent { prefix: uri.clone(), why });
    let Some(first) = members.first() else {
        return refused("there are no samples".into());
    };
    if names.is_empty() {
        return refused("no tensor has one row for each sample in every file".into());
    }
    let mut model = Vec::with_capacity(names.len());
    for name in names {
        let name_shown = shown(name);
        let expected = members.iter().find_map(|member| member.find(name).map(|t| (member, t)));
        let Some((owner, expected)) = expected else {
            continue;
        };
        for member in members {
            let Some(tensor) = member.find(name) else {
                let (with, without) = (owner.key_of(expected), &member.files[0].key);
                return refused(format!(
                    "'{with}' has the tensor '{name_shown}' and '{without}' does not: index them under \
                     prefixes of their own"
                ));
            };
            if tensor.spans.is_some() != expected.spans.is_some() {
                let (is, is_not) = match tensor.spans {
                    Some(_) => (member.key_of(tensor), owner.key_of(expected)),
                    None => (owner.key_of(expected), member.key_of(tensor)),
                };
                return refused(format!(
                    "tensor '{name_shown}' has offsets, and so ragged rows, in '{is}' and none in \
                     '{is_not}'"
                ));
            }
            if (tensor.dtype, &tensor.shape) != (expected.dtype, &expected.shape) {
                return refused(format!(
                    "tensor '{name_shown}' is {} {:?} a row in '{}' and {} {:?} in '{}'",
                    expected.dtype,
                    expected.shape,
                    owner.key_of(expected),
                    tensor.dtype,
                    tensor.shape,
                    member.key_of(tensor),
                ));
            }
        }
        model.push(first.find(name).unwrap_or(expected));
    }
    Ok(model)
}

fn group(mut member: Candidate, names: &BTreeSet<String>, left_out: &mut LeftOuts) -> GroupSpec {
    let rows = member.rows_of(names);
    for tensor in member.tensors.iter().filter(|tensor| !names.contains(&tensor.name)) {
        let why = if tensor.rows == rows {
            "is not a tensor of the samples in every file".into()
        } else {
            format!("has {} rows where there are {rows} samples", tensor.rows)
        };
        left_out.push(LeftOut::tensor(member.key_of(tensor), &shown(&tensor.name), why));
    }
    let columns = names.iter().filter_map(|name| member.take_column(name)).collect();
    GroupSpec { rows, objects: member.files.iter().map(object).collect(), columns }
}

/// Converts a file to an object of the manifest.
pub(super) fn object(file: &ObjectInfo) -> ObjectSpec {
    ObjectSpec {
        key: file.key.clone(),
        etag: file.etag.clone(),
        version: file.version.clone(),
        size_bytes: file.size_bytes,
    }
}
