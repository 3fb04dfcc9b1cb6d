//! Checks the arguments of a gather against the snapshot.

use larder_base::{ErrorKind, RowRef, limits};
use larder_dataset::{Manifest, RowPlaces, Tensor};
use larder_wire::data::DistinctShards;

use crate::{
    Error,
    remote::{Lengths, Placed},
};

/// The tensors of a gather.
pub(super) struct Checked<'a> {
    /// By their index in the wire format.
    pub(super) tensors: Vec<u16>,
    pub(super) lengths: Vec<Lengths<'a>>,
    /// Bytes of one row, over all tensors of fixed row length.
    even_bytes: u64,
    /// Bytes of all rows of ragged tensors.
    ragged_bytes: u64,
}

impl Checked<'_> {
    pub(super) fn bytes(&self, rows: usize) -> u64 {
        rows as u64 * self.even_bytes + self.ragged_bytes
    }

    pub(super) fn bytes_at(&self, places: &[u32]) -> u64 {
        let ragged = self.lengths.iter().filter(|lengths| matches!(lengths, Lengths::Ragged(_)));
        let ragged: usize = ragged.map(|lengths| lengths.sum(places)).sum();
        places.len() as u64 * self.even_bytes + ragged as u64
    }
}

/// Checks that the buffers fit the tensors and rows. All rows exist.
pub(super) fn check<'a>(
    places: &RowPlaces,
    placed: Placed<'a>,
    tensors: &[usize],
    out: &[&mut [u8]],
) -> Result<Checked<'a>, Error> {
    let known = places.manifest().tensors();
    let tensors_max = limits::GATHER_TENSORS_MAX as usize;
    if tensors.len() != out.len() || tensors.len() > tensors_max {
        return refused(format!(
            "{} tensors into {} buffers; one each, and at most {tensors_max}",
            tensors.len(),
            out.len()
        ));
    }
    if u32::try_from(placed.rows.len()).is_err() {
        return refused(format!(
            "{} rows in one call, the limit is {}",
            placed.rows.len(),
            u32::MAX
        ));
    }
    let (mut even_bytes, mut ragged_bytes) = (0, 0);
    let (mut numbers, mut lengths) = (Vec::with_capacity(out.len()), Vec::with_capacity(out.len()));
    for (slot, (&tensor, out)) in tensors.iter().zip(out).enumerate() {
        let Some(known) = known.get(tensor) else {
            return refused(format!("there is no tensor {tensor}, only {}", known.len()));
        };
        lengths.push(if known.is_ragged() {
            let (bytes, begins) = check_ragged(places, placed, slot, tensor, out.len())?;
            ragged_bytes += bytes;
            Lengths::Ragged(begins)
        } else {
            let bytes = check_even(placed, known, out.len())?;
            even_bytes += bytes as u64;
            Lengths::Even(bytes)
        });
        numbers.push(u16::try_from(tensor).expect("a dataset has at most 4,096 tensors"));
    }
    Ok(Checked { tensors: numbers, lengths, even_bytes, ragged_bytes })
}

/// Returns the bytes of each row, if the buffer fits rows of that length.
fn check_even(placed: Placed<'_>, tensor: &Tensor, out: usize) -> Result<usize, Error> {
    let bytes = usize::try_from(tensor.row_bytes()).unwrap_or(0);
    if bytes > 0 && out.is_multiple_of(bytes) && placed.fits(out / bytes) {
        return Ok(bytes);
    }
    let (rows, name) = (placed.rows.len(), tensor.name());
    refused(format!("{rows} rows of {bytes} bytes of tensor {name} do not fill {out} bytes"))
}

/// Returns the bytes of all rows of a ragged tensor and their offsets, if the buffer fits exactly
/// these rows.
fn check_ragged<'a>(
    places: &RowPlaces,
    placed: Placed<'a>,
    slot: usize,
    tensor: usize,
    out: usize,
) -> Result<(u64, &'a [usize]), Error> {
    let begins = placed.begins(slot).unwrap_or_default();
    let room = begins.len().saturating_sub(1);
    let mut bytes = 0;
    let mut fits = begins.last() == Some(&out) && placed.fits(room);
    for (place, row) in placed.iter() {
        let length = places.row(row, tensor).1;
        let place = place as usize;
        fits = fits
            && begins[place].checked_add(usize::try_from(length).unwrap_or(usize::MAX))
                == Some(begins[place + 1]);
        bytes += length;
    }
    if fits {
        return Ok((bytes, begins));
    }
    let (rows, name) = (placed.rows.len(), places.manifest().tensors()[tensor].name());
    refused(format!("{rows} rows of tensor {name}, {bytes} bytes, do not fill {out} bytes"))
}

/// Checks that all rows exist.
pub(super) fn check_rows(
    manifest: &Manifest,
    rows: &[RowRef],
    shards: &DistinctShards,
) -> Result<(), Error> {
    let count = manifest.shard_count();
    let rows_of = |&shard: &u32| match shard < count {
        true => manifest.shard(shard).rows,
        false => 0,
    };
    let row_counts: Vec<u32> = shards.shards().iter().map(rows_of).collect();
    let mut checked = rows.iter().zip(shards.of_rows());
    match checked.find(|&(row, &shard)| row.row >= row_counts[shard as usize]) {
        None => Ok(()),
        Some((RowRef { shard, row }, _)) => {
            refused(format!("there is no row {row} in a shard {shard} of {count} shards"))
        }
    }
}

/// The offsets of rows that lie back to back, by place, and the end of the last.
///
/// # Errors
/// `ResourceExhausted` if they and `before` bytes of other rows exceed the limit of a batch.
pub(crate) fn begins(
    tensor: &str,
    lengths: impl ExactSizeIterator<Item = u64>,
    before: u64,
) -> Result<Box<[usize]>, Error> {
    let rows = lengths.len();
    let mut begins = Vec::with_capacity(rows + 1);
    let (mut end, limit) = (0u64, limits::RAGGED_BATCH_BYTES_MAX.saturating_sub(before));
    begins.push(0);
    for bytes in lengths {
        end = end.saturating_add(bytes);
        if end > limit {
            let limit = limits::RAGGED_BATCH_BYTES_MAX;
            let what = format!("{rows} rows of tensor '{tensor}' are too long to be read at once");
            return Err(Error::new(ErrorKind::ResourceExhausted, what)
                .because(format!("rows of different lengths come to {limit} bytes at most"))
                .hint("read fewer samples at a time: lower the batch size"));
        }
        begins.push(usize::try_from(end).expect("below the limit"));
    }
    Ok(begins.into())
}

fn refused<T>(why: String) -> Result<T, Error> {
    Err(Error::new(ErrorKind::InvalidArgument, "cannot gather").because(why))
}
