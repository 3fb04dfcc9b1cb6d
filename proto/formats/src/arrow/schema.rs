//! The schema: a tree of fields.
//!
//! [`fields`] turns the tables of the metadata into [`Field`]s. It knows every type of the format,
//! because the nodes and buffers of a field follow those of the fields before. Depth and count are
//! bounded, as the tables of a hostile file may share their children.
//!
//! Thread rule: plain values. Non-goals: which fields become columns (`layout`).

use std::collections::HashMap;

use larder_base::limits;

use super::{column_named, flat, message::unsigned};
use crate::{Dtype, Fault, Logical, Table, TimeUnit};

/// Numbers of fields in the format's `Schema.fbs`.
mod in_schema {
    pub(super) const ENDIANNESS: usize = 0;
    pub(super) const FIELDS: usize = 1;
    pub(super) const METADATA: usize = 2;
}

mod in_field {
    pub(super) const NAME: usize = 0;
    pub(super) const TYPE_TYPE: usize = 2;
    pub(super) const TYPE: usize = 3;
    pub(super) const DICTIONARY: usize = 4;
    pub(super) const CHILDREN: usize = 5;
}

/// Most fields of a schema, at all depths: four for each column.
const FIELDS_MAX: usize = 4 * limits::TENSORS_MAX as usize;
/// Most levels of fields. Tables of pictures, boxes and texts have three.
const DEPTH_MAX: usize = 16;
/// Most bytes of the schema's own metadata that are kept. The names of 20,000 classes take half.
const METADATA_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Clone)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) children: Vec<Self>,
    /// The type of the values of a dictionary. They lie in no batch.
    pub(super) values: Option<Box<Self>>,
}

/// The type of a field, as far as its layout goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    /// One bit each.
    Bool,
    Number(Dtype, Logical),
    FixedBytes(u64),
    /// Strings or bytes of any length, with offsets of 64 bits if `large`.
    Text {
        large: bool,
        logical: Logical,
    },
    /// The same, with a place in one of several buffers for each. Batches count these.
    View(Logical),
    List {
        large: bool,
    },
    /// Lists of structs of a key and a value.
    Map,
    FixedList(u64),
    Struct,
    /// Types, with offsets too if `dense`.
    Union {
        dense: bool,
    },
    /// Places in the dictionary with this number.
    Dictionary {
        index: Dtype,
        id: i64,
    },
    /// A type that becomes no column: its values in words, and its number of buffers.
    Other(&'static str, usize),
}

impl Kind {
    /// Returns the number of buffers, without those of children.
    pub(super) fn buffers(self) -> usize {
        match self {
            Self::Null => 0,
            Self::FixedList(_) | Self::Struct => 1,
            Self::Bool
            | Self::Number(..)
            | Self::FixedBytes(_)
            | Self::View(_)
            | Self::List { .. }
            | Self::Map
            | Self::Dictionary { .. } => 2,
            Self::Text { .. } => 3,
            Self::Union { dense } => 1 + usize::from(dense),
            Self::Other(_, buffers) => buffers,
        }
    }

    /// Returns the types of a number or text.
    pub(super) fn scalar(self) -> (Dtype, Logical) {
        match self {
            Self::Number(dtype, logical) => (dtype, logical),
            Self::Bool => (Dtype::Bool, Logical::Boolean),
            Self::Text { logical, .. } | Self::View(logical) => (Dtype::U8, logical),
            _ => (Dtype::U8, Logical::Bytes),
        }
    }

    /// Returns words for the values.
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Null => "nulls",
            Self::Bool => "booleans",
            Self::Number(..) => "numbers",
            Self::FixedBytes(_) => "bytes",
            Self::Text { .. } | Self::View(_) => "strings or bytes",
            Self::List { .. } => "lists",
            Self::Map => "maps",
            Self::Dictionary { .. } => "dictionary indices",
            Self::FixedList(_) => "fixed lists",
            Self::Struct => "structs",
            Self::Union { .. } => "unions",
            Self::Other(noun, _) => noun,
        }
    }
}

/// Returns the fields of a schema.
pub(super) fn fields(schema: flat::FlatTable<'_>) -> Result<Vec<Field>, Fault> {
    if schema.i16(in_schema::ENDIANNESS, 0)? != 0 {
        return Err(Fault::new("schema", "is big-endian: only little-endian files are read"));
    }
    let mut reader = Reader { fields: 0 };
    schema.tables(in_schema::FIELDS)?.map(|table| reader.field(table?, 1)).collect()
}

/// Copies the schema's pairs of key and value to the table, as far as there is room. The pairs of a
/// hostile file may share their texts, so a pair takes room before its texts are checked.
pub(super) fn add_metadata(schema: flat::FlatTable<'_>, table: &mut Table) -> Result<(), Fault> {
    let (mut room, mut left_out) = (METADATA_BYTES_MAX, 0);
    for pair in schema.tables(in_schema::METADATA)? {
        let pair = pair?;
        let (key, value) = (pair.vector(0, 1)?, pair.vector(1, 1)?);
        let bytes = key.len() + value.len() + size_of::<(String, String)>();
        let Some(rest) = room.checked_sub(bytes) else {
            left_out += 1;
            continue;
        };
        room = rest;
        match (str::from_utf8(key), str::from_utf8(value)) {
            (Ok(key), Ok(value)) => table.metadata.push((key.to_owned(), value.to_owned())),
            _ => left_out += 1,
        }
    }
    if left_out > 0 {
        let why = format!("are not UTF-8, or exceed {METADATA_BYTES_MAX} bytes in total");
        table.left_out.push((format!("{left_out} values of the metadata"), why));
    }
    Ok(())
}

/// Returns the lengths of the lists of numbers that all have one length, by dotted name.
pub(super) fn fixed_lists(fields: &[Field]) -> HashMap<String, u64> {
    fn visit(above: &str, field: &Field, found: &mut HashMap<String, u64>) {
        let name = format!("{above}{}", field.name);
        match (field.kind, field.children.as_slice()) {
            (Kind::FixedList(length), [element]) if matches!(element.kind, Kind::Number(..)) => {
                found.insert(name, length);
            }
            (Kind::Struct, children) => {
                children.iter().for_each(|child| visit(&format!("{name}."), child, found));
            }
            _ => {}
        }
    }
    let mut found = HashMap::new();
    fields.iter().for_each(|field| visit("", field, &mut found));
    found
}

struct Reader {
    fields: usize,
}

impl Reader {
    fn field(&mut self, table: flat::FlatTable<'_>, depth: usize) -> Result<Field, Fault> {
        let name = table.text(in_field::NAME)?;
        let fault = |why: String| Err(Fault::new(column_named(name), why));
        self.fields += 1;
        if self.fields > FIELDS_MAX {
            return fault(format!("is one more than the {FIELDS_MAX} fields that are read"));
        }
        if depth > DEPTH_MAX {
            return fault(format!("lies more than {DEPTH_MAX} levels deep"));
        }
        if name.len() > limits::TENSOR_NAME_BYTES_MAX as usize {
            return fault(format!("has more than {} bytes", limits::TENSOR_NAME_BYTES_MAX));
        }
        let kind = kind(table).map_err(|fault| fault.within(column_named(name)))?;
        let children = table.tables(in_field::CHILDREN)?;
        if matches!(kind, Kind::List { .. } | Kind::FixedList(_)) && children.len() != 1 {
            return fault(format!("is a list of {} kinds of elements", children.len()));
        }
        let children = children.map(|child| self.field(child?, depth + 1));
        let children: Vec<Field> = children.collect::<Result<_, _>>()?;
        let is_map = matches!(&children[..], [Field { kind: Kind::Struct, children, .. }]
            if children.len() == 2);
        if kind == Kind::Map && !is_map {
            return fault("is a map of other than keys and values".into());
        }
        let field = Field { name: name.to_owned(), kind, children, values: None };
        // A batch has places in a dictionary. The children describe the values there.
        let Some(dictionary) = table.table(in_field::DICTIONARY)? else { return Ok(field) };
        let kind = Kind::Dictionary { index: index(dictionary)?, id: dictionary.i64(0)? };
        let (name, values) = (field.name.clone(), Some(Box::new(field)));
        Ok(Field { name, kind, children: Vec::new(), values })
    }
}

/// Returns the type of places in a dictionary.
fn index(dictionary: flat::FlatTable<'_>) -> Result<Dtype, Fault> {
    match dictionary.table(1)? {
        Some(table) => integer(table.i32(0, 0)?, table.u8(1)? != 0),
        None => Ok(Dtype::I32),
    }
}

fn kind(field: flat::FlatTable<'_>) -> Result<Kind, Fault> {
    let number = field.u8(in_field::TYPE_TYPE)?;
    let Some(table) = field.table(in_field::TYPE)? else {
        return Err(Fault::new("type", "is missing"));
    };
    Ok(match number {
        1 => Kind::Null,
        2 => Kind::Number(integer(table.i32(0, 0)?, table.u8(1)? != 0)?, Logical::Number),
        3 => Kind::Number(float(table.i16(0, 0)?)?, Logical::Number),
        4 => Kind::Text { large: false, logical: Logical::Bytes },
        5 => Kind::Text { large: false, logical: Logical::Text },
        6 => Kind::Bool,
        7 => Kind::Other("decimals", 2),
        // A date counts days in 32 bits, or milliseconds in 64.
        8 => match table.i16(0, 1)? {
            0 => Kind::Number(Dtype::I32, Logical::Date),
            _ => Kind::Number(Dtype::I64, Logical::Timestamp(TimeUnit::Millisecond)),
        },
        9 => {
            let unit = time_unit(table.i16(0, 1)?)?;
            Kind::Number(integer(table.i32(1, 32)?, true)?, Logical::Time(unit))
        }
        10 => Kind::Number(Dtype::I64, Logical::Timestamp(time_unit(table.i16(0, 0)?)?)),
        18 => Kind::Number(Dtype::I64, Logical::Duration(time_unit(table.i16(0, 1)?)?)),
        11 => Kind::Other("intervals", 2),
        12 => Kind::List { large: false },
        13 => Kind::Struct,
        14 => Kind::Union { dense: table.i16(0, 0)? != 0 },
        15 => Kind::FixedBytes(size(table)?),
        16 => Kind::FixedList(size(table)?),
        17 => Kind::Map,
        19 => Kind::Text { large: true, logical: Logical::Bytes },
        20 => Kind::Text { large: true, logical: Logical::Text },
        21 => Kind::List { large: true },
        22 => Kind::Other("run-end encoded values", 0),
        23 => Kind::View(Logical::Bytes),
        24 => Kind::View(Logical::Text),
        25 | 26 => Kind::Other("list views", 3),
        _ => return Err(Fault::new("type", format!("has the unknown number {number}"))),
    })
}

fn time_unit(number: i16) -> Result<TimeUnit, Fault> {
    let units =
        [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];
    let unit = usize::try_from(number).ok().and_then(|index| units.get(index));
    unit.copied().ok_or_else(|| Fault::new("type", format!("has the unknown time unit {number}")))
}

fn integer(bits: i32, is_signed: bool) -> Result<Dtype, Fault> {
    Ok(match (bits, is_signed) {
        (8, true) => Dtype::I8,
        (16, true) => Dtype::I16,
        (32, true) => Dtype::I32,
        (64, true) => Dtype::I64,
        (8, false) => Dtype::U8,
        (16, false) => Dtype::U16,
        (32, false) => Dtype::U32,
        (64, false) => Dtype::U64,
        _ => return Err(Fault::new("type", format!("is an integer of {bits} bits"))),
    })
}

fn float(precision: i16) -> Result<Dtype, Fault> {
    let known = [Dtype::F16, Dtype::F32, Dtype::F64];
    let dtype = usize::try_from(precision).ok().and_then(|index| known.get(index));
    dtype.copied().ok_or_else(|| Fault::new("type", format!("is a float of kind {precision}")))
}

/// Returns the size of fixed lists or bytes, field 0 of both types.
fn size(table: flat::FlatTable<'_>) -> Result<u64, Fault> {
    unsigned(table.i32(0, 0)?.into(), "size")
}
