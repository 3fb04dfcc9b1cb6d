//! Where each tensor lies in the buffer of a batch: back to back, each at a page border.

use std::{iter, sync::Arc};

use larder_dataset::{Dtype, Manifest, RowLocator, Tensor};
use larder_wire::limits;

use crate::{Error, ErrorKind, HostTensor, Memory, RowsView, buffer::ALIGNMENT};

/// The tensors of a batch, and the bytes of a full one.
#[derive(Debug)]
pub(super) struct Layout {
    columns: Box<[Column]>,
    buffer_bytes: usize,
}

/// One tensor of a batch.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: Arc<str>,
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
        let mut columns = Vec::with_capacity(tensors.len());
        let mut buffer_bytes = 0;
        for (slot, &index) in tensors.iter().enumerate() {
            let tensor = &manifest.tensors()[index];
            if tensors[..slot].contains(&index) {
                return Err(invalid(format!("tensor '{}' is asked for twice", tensor.name())));
            }
            let (column, end) = Column::after(buffer_bytes, tensor, rows)?;
            columns.push(column);
            buffer_bytes = end;
        }
        Ok(Arc::new(Self { columns: columns.into(), buffer_bytes }))
    }

    /// Bytes of a buffer for a full batch.
    pub(super) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Bytes of one row of all tensors.
    pub(super) fn row_bytes(&self) -> usize {
        self.columns.iter().map(|column| column.row_bytes).sum()
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The numbers of the columns' tensors in a manifest, in their order.
    ///
    /// # Errors
    /// `InvalidArgument` if it has not the same: with the same name, elements and shape of a sample.
    pub(super) fn tensors_in(&self, manifest: &Manifest) -> Result<Box<[usize]>, Error> {
        let number = |column: &Column| {
            let index = tensor_index(manifest, &column.name)?;
            let tensor = &manifest.tensors()[index];
            if tensor.dtype() == column.dtype && tensor.shape() == &*column.shape {
                return Ok(index);
            }
            let (name, dtype, shape) = (&column.name, column.dtype, &column.shape);
            let (its_dtype, its_shape) = (tensor.dtype(), tensor.shape());
            Err(invalid(format!(
                "tensor '{name}' is {its_dtype} {its_shape:?} where others have {dtype} {shape:?}"
            )))
        };
        self.columns.iter().map(number).collect()
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

    /// The tensors of `rows` rows, in the memory that a buffer has become.
    pub(super) fn lift(&self, memory: &Memory, rows: usize) -> Vec<HostTensor> {
        let part = |column: &Column| memory.part(column.offset, rows * column.row_bytes);
        self.columns.iter().map(|column| column.tensor(rows, part(column))).collect()
    }

    /// The tensors of `rows` rows that are seen where they lie, in the order of the columns.
    pub(super) fn lift_views(&self, views: &[RowsView], rows: usize) -> Vec<HostTensor> {
        let columns = self.columns.iter().zip(views);
        columns.map(|(column, view)| column.tensor(rows, view.lend())).collect()
    }
}

impl Column {
    /// The column of a tensor that begins at `offset` of the buffer, and where the next may begin.
    fn after(offset: usize, tensor: &Tensor, rows: u32) -> Result<(Self, usize), Error> {
        let (name, row_bytes) = (tensor.name(), tensor.row_bytes());
        if tensor.locator() == RowLocator::Spans {
            return Err(invalid(format!("tensor '{name}' has rows of different lengths"))
                .hint("they can't be batched yet: name the other tensors with tensors([...])"));
        }
        let column = usize::try_from(row_bytes).ok().map(|row_bytes| Self {
            name: name.into(),
            dtype: tensor.dtype(),
            shape: tensor.shape().into(),
            row_bytes,
            offset,
        });
        // An allocation is at most isize::MAX bytes, with room to align it.
        let ended = column.and_then(|column| {
            let bytes = column.row_bytes.checked_mul(usize::try_from(rows).ok()?)?;
            let end = bytes.checked_next_multiple_of(ALIGNMENT)?.checked_add(offset)?;
            isize::try_from(end.checked_add(ALIGNMENT)?).ok()?;
            Some((column, end))
        });
        ended.ok_or_else(|| {
            let batch = format!("a batch of {rows} rows of {row_bytes} bytes of tensor '{name}'");
            invalid(format!("{batch} is more than memory can hold")).hint("lower the batch size")
        })
    }

    fn tensor(&self, rows: usize, memory: Memory) -> HostTensor {
        HostTensor {
            name: Arc::clone(&self.name),
            dtype: self.dtype,
            shape: iter::once(rows as u64).chain(self.shape.iter().copied()).collect(),
            memory,
        }
    }

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
        let names: Vec<_> = manifest.tensors().iter().map(Tensor::name).collect();
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
