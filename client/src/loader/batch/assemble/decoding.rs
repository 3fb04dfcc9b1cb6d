//! Decodes the rows of some columns on their way into a batch.
//!
//! The encoded rows are gathered into a buffer of their own, and each is decoded to its place in
//! the batch. The numbers of a random crop depend on the sample, so the thread and the batch size
//! do not matter.
//!
//! A row that can't be decoded is an error. If the job skips such rows, the sample is replaced by
//! the next good one of its batch, so batches stay full and ranks stay even. The batch is then
//! fetched again. Later batches know the bad sample and replace it before they are fetched.
//!
//! A picture with an EXIF orientation is shown as it is stored, unless the job chose otherwise. A
//! warning says so once.
//!
//! Thread rule: shared by the threads that fetch. The lock is held to look up some samples. Each
//! thread decodes a batch by itself.

use std::{
    cell::RefCell,
    collections::HashSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use larder_decode::{DecodeError, Draw, Scratch};

use super::BatchFetcher;
use crate::{
    Error, ErrorKind, deadline::CancelToken, fetch::Gathered, loader::batch::layout::Decode,
    sampler::Draws,
};

thread_local! {
    /// Memory that is used again for each row.
    static SCRATCH: RefCell<(Scratch, Vec<f32>)> = RefCell::default();
}

/// The columns of a batch that are decoded.
pub(in crate::loader) struct Decoding {
    /// Fetches the encoded rows: the decoded columns only.
    encoded: BatchFetcher,
    /// By column of the batch.
    columns: Box<[Option<Decode>]>,
    skips: bool,
    /// The samples that can't be decoded, each with its dataset.
    bad: Mutex<HashSet<(u32, u64)>>,
    /// Whether an orientation was found and told.
    told: AtomicBool,
}

impl Decoding {
    /// `encoded` fetches the columns that have a decoding, in their order.
    pub(in crate::loader) fn new(
        encoded: BatchFetcher,
        columns: Box<[Option<Decode>]>,
        skips: bool,
    ) -> Self {
        Self { encoded, columns, skips, bad: Mutex::default(), told: AtomicBool::new(false) }
    }

    /// Whether a column of the batch is decoded.
    pub(in crate::loader) fn has(&self, column: usize) -> bool {
        self.columns[column].is_some()
    }

    /// Fills the parts of decoded columns. `parts` are those of the wanted columns.
    pub(super) fn fill(
        &self,
        draws: &Draws,
        columns: &[usize],
        parts: &mut [&mut [u8]],
        cancel: &CancelToken,
    ) -> Result<Gathered, Error> {
        let (buffer, ragged, mut gathered) = self.encoded.read(draws, None, cancel)?;
        for (&column, part) in columns.iter().zip(parts) {
            let Some(decode) = self.columns[column] else { continue };
            let of = ragged.of(self.encoded_column(column)).expect("encoded rows are ragged");
            let row_bytes = part.len() / draws.len().max(1);
            for (row, out) in part.chunks_exact_mut(row_bytes.max(1)).enumerate() {
                cancel.check()?;
                let range = of.at + of.begins[row]..of.at + of.begins[row + 1];
                let decoded = decode_row(&decode, &buffer[range], random(draws, row), out);
                match decoded {
                    Ok(false) => {}
                    Ok(true) => self.tell(draws, row, column),
                    Err(_) if self.skips => gathered.bad.push(row),
                    Err(error) => return Err(self.refuse(draws, row, column, &error)),
                }
            }
        }
        Ok(gathered)
    }

    /// The number of a decoded column among those that are fetched encoded.
    fn encoded_column(&self, column: usize) -> usize {
        self.columns[..column].iter().flatten().count()
    }

    /// Says once that an orientation has no effect.
    fn tell(&self, draws: &Draws, row: usize, column: usize) {
        if self.told.swap(true, Ordering::Relaxed) {
            return;
        }
        let (_, sample) = draws.at(row);
        let uri = self.encoded.snapshot_of(draws, row).leaves.manifest().uri();
        let name = &self.encoded.layout.columns()[self.encoded_column(column)].name;
        tracing::warn!(
            "sample {sample} of {uri} has an EXIF orientation in '{name}', and is shown as it is \
             stored: orient=True turns such pictures upright, orient=False ends this warning"
        );
    }

    fn refuse(&self, draws: &Draws, row: usize, column: usize, error: &DecodeError) -> Error {
        let (_, sample) = draws.at(row);
        let uri = self.encoded.snapshot_of(draws, row).leaves.manifest().uri();
        let name = &self.encoded.layout.columns()[self.encoded_column(column)].name;
        Error::new(ErrorKind::DataLoss, format!("sample {sample} of {uri} can't be decoded"))
            .because(format!("'{name}': {error}"))
            .hint("bad='skip' takes the next sample instead, and counts it")
    }

    /// Notes rows that can't be decoded.
    pub(super) fn note(&self, draws: &Draws, rows: &[usize]) {
        let mut bad = self.bad.lock().unwrap_or_else(PoisonError::into_inner);
        bad.extend(rows.iter().map(|&row| draws.at(row)));
    }

    /// Replaces the samples that are known to be bad, each by the next good one. Returns how many.
    ///
    /// # Errors
    /// All samples are bad.
    pub(super) fn replace_bad(&self, draws: &mut Draws) -> Result<u64, Error> {
        let bad = self.bad.lock().unwrap_or_else(PoisonError::into_inner);
        if bad.is_empty() {
            return Ok(0);
        }
        let is_bad: Vec<bool> = (0..draws.len()).map(|row| bad.contains(&draws.at(row))).collect();
        drop(bad);
        let count = is_bad.iter().filter(|&&bad| bad).count() as u64;
        if count == 0 {
            return Ok(0);
        }
        let good = |row: usize| {
            let next = (0..is_bad.len()).map(|step| (row + step) % is_bad.len());
            next.into_iter().find(|&row| !is_bad[row])
        };
        let places: Option<Vec<u32>> = (0..is_bad.len())
            .map(|row| good(row).map(|row| u32::try_from(row).expect("rows of a batch")))
            .collect();
        let Some(places) = places else {
            let why = format!("none of the {count} samples of a batch can be decoded");
            return Err(
                Error::new(ErrorKind::DataLoss, why).hint("leave bad='skip' out to be told why")
            );
        };
        *draws = draws.pick(&places);
        Ok(count)
    }
}

/// Names the random numbers of a row.
fn random(draws: &Draws, row: usize) -> Draw {
    let (source, sample) = draws.at(row);
    Draw { seed: draws.pass_id().seed(), source: source.into(), pass: draws.pass(row), sample }
}

/// Decodes one row. Returns whether an orientation had no effect, although no option says so.
fn decode_row(
    decode: &Decode,
    encoded: &[u8],
    draw: Draw,
    out: &mut [u8],
) -> Result<bool, DecodeError> {
    SCRATCH.with_borrow_mut(|(scratch, sound)| match decode {
        Decode::Image(image) => image.decode_into(encoded, draw, out, scratch),
        Decode::Audio(audio) => {
            sound.resize(audio.values(), 0.0);
            audio.decode_into(encoded, draw, sound, scratch)?;
            for (to, value) in out.as_chunks_mut().0.iter_mut().zip(&*sound) {
                *to = value.to_le_bytes();
            }
            Ok(false)
        }
    })
}
