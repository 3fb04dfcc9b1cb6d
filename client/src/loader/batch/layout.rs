//! The place of each tensor in the buffer of a batch: back to back, each at a page boundary. Ragged
//! tensors follow the others: see [`Ragged`].

mod decode;
mod ragged;

use std::{iter, mem, ops::Range, sync::Arc};

use larder_base::limits;
use larder_dataset::{Dtype, Logical, Manifest, Tensor, columns_left_out};

use crate::{Error, ErrorKind, HostTensor, Memory, RowsView, memory::ALIGNMENT};
use ragged::RaggedRows;

pub use decode::Decode;
pub(in crate::loader) use ragged::{Ragged, with_slack};

/// The tensors of a batch, and the bytes of a full one without ragged tensors.
#[derive(Debug)]
pub(in crate::loader) struct BatchLayout {
    columns: Box<[Column]>,
    buffer_bytes: usize,
    is_ragged: bool,
}

/// One tensor of a batch.
#[derive(Debug)]
pub(in crate::loader) struct Column {
    pub(in crate::loader) name: Arc<str>,
    pub(in crate::loader) dtype: Dtype,
    pub(in crate::loader) logical: Logical,
    /// The shape of one sample. For a ragged tensor, of an element.
    pub(in crate::loader) shape: Box<[u64]>,
    /// 0 for a ragged tensor.
    pub(in crate::loader) row_bytes: usize,
    pub(in crate::loader) is_ragged: bool,
    /// What its encoded rows become.
    pub(in crate::loader) decode: Option<Decode>,
    offset: usize,
}

impl BatchLayout {
    /// The layout of batches of up to `rows` rows, with the named tensors or all.
    ///
    /// # Errors
    /// A name is unknown or given twice, no name is given, or the batch exceeds the address space.
    pub(in crate::loader) fn new(
        manifest: &Manifest,
        names: Option<&[String]>,
        rows: u32,
    ) -> Result<Arc<Self>, Error> {
        Self::decoded(manifest, names, rows, |_| None)
    }

    /// As [`new`](Self::new). `decode` returns what the rows of a tensor become, if they are to be
    /// decoded.
    pub(in crate::loader) fn decoded(
        manifest: &Manifest,
        names: Option<&[String]>,
        rows: u32,
        decode: impl Fn(&str) -> Option<Decode>,
    ) -> Result<Arc<Self>, Error> {
        let tensors: Box<[usize]> = match names {
            Some(names) => {
                names.iter().map(|name| tensor_index(manifest, name)).collect::<Result<_, _>>()?
            }
            None => (0..manifest.tensors().len()).collect(),
        };
        if tensors.is_empty() {
            return Err(invalid("no tensor is asked for")
                .hint("name at least one, or leave tensors out to get all"));
        }
        let mut columns = Vec::with_capacity(tensors.len());
        let mut buffer_bytes = 0;
        for (slot, &index) in tensors.iter().enumerate() {
            let tensor = &manifest.tensors()[index];
            if tensors[..slot].contains(&index) {
                return Err(invalid(format!("tensor '{}' is asked for twice", tensor.name())));
            }
            let decode = decode(tensor.name());
            decode.map_or(Ok(()), |decode| decode.check(tensor))?;
            let (column, end) = Column::after(buffer_bytes, tensor, rows, decode)?;
            columns.push(column);
            buffer_bytes = end;
        }
        let is_ragged = columns.iter().any(|column: &Column| column.is_ragged);
        Ok(Arc::new(Self { columns: columns.into(), buffer_bytes, is_ragged }))
    }

    /// Bytes of a full batch without ragged tensors.
    pub(in crate::loader) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Whether it has a ragged tensor.
    pub(in crate::loader) fn is_ragged(&self) -> bool {
        self.is_ragged
    }

    pub(in crate::loader) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The index of each column's tensor in a manifest.
    ///
    /// # Errors
    /// `NotFound` if a tensor is missing, `InvalidArgument` if it has other elements or another
    /// shape.
    pub(in crate::loader) fn tensors_in(&self, manifest: &Manifest) -> Result<Box<[usize]>, Error> {
        let number = |column: &Column| {
            let index = tensor_index(manifest, &column.name)?;
            let tensor = &manifest.tensors()[index];
            if let Some(decode) = &column.decode {
                return decode.check(tensor).map(|()| index);
            }
            let is_alike = tensor.is_ragged() == column.is_ragged;
            let same_type = tensor.dtype() == column.dtype && tensor.shape() == &*column.shape;
            let same_meaning = rows_of(tensor.logical()) == rows_of(column.logical);
            if same_type && same_meaning && is_alike {
                return Ok(index);
            }
            if same_type && is_alike {
                let (name, its, others) = (&column.name, tensor.logical(), column.logical);
                return Err(invalid(format!(
                    "tensor '{name}' is {its} in some and {others} in others"
                )));
            }
            if !is_alike {
                let name = &column.name;
                return Err(invalid(format!(
                    "tensor '{name}' is ragged in some and not in others"
                )));
            }
            let (name, dtype, shape) = (&column.name, column.dtype, &column.shape);
            let (its_dtype, its_shape) = (tensor.dtype(), tensor.shape());
            Err(invalid(format!(
                "tensor '{name}' is {its_dtype} {its_shape:?} where others have {dtype} {shape:?}"
            )))
        };
        self.columns.iter().map(number).collect()
    }

    /// The range in a buffer of `rows` rows of a column.
    pub(in crate::loader) fn range(
        &self,
        column: usize,
        rows: usize,
        ragged: &Ragged,
    ) -> Range<usize> {
        let Column { offset, row_bytes, .. } = self.columns[column];
        match ragged.of(column) {
            None => offset..offset + rows * row_bytes,
            Some(of) => of.at..of.at + of.bytes(),
        }
    }

    /// The range of each column.
    pub(in crate::loader) fn ranges(&self, rows: usize, ragged: &Ragged) -> Box<[Range<usize>]> {
        (0..self.columns.len()).map(|column| self.range(column, rows, ragged)).collect()
    }

    /// Splits a buffer into the parts for `rows` rows of each tensor.
    pub(in crate::loader) fn split<'a>(
        &self,
        buffer: &'a mut [u8],
        rows: usize,
        ragged: &Ragged,
    ) -> Vec<&'a mut [u8]> {
        let (mut even, mut behind) = buffer.split_at_mut(self.buffer_bytes);
        let (mut even_at, mut behind_at) = (0, self.buffer_bytes);
        let part = |column| {
            let Range { start, end } = self.range(column, rows, ragged);
            let (rest, at) = match ragged.of(column) {
                None => (&mut even, &mut even_at),
                Some(_) => (&mut behind, &mut behind_at),
            };
            // The ranges of each kind ascend.
            let (_, from_start) = mem::take(rest).split_at_mut(start - *at);
            let (part, after) = from_start.split_at_mut(end - start);
            (*rest, *at) = (after, end);
            part
        };
        (0..self.columns.len()).map(part).collect()
    }

    /// The tensors of `rows` rows, in memory made of a buffer.
    pub(in crate::loader) fn lift(
        &self,
        memory: &Memory,
        rows: usize,
        ragged: &Ragged,
    ) -> Vec<HostTensor> {
        let ranges = self.ranges(rows, ragged).into_iter();
        let parts = ranges.map(|range| memory.part(range.start, range.len()));
        self.name_each(parts, rows, ragged).collect()
    }

    /// The tensors of `rows` rows viewed in place, in the order of the columns.
    ///
    /// # Errors
    /// As [`RowsView::private_view`].
    pub(in crate::loader) fn lift_views(
        &self,
        views: &[RowsView],
        rows: usize,
        ragged: &Ragged,
    ) -> Result<Vec<HostTensor>, Error> {
        let lent = views.iter().map(RowsView::private_view).collect::<Result<Vec<_>, _>>()?;
        Ok(self.name_each(lent, rows, ragged).collect())
    }

    /// The tensors of these memories, one for each column.
    fn name_each(
        &self,
        memories: impl IntoIterator<Item = Memory>,
        rows: usize,
        ragged: &Ragged,
    ) -> impl Iterator<Item = HostTensor> {
        let columns = self.columns.iter().enumerate();
        columns.zip(memories).map(move |((index, column), memory)| {
            let rows = ColumnRows { rows, ragged: ragged.of(index) };
            HostTensor {
                name: Arc::clone(&column.name),
                dtype: column.dtype,
                logical: column.logical,
                shape: column.shape_of(rows),
                memory,
                offsets: rows.ragged.map(|of| Arc::clone(&of.offsets)),
            }
        })
    }
}

/// The number of rows of a column, and their offsets if it is ragged.
#[derive(Debug, Clone, Copy)]
pub(in crate::loader) struct ColumnRows<'a> {
    pub(in crate::loader) rows: usize,
    pub(in crate::loader) ragged: Option<&'a RaggedRows>,
}

impl Column {
    /// The column of a tensor at `offset` of the buffer, and the offset of the next column.
    fn after(
        offset: usize,
        tensor: &Tensor,
        rows: u32,
        decode: Option<Decode>,
    ) -> Result<(Self, usize), Error> {
        let name = tensor.name();
        let (dtype, logical, shape, row_bytes) = match &decode {
            None => {
                let shape = tensor.shape().into();
                (tensor.dtype(), tensor.logical(), shape, tensor.row_bytes())
            }
            Some(decode) => {
                let (dtype, shape) = (decode.dtype(), decode.shape());
                let row_bytes = shape.iter().product::<u64>() * dtype.size_bytes();
                (dtype, Logical::of(dtype), shape, row_bytes)
            }
        };
        let is_ragged = tensor.is_ragged() && decode.is_none();
        let column = usize::try_from(row_bytes).ok().map(|row_bytes| Self {
            name: name.into(),
            dtype,
            logical,
            shape,
            row_bytes,
            is_ragged,
            decode,
            offset,
        });
        // An allocation has at most isize::MAX bytes, with room for alignment.
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

    pub(in crate::loader) fn shape_of(&self, rows: ColumnRows<'_>) -> Vec<u64> {
        let first = rows.ragged.map_or(rows.rows as u64, RaggedRows::elements);
        iter::once(first).chain(self.shape.iter().copied()).collect()
    }
}

/// The index of the tensor with this name.
///
/// # Errors
/// `NotFound` with the existing names.
pub(crate) fn tensor_index(manifest: &Manifest, name: &str) -> Result<usize, Error> {
    manifest.tensor_index(name).ok_or_else(|| {
        let names: Vec<_> = manifest.tensors().iter().map(Tensor::name).collect();
        let missing = format!("the dataset has no tensor '{name}'");
        let missing = Error::new(ErrorKind::NotFound, missing);
        let missing = match columns_left_out(manifest).remove(name) {
            Some(why) => missing.because(format!("the index left it out: it {why}")),
            None => missing,
        };
        missing.hint(format!("its tensors are: {}", names.join(", ")))
    })
}

/// Checks the rows of a batch against the limit of one gather.
pub(in crate::loader) fn check_rows(rows: u32) -> Result<(), Error> {
    let limit = limits::GATHER_ROWS_MAX;
    if rows <= limit {
        return Ok(());
    }
    Err(invalid(format!(
        "the batch size is {rows} where at most {limit} samples are fetched at once"
    )))
}

/// The names of the tensors that all datasets have with the same elements and sample shape, in the
/// order of the first dataset.
///
/// # Errors
/// `InvalidArgument` if the datasets share no tensor.
pub(crate) fn common_tensors<'a>(
    first: &'a Manifest,
    others: impl Iterator<Item = &'a Manifest>,
) -> Result<Vec<String>, Error> {
    let mut common: Vec<&Tensor> = first.tensors().iter().collect();
    for other in others {
        common.retain(|tensor| other.tensors().iter().any(|its| alike(tensor, its)));
        if common.is_empty() {
            let (first, other) = (first.uri(), other.uri());
            return Err(invalid(format!("cannot mix {first} with {other}"))
                .because("no tensor has the same name, elements and shape in all")
                .hint("mix datasets that have some tensor in common"));
        }
    }
    Ok(common.into_iter().map(|tensor| tensor.name().to_owned()).collect())
}

/// Checks names of columns.
///
/// # Errors
/// `NotFound` for one that the snapshot does not have. `InvalidArgument` for none, or for one that
/// comes twice.
pub(crate) fn check_columns(manifest: &Manifest, names: &[String]) -> Result<(), Error> {
    BatchLayout::new(manifest, Some(names), 1).map(drop)
}

fn alike(one: &Tensor, other: &Tensor) -> bool {
    let kind = |tensor: &Tensor| (tensor.dtype(), rows_of(tensor.logical()), tensor.sample_shape());
    one.name() == other.name() && kind(one) == kind(other)
}

/// The meaning of rows as far as datasets must agree on it: pictures and sound are bytes.
fn rows_of(logical: Logical) -> Logical {
    match logical {
        Logical::Image | Logical::Sound => Logical::Bytes,
        other => other,
    }
}

pub(in crate::loader) fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, what)
}
