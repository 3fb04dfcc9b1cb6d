//! Folders of pictures, sound and video: a file is a sample. Only the listing is read, and the
//! `metadata.csv` or `metadata.jsonl` of a folder. So are folders of `.npy` files, if the user says
//! that each is a sample; then their headers are read too.
//!
//! The columns are `data`, the bytes or the array of the file, and `__key__`, its path. If all
//! files lie in folders, `label` is the number of the first folder, sorted by name, as
//! torchvision's `ImageFolder` has it. The names of these classes are metadata of the dataset.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use larder_base::limits;
use larder_formats::{
    Column, Fault, Inline, Logical, Rows, Spans, Table,
    metadata::{Metadata, parse_csv, parse_jsonl},
    shown,
};

use super::scan::in_file;
use crate::{
    DatasetError, Dtype, ObjectInfo, Origin, OriginUri,
    index::{
        LeftOut, LeftOuts, Progress, extension,
        npy::{self, Array},
    },
};

/// The columns that Larder adds.
const DATA: &str = "data";
const LABEL: &str = "label";
const KEY: &str = "__key__";

/// Largest metadata file, in bytes. Its values take several times as much memory.
const METADATA_BYTES_MAX: u64 = 64 << 20;

/// A file, and its column `data`.
type Sample = (ObjectInfo, Column);

/// Makes the columns of files whose rows are all their bytes.
pub(super) fn bytes(files: Vec<ObjectInfo>, left_out: &mut LeftOuts) -> Vec<Sample> {
    let logical =
        |file: &ObjectInfo| Logical::of_extension(&extension(&file.key).to_ascii_lowercase());
    let kinds: HashSet<Logical> = files.iter().map(logical).collect();
    // Files of several kinds have only their bytes in common.
    let logical = match kinds.into_iter().collect::<Vec<_>>()[..] {
        [only] => only,
        _ => Logical::Bytes,
    };
    let sample = |file: ObjectInfo| {
        let data = one_span(Dtype::U8, logical, Vec::new(), true, 0, file.size_bytes);
        in_range(file, data, left_out)
    };
    files.into_iter().filter_map(sample).collect()
}

/// Makes the columns of `.npy` files, from their headers. Rows differ in length if the files differ
/// in their first dimension.
pub(super) async fn arrays(
    origin: &Origin,
    uri: &OriginUri,
    files: Vec<ObjectInfo>,
    left_out: &mut LeftOuts,
    progress: Progress<'_>,
) -> Result<Vec<Sample>, DatasetError> {
    let headers = npy::arrays(origin, uri, files, left_out, progress).await?;
    let ragged = headers.windows(2).any(|pair| pair[0].1.shape != pair[1].1.shape);
    let sample = |(file, array): (ObjectInfo, Array)| {
        let shape = if ragged { array.shape.into_iter().skip(1).collect() } else { array.shape };
        let logical = Logical::of(array.dtype);
        let data = one_span(array.dtype, logical, shape, ragged, array.offset, array.bytes);
        in_range(file, data, left_out)
    };
    Ok(headers.into_iter().filter_map(sample).collect())
}

/// The column of one row at this place of a file. `None` if it has 4 GiB or more.
fn one_span(
    dtype: Dtype,
    logical: Logical,
    shape: Vec<u64>,
    ragged: bool,
    at: u64,
    bytes: u64,
) -> Option<Column> {
    let mut spans = Spans::default();
    spans.push(at, u32::try_from(bytes).ok()?);
    let rows = Rows::Spans(spans);
    let (name, absent) = (DATA.to_owned(), Vec::new());
    Some(Column { name, dtype, logical, shape, ragged, rows, absent })
}

fn in_range(file: ObjectInfo, data: Option<Column>, left_out: &mut LeftOuts) -> Option<Sample> {
    if data.is_none() {
        left_out.push(LeftOut::object(&file.key, "has 4 GiB or more, and a row has less"));
    }
    data.map(|data| (file, data))
}

/// Makes a table of each file, and the names of the classes as JSON.
pub(super) async fn tables(
    origin: &Origin,
    uri: &OriginUri,
    files: Vec<Sample>,
    metadata: Vec<ObjectInfo>,
    left_out: &mut LeftOuts,
) -> Result<(Vec<(ObjectInfo, Table)>, String), DatasetError> {
    let mut known = KnownColumns::default();
    for file in metadata {
        let object = uri.join(&file.key)?;
        let (bytes, _) = origin.get(&object, METADATA_BYTES_MAX).await?;
        let parse = if file.key.ends_with(".csv") { parse_csv } else { parse_jsonl };
        let parsed = parse(&bytes).map_err(|fault| in_file(fault, &object))?;
        let folder = file.key.rsplit_once('/').map_or("", |(folder, _)| folder);
        known.add(&file.key, folder, parsed).map_err(|fault| in_file(fault, &object))?;
    }
    // The metadata's own labels count, as in Hugging Face's `imagefolder`.
    let classes = if known.has_column(LABEL) { None } else { classes(&files) };
    let mut tables = Vec::with_capacity(files.len());
    for (mut file, data) in files {
        if file.etag.is_none() {
            file.etag = origin.head(&uri.join(&file.key)?).await?.etag;
        }
        let mut columns = vec![data];
        columns.extend(classes.as_ref().map(|classes| {
            let class = first_folder(&file.key).unwrap_or_default();
            let number =
                classes.binary_search_by(|name| name.as_str().cmp(class)).unwrap_or(0) as u64;
            column(LABEL, Dtype::I64, false, inline(&number.to_le_bytes()))
        }));
        columns.extend(known.columns_of(&file.key));
        columns.push(column(KEY, Dtype::U8, true, inline(file.key.as_bytes())));
        tables.push((file, Table { rows: 1, columns, ..Table::default() }));
    }
    known.leave_out_unused(left_out);
    let names = classes.map(|classes| serde_json::json!({ LABEL: { "names": classes } }));
    let mut names = names.map_or_else(String::new, |names| names.to_string());
    if names.len() as u64 > limits::METADATA_BYTES_MAX {
        let why = "its classes have names of more than 1 MiB together, so they have numbers only";
        left_out.extend(tables.first().map(|(file, _)| LeftOut::tensor(&file.key, LABEL, why)));
        names.clear();
    }
    Ok((tables, names))
}

/// Returns the names of the first folders, sorted, if every file lies in one, and there are two.
fn classes(files: &[Sample]) -> Option<Vec<String>> {
    let folders: Option<BTreeSet<&str>> =
        files.iter().map(|(file, _)| first_folder(&file.key)).collect();
    let folders = folders.filter(|folders| folders.len() > 1)?;
    Some(folders.into_iter().map(str::to_owned).collect())
}

fn first_folder(key: &str) -> Option<&str> {
    key.split_once('/').map(|(folder, _)| folder)
}

/// Makes a column of texts if it is ragged, else of numbers or booleans.
fn column(name: &str, dtype: Dtype, ragged: bool, rows: Rows) -> Column {
    let (name, shape, absent) = (name.to_owned(), Vec::new(), Vec::new());
    let logical = if ragged { Logical::Text } else { Logical::of(dtype) };
    Column { name, dtype, logical, shape, ragged, rows, absent }
}

fn inline(value: &[u8]) -> Rows {
    let mut values = Inline::default();
    values.push(value);
    Rows::Inline(values)
}

/// The columns of metadata files, and the row of each file in them.
#[derive(Default)]
struct KnownColumns {
    files: Vec<(String, Metadata)>,
    /// By the key of a file that has not come yet: the number of its metadata, and its row there.
    rows: BTreeMap<String, (usize, usize)>,
}

impl KnownColumns {
    /// Adds a metadata file, whose names count from `folder`.
    ///
    /// # Errors
    /// It has a column of Larder's own, or a file of another metadata file.
    fn add(&mut self, own: &str, folder: &str, metadata: Metadata) -> Result<(), Fault> {
        let mut names = metadata.columns.iter().map(|column| column.name.as_str());
        if let Some(name) = names.find(|name| [DATA, KEY].contains(name)) {
            let why = "is the name of a column that Larder adds: rename it";
            return Err(Fault::new(format!("column '{name}'"), why));
        }
        for (row, name) in metadata.file_names.iter().enumerate() {
            let key = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if let Some((other, _)) = self.rows.insert(key, (self.files.len(), row)) {
                let why = format!("is also listed in '{}': remove one", self.files[other].0);
                return Err(Fault::new(format!("file '{}'", shown(name)), why));
            }
        }
        self.files.push((own.to_owned(), metadata));
        Ok(())
    }

    fn has_column(&self, name: &str) -> bool {
        let columns = self.files.iter().flat_map(|(_, metadata)| &metadata.columns);
        columns.into_iter().any(|column| column.name == name)
    }

    /// Notes the rows of files that are not there.
    fn leave_out_unused(self, left_out: &mut LeftOuts) {
        for (number, (own, metadata)) in self.files.iter().enumerate() {
            let mut unused = self.rows.values().filter(|(file, _)| *file == number);
            if let Some((_, row)) = unused.next() {
                let (name, more) = (shown(&metadata.file_names[*row]), unused.count());
                let others = if more == 0 { String::new() } else { format!(" and {more} more") };
                let why = format!("lists '{name}'{others}, which is not under the prefix");
                left_out.push(LeftOut::object(own, why));
            }
        }
    }

    /// Returns the columns of one file. Those that it has no value for are left out.
    fn columns_of(&mut self, key: &str) -> Vec<Column> {
        let Some((file, row)) = self.rows.remove(key) else {
            return Vec::new();
        };
        let has_value = |absent: &[u64]| absent.binary_search(&(row as u64)).is_err();
        let columns = self.files[file].1.columns.iter();
        let columns = columns.filter(|found| has_value(&found.absent));
        let one = |found: &larder_formats::metadata::MetadataColumn| {
            column(&found.name, found.dtype, found.ragged, inline(found.values.value(row)))
        };
        columns.map(one).collect()
    }
}
