//! Tells the kinds of files apart by their names.

use std::{fmt, str::FromStr};

use crate::{ObjectInfo, index::extension};

/// The format of the files to index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// The format that has the most bytes under the prefix.
    #[default]
    Auto,
    /// `.safetensors` and `.npy` files.
    Tensors,
    /// WebDataset: `.tar` files.
    WebDataset,
    /// A file is a sample: pictures, sound and video.
    Folder,
    /// MosaicML Streaming: `index.json` and its `.mds` files.
    Mds,
    /// Parquet files.
    Parquet,
    /// Arrow IPC files and streams, as Hugging Face `datasets` keeps them.
    Arrow,
    /// A line is a sample: `.jsonl` and `.ndjson` files.
    Lines,
}

impl Format {
    const NAMES: [(&'static str, Self); 8] = [
        ("auto", Self::Auto),
        ("tensors", Self::Tensors),
        ("wds", Self::WebDataset),
        ("folder", Self::Folder),
        ("mds", Self::Mds),
        ("parquet", Self::Parquet),
        ("arrow", Self::Arrow),
        ("jsonl", Self::Lines),
    ];
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::NAMES.iter().find(|(_, format)| format == self);
        f.pad(named.map_or("auto", |(name, _)| name))
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        let names = Self::NAMES.map(|(name, _)| name).join(", ");
        found.map(|(_, format)| *format).ok_or_else(|| format!("it is one of {names}"))
    }
}

/// The kinds of files that one scan each can index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    WebDataset,
    Parquet,
    Arrow,
    Lines,
}

impl Kind {
    /// Returns the kind of the files of a format; `None` if one scan is not enough for it.
    pub(super) fn of(format: Format) -> Option<Self> {
        match format {
            Format::WebDataset => Some(Self::WebDataset),
            Format::Parquet => Some(Self::Parquet),
            Format::Arrow => Some(Self::Arrow),
            Format::Lines => Some(Self::Lines),
            Format::Auto | Format::Tensors | Format::Folder | Format::Mds => None,
        }
    }
}

/// Extensions of files that are samples by themselves.
const MEDIA: &[&str] = &[
    "jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "wav", "flac", "mp3", "ogg", "opus",
    "mp4", "mkv", "webm", "avi", "mov",
];

/// Returns the format that a file is of, by its name. `None` if it is none of them.
pub(crate) fn format_of(key: &str) -> Option<Format> {
    match extension(key) {
        "safetensors" | "npy" | "bin" => Some(Format::Tensors),
        "tar" => Some(Format::WebDataset),
        "mds" => Some(Format::Mds),
        "parquet" => Some(Format::Parquet),
        "arrow" | "feather" => Some(Format::Arrow),
        "jsonl" | "ndjson" => Some(Format::Lines),
        media if MEDIA.contains(&media) => Some(Format::Folder),
        other if other.contains(|c: char| c.is_ascii_uppercase()) => {
            format_of(&key.to_ascii_lowercase())
        }
        // A compressed shard, such as `shard.00000.mds.zstd`.
        _ if key.rsplit('/').next().unwrap_or(key).contains(".mds.") => Some(Format::Mds),
        _ => None,
    }
}

/// Returns the format with the most bytes. Of equals the first in the order of [`Format`].
pub(in crate::index) fn most_bytes(files: &[ObjectInfo]) -> Format {
    let mut bytes = [0_u64; Format::NAMES.len()];
    for file in files {
        if let Some(format) = format_of(&file.key) {
            let sum = &mut bytes[format as usize];
            *sum = sum.saturating_add(file.size_bytes);
        }
    }
    let sums = Format::NAMES.iter().map(|(_, format)| (*format, bytes[*format as usize]));
    let most = sums.rev().filter(|(_, bytes)| *bytes > 0).max_by_key(|(_, bytes)| *bytes);
    most.map_or(Format::Tensors, |(format, _)| format)
}
