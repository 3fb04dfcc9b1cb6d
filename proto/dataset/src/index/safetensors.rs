//! Files of the safetensors format: eight bytes of length, a JSON header, then the tensors without
//! gaps. This module accepts the files that the format's own library accepts, within its own
//! limits. Its errors name the field.

use std::{collections::HashSet, fmt};

use larder_base::limits;
use safetensors::Dtype as FileDtype;
use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeSeed, Error as _, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor,
    },
};

use super::{
    LeftOut, LeftOuts, Progress,
    group::{Candidate, FoundTensor},
    headers::{FileFault, Format, read_all},
    ragged, shown,
};
use crate::{DatasetError, Dtype, ObjectInfo, Origin, OriginUri};

/// Largest safetensors header, in bytes: the limit of the format's own library.
const SAFETENSORS_HEADER_BYTES_MAX: u64 = 100_000_000;

/// Most tensors in one safetensors file: the largest models have a few thousand.
const SAFETENSORS_TENSORS_MAX: usize = 10_000;

/// Bytes before the JSON.
const LENGTH_BYTES: usize = 8;

/// A tensor of a file. Offsets count from the beginning of the file; they were checked against its
/// size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    /// `None` for types with elements that do not fill whole bytes.
    pub(super) dtype: Option<Dtype>,
    pub(super) shape: Vec<u64>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Reads the headers of safetensors files: one candidate group each.
pub(super) async fn candidates(
    origin: &Origin,
    uri: &OriginUri,
    files: Vec<ObjectInfo>,
    left_out: &mut LeftOuts,
    progress: Progress<'_>,
) -> Result<Vec<Candidate>, DatasetError> {
    let headers = read_all(origin, uri, files, &SafeTensors, left_out, progress).await?;
    let mut candidates = Vec::with_capacity(headers.len());
    for (file, entries) in headers {
        let mut tensors = Vec::with_capacity(entries.len());
        let names: HashSet<&str> = entries.iter().map(|entry| &*entry.name).collect();
        let there = |name: &str| names.contains(name);
        for entry in &entries {
            match found(entry, ragged::is_of_pair(&entry.name, there)) {
                Ok(tensor) => tensors.push(tensor),
                Err(why) if ragged::is_offsets(&entry.name, there) => {
                    let fault = FileFault::new(format!("tensor '{}'", shown(&entry.name)), why);
                    return Err(fault.of(uri.join(&file.key)?));
                }
                Err(why) => left_out.push(LeftOut::tensor(&file.key, &shown(&entry.name), why)),
            }
        }
        if tensors.is_empty() {
            left_out.push(LeftOut::object(&file.key, "holds no samples"));
        } else {
            candidates.push(Candidate { files: vec![file], tensors });
        }
    }
    Ok(candidates)
}

/// Returns the entry as a tensor of samples, or why it cannot be one. A ragged tensor or its
/// offsets may be empty here, because their samples are counted later.
fn found(entry: &Entry, is_of_pair: bool) -> Result<FoundTensor, String> {
    let dtype = entry.dtype.ok_or("has elements that do not fill whole bytes")?;
    let (rows, shape) =
        entry.shape.split_first().ok_or("is a scalar: it has no leading dimension")?;
    if entry.bytes == 0 && !is_of_pair {
        return Err("holds no samples".into());
    }
    if entry.name.is_empty() || entry.name.len() > limits::TENSOR_NAME_BYTES_MAX as usize {
        return Err(format!(
            "has no name, or one of more than {} bytes",
            limits::TENSOR_NAME_BYTES_MAX
        ));
    }
    if shape.len() > limits::DIMENSIONS_MAX as usize {
        return Err(format!("has more than {} dimensions", limits::DIMENSIONS_MAX));
    }
    Ok(FoundTensor {
        name: entry.name.clone(),
        dtype,
        shape: shape.to_vec(),
        rows: *rows,
        file: 0,
        offset: entry.offset,
        bytes: entry.bytes,
        spans: None,
    })
}

pub(super) struct SafeTensors;

impl Format for SafeTensors {
    type Header = Vec<Entry>;

    fn header_bytes(&self, begin: &[u8], size_bytes: u64) -> Result<u64, FileFault> {
        let length =
            begin.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).ok_or_else(|| {
                FileFault::new(
                    "header length",
                    format!("the file has {size_bytes} bytes, fewer than 8"),
                )
            })?;
        let limit = SAFETENSORS_HEADER_BYTES_MAX;
        if length > limit {
            let why = format!(
                "{length} bytes where at most {limit} are read: is this a safetensors file?"
            );
            return Err(FileFault::new("header length", why));
        }
        if length > size_bytes - LENGTH_BYTES as u64 {
            let why = format!("{length} bytes, past the end of a file of {size_bytes}");
            return Err(FileFault::new("header length", why));
        }
        Ok(LENGTH_BYTES as u64 + length)
    }

    fn parse(&self, bytes: &[u8], size_bytes: u64) -> Result<Vec<Entry>, FileFault> {
        let data_at = bytes.len() as u64;
        let json = std::str::from_utf8(&bytes[LENGTH_BYTES..])
            .map_err(|error| FileFault::new("header", format!("not UTF-8: {error}")))?;
        let raw: RawHeader = serde_json::from_str(json)
            .map_err(|error| FileFault::new("header", error.to_string()))?;
        let mut entries = raw
            .0
            .into_iter()
            .map(|(name, info)| check_entry(name, info, data_at))
            .collect::<Result<Vec<_>, _>>()?;
        check_layout(&mut entries, data_at, size_bytes)?;
        Ok(entries)
    }
}

/// Checks that the offsets of one entry agree with its dtype and shape.
fn check_entry(name: String, info: RawInfo, data_at: u64) -> Result<Entry, FileFault> {
    let fault = |field: &str, why: String| {
        FileFault::new(format!("tensor '{}' {field}", shown(&name)), why)
    };
    let dtype: Result<FileDtype, serde::de::value::Error> =
        FileDtype::deserialize(info.dtype.as_str().into_deserializer());
    let Ok(file_dtype) = dtype else {
        return Err(fault("dtype", format!("'{}' is not a known type", shown(&info.dtype))));
    };
    let shape = info.shape.0;
    let bits = shape
        .iter()
        .try_fold(file_dtype.bitsize() as u64, |bits, dim| bits.checked_mul(*dim))
        .ok_or_else(|| fault("shape", format!("{shape:?} overflows")))?;
    if bits % 8 != 0 {
        return Err(fault(
            "shape",
            format!("{shape:?} of {} does not end on a whole byte", info.dtype),
        ));
    }
    let [begin, end] = info.data_offsets;
    let bytes = end
        .checked_sub(begin)
        .ok_or_else(|| fault("data_offsets", format!("[{begin}, {end}] end before they begin")))?;
    if bytes != bits / 8 {
        let why =
            format!("[{begin}, {end}] are {bytes} bytes where dtype and shape need {}", bits / 8);
        return Err(fault("data_offsets", why));
    }
    let offset = data_at
        .checked_add(begin)
        .filter(|offset| offset.checked_add(bytes).is_some())
        .ok_or_else(|| fault("data_offsets", format!("[{begin}, {end}] overflow")))?;
    let dtype = Dtype::from_safetensors_name(&info.dtype);
    Ok(Entry { name, dtype, shape, offset, bytes })
}

/// Checks that the tensors fill the file from the header to its end, without holes or overlaps.
fn check_layout(entries: &mut [Entry], data_at: u64, size_bytes: u64) -> Result<(), FileFault> {
    entries.sort_by(|a, b| (a.offset, a.bytes, &a.name).cmp(&(b.offset, b.bytes, &b.name)));
    let mut end = data_at;
    for entry in &*entries {
        if entry.offset != end {
            let kind =
                if entry.offset < end { "overlap the tensor before" } else { "leave a hole" };
            let why = format!("begin at byte {} and {kind}: expected {end}", entry.offset);
            return Err(FileFault::new(
                format!("tensor '{}' data_offsets", shown(&entry.name)),
                why,
            ));
        }
        end += entry.bytes;
    }
    if end != size_bytes {
        let kind =
            if end > size_bytes { "it was cut off" } else { "there is more after the tensors" };
        let why = format!("the tensors end at byte {end}, the file has {size_bytes}: {kind}");
        return Err(FileFault::new("data_offsets", why));
    }
    Ok(())
}

/// The entries of a header, in its order.
struct RawHeader(Vec<(String, RawInfo)>);

#[derive(Deserialize)]
struct RawInfo {
    dtype: String,
    shape: Shape,
    data_offsets: [u64; 2],
}

struct Shape(Vec<u64>);

/// The most dimensions parsed. More than a tensor of samples may have, so that such a tensor is
/// left out rather than an error. Few enough to keep the allocation small.
const SHAPE_MAX: usize = 1024;

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ShapeVisitor;
        impl<'de> Visitor<'de> for ShapeVisitor {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of dimensions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
                let mut shape = Vec::new();
                while let Some(dim) = seq.next_element()? {
                    if shape.len() == SHAPE_MAX {
                        return Err(A::Error::custom(format!("more than {SHAPE_MAX} dimensions")));
                    }
                    shape.push(dim);
                }
                Ok(Shape(shape))
            }
        }
        deserializer.deserialize_seq(ShapeVisitor)
    }
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = RawHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a tensor for each name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
        let mut entries: Vec<(String, RawInfo)> = Vec::new();
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            let context =
                |error: A::Error| A::Error::custom(format!("tensor '{}': {error}", shown(&name)));
            if !names.insert(name.clone()) {
                return Err(context(A::Error::custom("is there twice")));
            }
            if name == "__metadata__" {
                map.next_value_seed(Metadata).map_err(context)?;
                continue;
            }
            if entries.len() == SAFETENSORS_TENSORS_MAX {
                let limit = SAFETENSORS_TENSORS_MAX;
                return Err(A::Error::custom(format!("more than {limit} tensors")));
            }
            let info = map.next_value().map_err(context)?;
            entries.push((kept(name), info));
        }
        Ok(RawHeader(entries))
    }
}

/// Shortens a name for keeping until all files are read. A too long name keeps enough bytes to be
/// recognised as too long.
fn kept(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(limits::TENSOR_NAME_BYTES_MAX as usize + 4));
    name.shrink_to_fit();
    name
}

/// Checks that `__metadata__` holds strings, without keeping them.
struct Metadata;

impl<'de> DeserializeSeed<'de> for Metadata {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Metadata {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_key::<IgnoredAny>()?.is_some() {
            map.next_value::<String>()?;
        }
        Ok(())
    }
}
