//! Says in words how the samples of a snapshot are formed, for the process that indexed it.
//!
//! Non-goals: the reasons why files were left out (see [`crate::LeftOut`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use larder_base::{Counted, printable_line};

use super::{Snapshot, Tensor};

/// Tensors or folders that a line names.
const NAMED_MAX: usize = 4;
/// Characters of a name from a file that a line has.
const NAME_CHARS_MAX: usize = 100;
/// Fewest files that look like samples.
const SAMPLE_FILES_MIN: usize = 4;
/// Rows of a file that may be one sample: the height of a picture, not the rows of a shard.
const SAMPLE_ROWS: std::ops::RangeInclusive<u64> = 2..=512;
/// Most dimensions of a row of a file that may be one sample: a picture has rows of two. A file
/// with rows of three is a batch of pictures.
const SAMPLE_ROW_DIMENSIONS_MAX: usize = 2;

impl Snapshot {
    /// Returns how samples are formed, as `80 samples (img uint8 [16,3]) from 5 files of 16 rows
    /// each`. Names the folders under the prefix, if files lie in any.
    pub fn summary(&self) -> String {
        let manifest = &self.manifest;
        let tensors = listed(manifest.tensors().iter().map(described));
        let files = self.files();
        // Writing to a string does not fail.
        let mut said = format!(
            "{} ({tensors}) from {}",
            Counted(manifest.samples(), "sample"),
            Counted(manifest.object_count(), "file"),
        );
        if files.len() > 1
            && let Some(rows) = rows_per_file(&files)
        {
            let _ = write!(said, " of {} each", Counted(rows, "row"));
        }
        let folders: BTreeSet<&str> = files.keys().map(|key| folder_and_name(key).0).collect();
        if folders.iter().any(|folder| !folder.is_empty()) {
            let names = listed(folders.iter().map(|folder| match *folder {
                "" => "./".to_owned(),
                folder => format!("{}/", shortened(folder)),
            }));
            let _ = write!(said, " in {}: {names}", Counted(folders.len() as u64, "folder"));
        }
        printable_line(&said).into_owned()
    }

    /// Returns a warning if each file looks like one sample: many small `.npy` files with a number
    /// in their names and one equal first dimension, which counts samples.
    pub(crate) fn one_sample_per_file(&self) -> Option<String> {
        let (files, tensors) = (self.files(), self.manifest.tensors());
        let rows = rows_per_file(&files).filter(|rows| SAMPLE_ROWS.contains(rows))?;
        let mut dimensions = tensors.iter().map(|tensor| tensor.shape().len());
        let small = |dimensions| (1..=SAMPLE_ROW_DIMENSIONS_MAX).contains(&dimensions);
        let alike = !tensors.iter().any(Tensor::is_ragged) && dimensions.all(small);
        let stems: Option<BTreeSet<&str>> = files.keys().map(|key| numbered_stem(key)).collect();
        // Each tensor has files of one name, which differ by a number.
        let numbered = stems.is_some_and(|stems| files.len() >= stems.len() * SAMPLE_FILES_MIN);
        if !alike || !numbered {
            return None;
        }
        let whole = shape([rows].iter().chain(tensors[0].shape()).map(u64::to_string));
        let warning = format!(
            "each file may be one sample: {} like {} hold {whole}, and the first dimension counts \
             samples, so that each has {rows}; if each file is one sample, index with --sample file",
            Counted(files.len() as u64, "file"),
            shortened(files.keys().next()?),
        );
        Some(printable_line(&warning).into_owned())
    }

    /// Returns the samples of each file, by key.
    fn files(&self) -> BTreeMap<&str, u64> {
        let mut files = BTreeMap::new();
        for leaf in &self.leaves {
            for (object, rows) in leaf.object_rows(&self.manifest) {
                *files.entry(leaf.object(object).key).or_default() += rows;
            }
        }
        files
    }
}

/// Returns the samples of each file if all have as many.
fn rows_per_file(files: &BTreeMap<&str, u64>) -> Option<u64> {
    let mut rows = files.values();
    let first = *rows.next()?;
    rows.all(|rows| *rows == first).then_some(first)
}

/// Returns the name of an `.npy` file without its number. `None` if it has no number at its end.
fn numbered_stem(key: &str) -> Option<&str> {
    let stem = folder_and_name(key).1.strip_suffix(".npy")?;
    let named = stem.trim_end_matches(|c: char| c.is_ascii_digit());
    (named.len() < stem.len()).then_some(named)
}

fn folder_and_name(key: &str) -> (&str, &str) {
    key.rsplit_once('/').unwrap_or(("", key))
}

/// Describes a tensor as `img uint8 [16,3]`, `label int64` or `text uint8 [any]`.
fn described(tensor: &Tensor) -> String {
    let sides = tensor.sample_shape();
    let name = format!("{} {}", shortened(tensor.name()), tensor.dtype().name());
    if sides.is_empty() {
        return name;
    }
    let side = |side: Option<u64>| side.map_or("any".to_owned(), |side| side.to_string());
    format!("{name} {}", shape(sides.into_iter().map(side)))
}

fn shape(sides: impl Iterator<Item = String>) -> String {
    format!("[{}]", sides.collect::<Vec<_>>().join(","))
}

fn shortened(name: &str) -> String {
    name.chars().take(NAME_CHARS_MAX).collect()
}

fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(NAMED_MAX);
    let named = names.take(NAMED_MAX).collect::<Vec<_>>().join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

#[cfg(test)]
mod tests {
    use larder_formats::Rows;

    use super::super::*;

    /// Makes a manifest of one tensor `img`, with a file of so many rows for each key.
    fn of_files(shape: &[u64], files: &[(&str, u64)]) -> Snapshot {
        let row_bytes = shape.iter().product();
        let tensor = TensorSpec {
            name: "img".to_owned(),
            dtype: Dtype::U8,
            logical: Logical::Number,
            shape: shape.to_vec(),
            locator: RowLocator::Strided { row_bytes, stride_bytes: row_bytes },
            layout: Layout::Column,
        };
        let uri = OriginUri::parse("s3://bucket/data").unwrap();
        let mut builder = ManifestBuilder::new(uri, vec![tensor], 1 << 20);
        for &(key, rows) in files {
            let (etag, size_bytes) = (Some(format!("\"{key}\"")), 128 + rows * row_bytes);
            let key = key.to_owned();
            let object = ObjectSpec { key, etag, version: None, size_bytes };
            let places = Rows::Strided { begin: 128, stride: row_bytes };
            let columns = vec![ColumnSpec { object: 0, rows: places }];
            builder.push(GroupSpec { rows, objects: vec![object], columns });
        }
        builder.build().unwrap()
    }

    #[test]
    fn summary_names_tensors_files_rows_and_folders() {
        let said = |files: &[(&str, u64)]| of_files(&[16, 3], files).summary();
        assert_eq!(
            said(&[("img_0.npy", 16), ("img_1.npy", 16)]),
            "32 samples (img uint8 [16,3]) from 2 files of 16 rows each"
        );
        assert_eq!(said(&[("a.npy", 1)]), "1 sample (img uint8 [16,3]) from 1 file");
        assert_eq!(
            said(&[("train/img.npy", 60), ("val/img.npy", 40)]),
            "100 samples (img uint8 [16,3]) from 2 files in 2 folders: train/, val/"
        );
        let keys: Vec<String> = (0..11).map(|folder| format!("f{folder:02}/x.npy")).collect();
        let files: Vec<_> = keys.iter().map(|key| (key.as_str(), 2)).collect();
        let many = said(&files);
        assert!(many.ends_with("in 11 folders: f00/, f01/, f02/, f03/ and 7 more"), "{many}");
    }

    #[test]
    fn many_small_numbered_files_may_be_samples() {
        let files = |rows| [0, 1, 2, 3, 4].map(|n| (format!("img_{n}.npy"), rows));
        let warns = |shape: &[u64], files: &[(String, u64)]| {
            let files: Vec<_> = files.iter().map(|(key, rows)| (key.as_str(), *rows)).collect();
            of_files(shape, &files).one_sample_per_file()
        };
        let warning = warns(&[16, 3], &files(16)).unwrap();
        let begins = "each file may be one sample: 5 files like img_0.npy hold [16,16,3]";
        assert!(warning.starts_with(begins) && warning.contains("--sample file"), "{warning}");
        assert_eq!(warns(&[16, 3], &files(10_000)), None, "shards");
        assert_eq!(warns(&[], &files(16)), None, "scalars");
        assert_eq!(warns(&[32, 32, 3], &files(16)), None, "batches of pictures");
        assert_eq!(warns(&[16, 3], &files(1)), None, "one sample each already");
        assert_eq!(warns(&[16, 3], &files(16)[..3]), None, "few files");
        let mut uneven = files(16);
        uneven[4].1 = 9;
        assert_eq!(warns(&[16, 3], &uneven), None, "a last part");
        let named = ["a", "b", "c", "d"].map(|name| (format!("{name}.npy"), 16));
        assert_eq!(warns(&[16, 3], &named), None, "names without a number");
    }
}
