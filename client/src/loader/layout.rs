//! Where each tensor lies in the buffer of a batch: back to back, each at a page border.

use std::sync::Arc;

use larder_dataset::{Dtype, Manifest, RowLocator};
use larder_wire::limits;

use crate::{Error, ErrorKind, buffer::ALIGNMENT};

/// The tensors of a batch, and the bytes of a full one.
#[derive(Debug)]
pub(super) struct Layout {
    columns: Box<[Column]>,
    /// The columns' tensors, by their numbers in the manifest.
    tensors: Box<[usize]>,
    buffer_bytes: usize,
}

/// One tensor of a batch.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: Box<str>,
    pub(super) dtype: Dtype,
    /// Of one sample.
    pub(super) shape: Box<[u64]>,
    pub(super) row_bytes: usize,
    offset: usize,
}

impl Layout {
    /// Batches of up to `rows` rows of the tensors with these names, or of all tensors.
    ///
    /// # Errors
    /// For a name that the dataset has not or that is given twice, for tensors whose rows differ in
    /// length, and for a batch that can't be addressed.
    pub(super) fn new(
        manifest: &Manifest,
        names: Option<&[String]>,
        rows: u32,
    ) -> Result<Arc<Self>, Error> {
        let tensors: Box<[usize]> = match names {
            Some(names) => {
                names.iter().map(|name| tensor_index(manifest, name)).collect::<Result<_, _>>()?
            }
            None => (0..manifest.tensors().len()).collect(),
        };
        let mut layout = Self { columns: Box::default(), tensors, buffer_bytes: 0 };
        let mut columns = Vec::with_capacity(layout.tensors.len());
        for (slot, &index) in layout.tensors.iter().enumerate() {
            let tensor = &manifest.tensors()[index];
            if layout.tensors[..slot].contains(&index) {
                return Err(invalid(format!("tensor '{}' is asked for twice", tensor.name())));
            }
            if tensor.locator() == RowLocator::Spans {
                let what = format!("tensor '{}' has rows of different lengths", tensor.name());
                return Err(invalid(what).hint("batches of such tensors are not supported yet: leave it out with tensors([...])"));
            }
            let row_bytes = usize::try_from(tensor.row_bytes()).ok();
            let end = row_bytes
                .and_then(|bytes| bytes.checked_mul(usize::try_from(rows).ok()?))
                .and_then(|bytes| bytes.checked_next_multiple_of(ALIGNMENT))
                .and_then(|bytes| bytes.checked_add(layout.buffer_bytes))
                .filter(|&end| isize::try_from(end + ALIGNMENT).is_ok());
            let (Some(row_bytes), Some(end)) = (row_bytes, end) else {
                let what = format!(
                    "a batch of {rows} rows of {} bytes of tensor '{}' is more than memory can hold",
                    tensor.row_bytes(),
                    tensor.name()
                );
                return Err(invalid(what).hint("lower the batch size"));
            };
            columns.push(Column {
                name: tensor.name().into(),
                dtype: tensor.dtype(),
                shape: tensor.shape().into(),
                row_bytes,
                offset: layout.buffer_bytes,
            });
            layout.buffer_bytes = end;
        }
        layout.columns = columns.into();
        Ok(Arc::new(layout))
    }

    /// Bytes of a buffer for a full batch.
    pub(super) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The numbers of the tensors in the manifest, in the order of the columns.
    pub(super) fn tensors(&self) -> &[usize] {
        &self.tensors
    }

    /// The parts of a buffer that `rows` rows of each tensor go into.
    pub(super) fn split<'a>(&self, buffer: &'a mut [u8], rows: usize) -> Vec<&'a mut [u8]> {
        let mut parts = Vec::with_capacity(self.columns.len());
        let (mut rest, mut passed) = (buffer, 0);
        for column in &self.columns {
            let (part, after) =
                rest[column.offset - passed..].split_at_mut(rows * column.row_bytes);
            passed = column.offset + part.len();
            parts.push(part);
            rest = after;
        }
        parts
    }
}

impl Column {
    /// The first `rows` rows of this tensor.
    pub(super) fn of<'a>(&self, buffer: &'a [u8], rows: usize) -> &'a [u8] {
        &buffer[self.offset..][..rows * self.row_bytes]
    }
}

/// The number of the tensor with this name.
///
/// # Errors
/// `InvalidArgument` with the names there are.
pub(crate) fn tensor_index(manifest: &Manifest, name: &str) -> Result<usize, Error> {
    manifest.tensor_index(name).ok_or_else(|| {
        let names: Vec<_> = manifest.tensors().iter().map(|tensor| tensor.name()).collect();
        invalid(format!("the dataset has no tensor '{name}'"))
            .hint(format!("its tensors are: {}", names.join(", ")))
    })
}

/// The rows of a batch, checked against what one gather may have.
pub(super) fn check_rows(rows: u32) -> Result<(), Error> {
    let limit = limits::GATHER_ROWS_MAX;
    if rows <= limit {
        return Ok(());
    }
    Err(invalid(format!(
        "the batch size is {rows} where at most {limit} samples are fetched at once"
    )))
}

pub(super) fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, what)
}
