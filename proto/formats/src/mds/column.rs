//! The columns of a shard, and the encodings of their values.

use std::{collections::HashSet, fmt, marker::PhantomData};

use larder_base::limits;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, SeqAccess, Visitor},
};

use crate::{Dtype, Logical, shown};

/// Encodings with values of any length. Their stored bytes are the row.
const VARIABLE: [&str; 13] = [
    "bytes",
    "jpeg",
    "jpeg_array",
    "jpegarray",
    "json",
    "ndarray",
    "pil",
    "pkl",
    "png",
    "str",
    "str_decimal",
    "str_float",
    "str_int",
];

/// A column of a shard. The encoding and the size were compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ColumnInfo {
    pub(super) name: String,
    pub(super) encoding: String,
    /// Bytes of each value, never zero. `None` if the values differ in length.
    pub(super) size: Option<u32>,
    pub(super) value: Value,
}

/// The values of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// Arrays of one type and shape.
    Array(Dtype, Vec<u64>),
    /// Bytes of any length.
    Bytes(Logical),
    /// Bytes of an unknown encoding.
    Unknown,
}

impl Value {
    fn of(encoding: &str) -> Self {
        if encoding == "int" {
            return Self::Array(Dtype::I64, Vec::new());
        }
        if let Some(dtype) = number(encoding) {
            return Self::Array(dtype, Vec::new());
        }
        let is_list = encoding.starts_with("list[") && encoding.ends_with(']');
        if is_list || VARIABLE.contains(&encoding) {
            return Self::Bytes(match encoding {
                "str" => Logical::Text,
                "json" => Logical::Json,
                "jpeg" | "png" => Logical::Image,
                "str_decimal" => Logical::Decimal,
                "str_int" | "str_float" => Logical::Text,
                _ => Logical::Bytes,
            });
        }
        encoding.strip_prefix("ndarray:").and_then(array).unwrap_or(Self::Unknown)
    }
}

/// Parses `T` and `T:shape`, the text after `ndarray:`. Arrays without a shape begin with a small
/// head of their shape, so they are bytes.
fn array(text: &str) -> Option<Value> {
    let Some((dtype, shape)) = text.split_once(':') else {
        return number(text).map(|_| Value::Bytes(Logical::Bytes));
    };
    let dims = shape.split(',').map(|dim| dim.trim().parse().ok().filter(|dim: &u64| *dim > 0));
    let shape = dims.take(limits::DIMENSIONS_MAX as usize + 1).collect::<Option<Vec<_>>>()?;
    let fits = shape.len() <= limits::DIMENSIONS_MAX as usize;
    fits.then_some(Value::Array(number(dtype)?, shape))
}

/// Returns the type with this name, if the format has it.
fn number(name: &str) -> Option<Dtype> {
    let known = |dtype: &Dtype| dtype.name() == name && !matches!(dtype, Dtype::Bool | Dtype::C64);
    Dtype::from_numpy(name).filter(known)
}

impl ColumnInfo {
    fn new(name: String, encoding: String, size: Option<u64>) -> Result<Self, String> {
        let limit = limits::TENSOR_NAME_BYTES_MAX as usize;
        let fault = |why: String| Err(format!("column '{}' {why}", shown(&name)));
        if name.is_empty() || name.len() > limit {
            return fault(format!("has no name, or one of more than {limit} bytes"));
        }
        if encoding.len() > limit {
            return fault(format!("has an encoding of more than {limit} bytes"));
        }
        let value = Value::of(&encoding);
        let agrees = match &value {
            Value::Array(dtype, shape) => {
                let bytes = shape.iter().try_fold(dtype.size_bytes(), |b, dim| b.checked_mul(*dim));
                size.is_some() && bytes == size
            }
            Value::Bytes(_) => size.is_none(),
            Value::Unknown => size != Some(0),
        };
        let known = size.map(u32::try_from).transpose();
        let (true, Ok(size)) = (agrees, known) else {
            let size = size.map_or_else(|| "null".into(), |size| size.to_string());
            return fault(format!("has encoding '{}' and size {size}", shown(&encoding)));
        };
        Ok(Self { name, encoding, size, value })
    }
}

impl fmt::Display for ColumnInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' ({})", shown(&self.name), shown(&self.encoding))
    }
}

/// Makes the columns of a shard of the three lists that describe them.
pub(super) fn columns(
    names: List<String>,
    encodings: List<String>,
    sizes: List<Option<u64>>,
) -> Result<Vec<ColumnInfo>, String> {
    let (names, encodings, sizes) = (names.0, encodings.0, sizes.0);
    let counts = [names.len(), encodings.len(), sizes.len()];
    if counts[0] == 0 || counts != [counts[0]; 3] {
        let [names, encodings, sizes] = counts;
        return Err(format!(
            "lists {names} column_names, {encodings} column_encodings and {sizes} column_sizes"
        ));
    }
    let listed = names.into_iter().zip(encodings).zip(sizes);
    let columns = listed
        .map(|((name, encoding), size)| ColumnInfo::new(name, encoding, size))
        .collect::<Result<Vec<_>, _>>()?;
    let mut seen = HashSet::new();
    match columns.iter().find(|column| !seen.insert(&*column.name)) {
        Some(column) => Err(format!("column '{}' is there twice", shown(&column.name))),
        None => Ok(columns),
    }
}

/// Compares the columns with those of `place`. Returns the first difference as a clause.
pub(super) fn compare(
    ours: &[ColumnInfo],
    theirs: &[ColumnInfo],
    place: &str,
) -> Result<(), String> {
    let count = ours.len().max(theirs.len());
    let Some(at) = (0..count).find(|at| ours.get(*at) != theirs.get(*at)) else { return Ok(()) };
    let named = |column: Option<&ColumnInfo>| column.map_or("missing".into(), ToString::to_string);
    let (ours, theirs) = (named(ours.get(at)), named(theirs.get(at)));
    Err(format!("column {at} is {ours}, in {place} it is {theirs}"))
}

/// A list with an entry for each column. It ends parsing beyond the limit, so that a short text
/// cannot take much memory.
#[derive(Debug)]
pub(super) struct List<T>(Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list with an entry for each column")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<T>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = seq.next_element()? {
            if entries.len() == limits::TENSORS_MAX as usize {
                return Err(A::Error::custom(format!("more than {} columns", limits::TENSORS_MAX)));
            }
            entries.push(entry);
        }
        Ok(List(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_of_the_writer_are_recognised() {
        let array = |dtype, shape: &[u64]| Value::Array(dtype, shape.to_vec());
        let bytes = Value::Bytes(Logical::Bytes);
        for (encoding, value) in [
            ("int", array(Dtype::I64, &[])),
            ("uint8", array(Dtype::U8, &[])),
            ("float16", array(Dtype::F16, &[])),
            ("ndarray:float32:2,3", array(Dtype::F32, &[2, 3])),
            ("ndarray:int16: 7", array(Dtype::I16, &[7])),
            ("ndarray:int16", bytes.clone()),
            ("ndarray", bytes.clone()),
            ("list[jpeg]", bytes.clone()),
            ("pkl", bytes),
            ("str", Value::Bytes(Logical::Text)),
            ("json", Value::Bytes(Logical::Json)),
            ("png", Value::Bytes(Logical::Image)),
            ("bool", Value::Unknown),
            ("<f4", Value::Unknown),
            ("ndarray:complex64:2", Value::Unknown),
            ("ndarray:int16:0", Value::Unknown),
            ("ndarray:int16:2,", Value::Unknown),
            ("zstd", Value::Unknown),
        ] {
            assert_eq!(Value::of(encoding), value, "{encoding}");
        }
        let deep = format!("ndarray:int8:{}", ["1"; 65].join(","));
        assert_eq!(Value::of(&deep), Value::Unknown);
    }
}
