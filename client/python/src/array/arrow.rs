//! Columns of numpy exported by the Arrow C data interface, without a copy of their values.
//!
//! ```text
//! ArrowBatch ──▶ ArrayNode, one for each column ──▶ a schema and an array in two capsules
//!     └ Held: buffers of numpy, bits ◀── each array of the tree has a share, until it is released
//! ```
//!
//! Arrow packs booleans and masks as bits, so these are copied: a bit for each byte. Text is
//! checked here, because consumers rely on it.
//!
//! Thread rule: frozen. A consumer may release an array in any thread: the buffers take the
//! interpreter for that, and are left alone if it has ended.
//! Non-goals: the types. The package names each column's format.

use std::{ffi::CString, slice, sync::Arc};

use larder_client::{Error, ErrorKind};
use pyo3::{
    buffer::{PyBuffer, PyUntypedBuffer},
    exceptions::PyValueError,
    prelude::*,
    types::PyCapsule,
};

mod interface;

use crate::error::OrRaise;
use interface::capsule;

/// A column as the package gives it.
#[derive(FromPyObject)]
struct GivenColumn {
    name: String,
    /// Arrow's format of an element.
    format: String,
    /// The name of Arrow's extension type; empty for none.
    extension: String,
    /// The sides of one row. Of a ragged column, of an element.
    sides: Vec<i64>,
    #[pyo3(from_py_with = PyUntypedBuffer::get)]
    data: PyUntypedBuffer,
    offsets: Option<PyBuffer<i64>>,
    /// One byte for each row: whether it has a value.
    #[pyo3(from_py_with = if_given)]
    valid: Option<PyUntypedBuffer>,
}

/// The memory of all columns.
struct HeldColumns {
    _columns: Vec<GivenColumn>,
    _bits: Vec<Box<[u8]>>,
}

/// One array of the tree, and its type.
struct ArrayNode {
    format: CString,
    name: CString,
    metadata: Option<Box<[u8]>>,
    length: i64,
    null_count: i64,
    /// Addresses; 0 is Arrow's null pointer.
    buffers: Vec<usize>,
    children: Vec<ArrayNode>,
}

/// Columns of equal length for pyarrow, polars, pandas, DuckDB and others.
#[pyclass(frozen, module = "larder")]
pub(crate) struct ArrowBatch {
    root: ArrayNode,
    held: Arc<HeldColumns>,
}

#[pymethods]
impl ArrowBatch {
    #[new]
    fn new(py: Python<'_>, rows: i64, columns: Vec<GivenColumn>) -> PyResult<Self> {
        let mut bits = Vec::new();
        let children = columns.iter().map(|column| column.node(py, rows, &mut bits));
        let children = children.collect::<PyResult<Vec<_>>>()?;
        let root = ArrayNode { children, ..ArrayNode::new("+s", rows, vec![0]).or_raise(py)? };
        Ok(Self { root, held: Arc::new(HeldColumns { _columns: columns, _bits: bits }) })
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.root.length).expect("the length of a column")
    }

    fn __repr__(&self) -> String {
        let names = self.root.children.iter().map(|column| column.name.to_string_lossy());
        let names = names.collect::<Vec<_>>().join(", ");
        format!("<larder.ArrowBatch of {} rows: {names}>", self.root.length)
    }

    /// The type, for consumers of the Arrow C data interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule(py, self.root.schema())
    }

    /// The type and the values, for consumers of the Arrow C data interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema; // A producer may answer with its own types.
        Ok((capsule(py, self.root.schema())?, capsule(py, self.root.array(&self.held))?))
    }
}

impl GivenColumn {
    /// The column as an array of `rows` rows. Bits are added to `bits`.
    fn node(&self, py: Python<'_>, rows: i64, bits: &mut Vec<Box<[u8]>>) -> PyResult<ArrayNode> {
        let offsets = self.offsets.as_ref().map(integers);
        let valid = self.valid.as_ref().map(bytes);
        if !self.fits(rows, offsets, valid) {
            let what = format!("column '{}' does not have the rows of the others", self.name);
            return Err(Error::new(ErrorKind::InvalidArgument, what).hint("leave it out"))
                .or_raise(py);
        }
        let data = match &*self.format {
            "b" => packed(bytes(&self.data), bits),
            _ => self.data.buf_ptr().expose_provenance(),
        };
        let mut node = match offsets {
            None => self.values(&self.sides, rows, data),
            Some(offsets) => {
                if self.format == "U" {
                    self.check_text(offsets)?;
                }
                self.lists(offsets, data)
            }
        }
        .or_raise(py)?;
        if let Some(valid) = valid {
            node.buffers[0] = packed(valid, bits);
            node.null_count = count(valid.iter().filter(|&&valid| valid == 0).count());
        }
        node.name = c_string(&self.name).or_raise(py)?;
        node.metadata = (!self.extension.is_empty()).then(|| extension_metadata(&self.extension));
        Ok(node)
    }

    /// Whether the buffers have `rows` rows of this format.
    fn fits(&self, rows: i64, offsets: Option<&[i64]>, valid: Option<&[u8]>) -> bool {
        let has_rows = |length: usize, more: i64| rows >= 0 && count(length) == rows + more;
        let first = match offsets {
            None => Some(rows),
            Some(offsets) => {
                let ascend =
                    offsets.is_sorted() && offsets.first().is_some_and(|&first| first >= 0);
                offsets.last().copied().filter(|_| ascend && has_rows(offsets.len(), 1))
            }
        };
        let mut factors = self.sides.iter().copied().chain(width(&self.format));
        let bytes = first.and_then(|first| factors.try_fold(first, i64::checked_mul));
        let is_known = width(&self.format).is_some() && self.sides.iter().all(|&side| side >= 0);
        is_known
            && bytes.is_some_and(|bytes| bytes <= count(self.data.len_bytes()))
            && valid.is_none_or(|valid| has_rows(valid.len(), 0))
    }

    /// Rows of different lengths.
    fn lists(&self, offsets: &[i64], data: usize) -> Result<ArrayNode, Error> {
        let (rows, elements) = (count(offsets.len()) - 1, offsets[offsets.len() - 1]);
        let at = offsets.as_ptr().expose_provenance();
        if matches!(&*self.format, "U" | "Z") {
            return ArrayNode::new(&self.format, rows, vec![0, at, data]);
        }
        let children = vec![self.values(&self.sides, elements, data)?];
        Ok(ArrayNode { children, ..ArrayNode::new("+L", rows, vec![0, at])? })
    }

    /// `rows` rows with these sides: lists of fixed length around the values.
    fn values(&self, sides: &[i64], rows: i64, data: usize) -> Result<ArrayNode, Error> {
        let Some((&side, within)) = sides.split_first() else {
            return ArrayNode::new(&self.format, rows, vec![0, data]);
        };
        let children = vec![self.values(within, rows * side, data)?];
        Ok(ArrayNode { children, ..ArrayNode::new(&format!("+w:{side}"), rows, vec![0])? })
    }

    /// Checks that each row is UTF-8.
    fn check_text(&self, offsets: &[i64]) -> PyResult<()> {
        let at = |&offset: &i64| usize::try_from(offset).expect("checked");
        let (first, last) = (at(&offsets[0]), at(&offsets[offsets.len() - 1]));
        let (bytes, from) = (&bytes(&self.data)[first..last], |offset: i64| at(&offset) - first);
        let is_text = str::from_utf8(bytes)
            .is_ok_and(|text| offsets.iter().all(|&offset| text.is_char_boundary(from(offset))));
        if is_text {
            return Ok(());
        }
        let is_wrong = |row: &[i64]| str::from_utf8(&bytes[from(row[0])..from(row[1])]).is_err();
        let row = offsets.windows(2).position(is_wrong).unwrap_or(0);
        Err(PyValueError::new_err(format!(
            "row {row} of column '{}' is not UTF-8, as Arrow's text must be: leave the column out",
            self.name
        )))
    }
}

fn if_given(array: &Bound<'_, PyAny>) -> PyResult<Option<PyUntypedBuffer>> {
    (!array.is_none()).then(|| PyUntypedBuffer::get(array)).transpose()
}

/// The bytes of an array of numpy.
fn bytes(buffer: &PyUntypedBuffer) -> &[u8] {
    if buffer.len_bytes() == 0 {
        return &[];
    }
    assert!(buffer.is_c_contiguous(), "the package gives contiguous arrays");
    // SAFETY: the exporter keeps so many bytes at this address while the buffer is held. The
    // program must not write to them meanwhile, as for any array that is read.
    unsafe { slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) }
}

/// The elements of an array of integers.
fn integers(buffer: &PyBuffer<i64>) -> &[i64] {
    assert!(buffer.is_c_contiguous(), "the package gives contiguous arrays");
    // SAFETY: as above. The buffer was found to have integers of this type, aligned.
    unsafe { slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.item_count()) }
}

/// The address of bytes as bits, which are added to `bits`.
fn packed(bytes: &[u8], bits: &mut Vec<Box<[u8]>>) -> usize {
    let bit = |(at, &byte): (usize, &u8)| u8::from(byte != 0) << at;
    let byte = |eight: &[u8]| eight.iter().enumerate().map(bit).sum();
    let packed: Box<[u8]> = bytes.chunks(8).map(byte).collect();
    let address = packed.as_ptr().expose_provenance();
    bits.push(packed);
    address
}

fn count(length: usize) -> i64 {
    i64::try_from(length).expect("no slice is longer")
}

/// Bytes of an element of this format, as numpy stores it.
fn width(format: &str) -> Option<i64> {
    Some(match format {
        "b" | "c" | "C" | "U" | "Z" => 1,
        "s" | "S" | "e" => 2,
        "i" | "I" | "f" | "tdD" | "tts" | "ttm" => 4,
        "l" | "L" | "g" | "ttu" | "ttn" | "tss:" | "tsm:" | "tsu:" | "tsn:" | "tDs" | "tDm"
        | "tDu" | "tDn" => 8,
        _ => format.strip_prefix("w:")?.parse().ok().filter(|width| (1..=16).contains(width))?,
    })
}

fn c_string(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| {
        Error::new(ErrorKind::InvalidArgument, format!("Arrow has no column {text:?}"))
            .because("its name has a zero byte")
    })
}

/// The metadata that names an extension type, in Arrow's form: counts, lengths and bytes.
fn extension_metadata(extension: &str) -> Box<[u8]> {
    let pairs = [("ARROW:extension:name", extension), ("ARROW:extension:metadata", "")];
    let number = |length: usize| i32::try_from(length).expect("a short name").to_ne_bytes();
    let words = pairs.iter().flat_map(|(key, value)| [*key, *value]);
    let words = words.flat_map(|word| number(word.len()).into_iter().chain(word.bytes()));
    number(pairs.len()).into_iter().chain(words).collect()
}

impl ArrayNode {
    fn new(format: &str, length: i64, buffers: Vec<usize>) -> Result<Self, Error> {
        Ok(Self {
            format: c_string(format)?,
            name: c"item".to_owned(),
            metadata: None,
            length,
            null_count: 0,
            buffers,
            children: Vec::new(),
        })
    }
}
