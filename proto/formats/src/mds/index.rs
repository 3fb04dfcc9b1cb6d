//! The list of shards in an `index.json`.

use std::{collections::HashSet, fmt, sync::Arc};

use larder_base::limits;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, SeqAccess, Visitor},
};

use super::column::{ColumnInfo, List, columns, compare};
use crate::{Fault, path, shown};

/// Most bytes of an `index.json`: 100,000 shards of ten columns take about 60 MiB.
pub const INDEX_BYTES_MAX: usize = 64 << 20;

// A shard takes more than four bytes of JSON. So an index has fewer shards than a dataset may.
const _: () = assert!(INDEX_BYTES_MAX / 4 <= limits::OBJECTS_MAX as usize);

/// The shards of one `index.json`. All have the same columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    shards: Vec<ShardInfo>,
}

impl Index {
    /// Parses an `index.json`. Its file names count from the folder of the index. Folders below may
    /// have an index of their own, which the caller finds.
    ///
    /// # Errors
    /// The first mistake in the text; and shards of the formats json and csv.
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let fault = |why: String| Fault::new("index", why);
        if bytes.len() > INDEX_BYTES_MAX {
            let count = bytes.len();
            return Err(fault(format!("has {count} bytes, at most {INDEX_BYTES_MAX} are read")));
        }
        let raw: RawIndex =
            serde_json::from_slice(bytes).map_err(|error| fault(error.to_string()))?;
        if raw.version != 2 {
            return Err(fault(format!("has version {}, only version 2 is known", raw.version)));
        }
        let shards = raw.shards.0;
        let mut seen = HashSet::new();
        match shards.iter().find(|shard| !seen.insert(&*shard.raw.basename)) {
            Some(shard) => {
                Err(fault(format!("names the file '{}' twice", shown(&shard.raw.basename))))
            }
            None => Ok(Self { shards }),
        }
    }

    /// Returns the shards, in the order of their samples.
    pub fn shards(&self) -> &[ShardInfo] {
        &self.shards
    }
}

/// A shard as the index describes it. The numbers were compared with each other, but not with the
/// file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardInfo {
    pub(super) columns: Arc<[ColumnInfo]>,
    pub(super) samples: u32,
    raw: FileInfo,
    zip: Option<FileInfo>,
    compression: Option<String>,
}

/// A file that an index names.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FileInfo {
    /// The path below the folder of the index, with `/`.
    pub basename: String,
    /// Its size.
    pub bytes: u64,
}

impl ShardInfo {
    /// Returns the number of samples.
    pub fn samples(&self) -> u64 {
        self.samples.into()
    }

    /// Returns the uncompressed file.
    pub fn raw(&self) -> &FileInfo {
        &self.raw
    }

    /// Returns the compressed file, if the writer stored one.
    pub fn zip(&self) -> Option<&FileInfo> {
        self.zip.as_ref()
    }

    /// Returns the compression of the stored file, such as `zstd:7`. It covers the whole file.
    pub fn compression(&self) -> Option<&str> {
        self.compression.as_deref()
    }
}

#[derive(Deserialize)]
struct RawIndex {
    version: u64,
    shards: Shards,
}

/// A shard before its checks. The lists of columns are missing in the formats json and csv.
#[derive(Deserialize)]
struct RawShard {
    format: String,
    #[serde(default)]
    column_names: List<String>,
    #[serde(default)]
    column_encodings: List<String>,
    #[serde(default)]
    column_sizes: List<Option<u64>>,
    samples: u64,
    raw_data: FileInfo,
    zip_data: Option<FileInfo>,
    compression: Option<String>,
}

impl RawShard {
    fn check(self) -> Result<ShardInfo, String> {
        match &*self.format {
            "mds" => {}
            "json" | "csv" | "tsv" | "xsv" => {
                return Err(format!("shards of the format {} are not supported yet", self.format));
            }
            other => return Err(format!("has the unknown format '{}'", shown(other))),
        }
        for file in [Some(&self.raw_data), self.zip_data.as_ref()].into_iter().flatten() {
            path::check(&file.basename).map_err(|why| format!("basename {why}"))?;
        }
        if self.zip_data.is_some() != self.compression.is_some() {
            return Err("has one of zip_data and compression without the other".into());
        }
        Ok(ShardInfo {
            columns: columns(self.column_names, self.column_encodings, self.column_sizes)?.into(),
            samples: check_samples(self.samples, self.raw_data.bytes)?,
            raw: self.raw_data,
            zip: self.zip_data,
            compression: self.compression,
        })
    }
}

/// Checks that a file has room for an offset of each sample, and 32-bit offsets reach its end.
fn check_samples(samples: u64, file_bytes: u64) -> Result<u32, String> {
    if file_bytes > u32::MAX.into() {
        return Err(format!("has {file_bytes} bytes, 32-bit offsets end at {}", u32::MAX));
    }
    let room = (file_bytes / 4).saturating_sub(2);
    match u32::try_from(samples) {
        Ok(count) if samples <= room && file_bytes >= 8 => Ok(count),
        _ => Err(format!(
            "has {samples} samples, a file of {file_bytes} bytes has room for {room} offsets"
        )),
    }
}

struct Shards(Vec<ShardInfo>);

impl<'de> Deserialize<'de> for Shards {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ShardsVisitor)
    }
}

/// Checks each shard at once and shares the columns of the first. The lists of columns are most of
/// the text, so only those of one shard are in memory.
struct ShardsVisitor;

impl<'de> Visitor<'de> for ShardsVisitor {
    type Value = Shards;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of shards")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shards, A::Error> {
        let mut shards: Vec<ShardInfo> = Vec::new();
        loop {
            let fault = |why: String| A::Error::custom(format!("shard {}: {why}", shards.len()));
            let raw = seq.next_element::<RawShard>().map_err(|error| fault(error.to_string()))?;
            let Some(raw) = raw else { return Ok(Shards(shards)) };
            let mut shard = raw.check().map_err(fault)?;
            if let Some(first) = shards.first() {
                let place = format!("shard 0 ('{}')", shown(&first.raw.basename));
                compare(&shard.columns, &first.columns, &place)
                    .map_err(|why| fault(format!("('{}') {why}", shown(&shard.raw.basename))))?;
                shard.columns = Arc::clone(&first.columns);
            }
            shards.push(shard);
        }
    }
}
