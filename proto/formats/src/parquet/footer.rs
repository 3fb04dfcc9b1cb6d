//! The footer: the schema, and the place of each column in each row group.
//!
//! Field numbers are those of the format's `parquet.thrift`.
//!
//! Thread rule: plain values. Non-goals: which columns can be read (`schema`); statistics other
//! than the number of nulls.

use super::thrift::{Kind, Reader};
use crate::{Fault, Logical, TimeUnit};

/// Most chunks that are kept: columns times row groups.
const CHUNKS_MAX: usize = 1 << 20;
/// Most elements of a schema, at all depths.
const ELEMENTS_MAX: usize = 1 << 14;
/// Most bytes of pairs of key and value that are kept.
const METADATA_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Footer {
    pub(super) schema: Vec<Element>,
    pub(super) rows: u64,
    pub(super) groups: Vec<RowGroup>,
    pub(super) metadata: Vec<(String, String)>,
    is_encrypted: bool,
}

/// A node of the schema's tree, in depth-first order.
#[derive(Debug, Default, Clone)]
pub(super) struct Element {
    pub(super) name: String,
    /// `None` for a group.
    pub(super) physical: Option<i64>,
    pub(super) type_bytes: u64,
    pub(super) repetition: Repetition,
    pub(super) children: u64,
    pub(super) annotation: Annotation,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repetition {
    #[default]
    Required,
    Optional,
    Repeated,
}

/// The meaning of an element, as far as it changes the values or the columns.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Annotation {
    #[default]
    None,
    List,
    Map,
    Decimal {
        /// Digits behind the point.
        scale: i64,
    },
    Float16,
    /// All values are null.
    Null,
    /// The values mean this, and are coded as without it.
    Meaning(Logical),
    Integer {
        bits: u8,
        is_signed: bool,
    },
}

/// A run of rows.
#[derive(Debug, Default)]
pub(super) struct RowGroup {
    pub(super) rows: u64,
    pub(super) chunks: Vec<Chunk>,
}

/// The rows of one column in a row group.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Chunk {
    pub(super) physical: i64,
    pub(super) codec: i64,
    pub(super) values: u64,
    /// The number of nulls and of empty lists, if the file tells it.
    pub(super) nulls: Option<u64>,
    pub(super) begin: u64,
    pub(super) stored_bytes: u64,
    pub(super) decoded_bytes: u64,
}

impl Footer {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let (mut footer, mut chunks) = (Self::default(), 0);
        Reader::new(bytes).fields(|reader, field, kind| match field {
            2 => reader.list(kind, |reader, _| {
                let element = Element::parse(reader)?;
                footer.schema.push(element);
                at_most(footer.schema.len(), ELEMENTS_MAX, "elements of the schema")
            }),
            3 => reader.count(kind).map(|rows| footer.rows = rows),
            4 => reader.list(kind, |reader, _| {
                let group = RowGroup::parse(reader, &mut chunks)?;
                footer.groups.push(group);
                at_most(footer.groups.len(), CHUNKS_MAX, "row groups")
            }),
            5 => reader.list(kind, |reader, _| footer.add_metadata(reader)),
            8 => {
                footer.is_encrypted = true;
                reader.skip(kind)
            }
            _ => reader.skip(kind),
        })?;
        match footer.is_encrypted {
            true => Err(Fault::new("file", "is encrypted: not yet")),
            false => Ok(footer),
        }
    }

    fn add_metadata(&mut self, reader: &mut Reader<'_>) -> Result<(), Fault> {
        let (mut key, mut value) = (&[][..], &[][..]);
        reader.fields(|reader, field, kind| match field {
            1 => reader.binary(kind).map(|bytes| key = bytes),
            2 => reader.binary(kind).map(|bytes| value = bytes),
            _ => reader.skip(kind),
        })?;
        let kept = |(key, value): &(String, String)| key.len() + value.len();
        let known: usize = self.metadata.iter().map(kept).sum();
        if known + key.len() + value.len() <= METADATA_BYTES_MAX
            && let (Ok(key), Ok(value)) = (str::from_utf8(key), str::from_utf8(value))
        {
            self.metadata.push((key.to_owned(), value.to_owned()));
        }
        Ok(())
    }
}

impl Element {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let (mut element, mut logical, mut scale) = (Self::default(), None, 0);
        reader.fields(|reader, field, kind| match field {
            1 => reader.integer(kind).map(|physical| element.physical = Some(physical)),
            2 => reader.count(kind).map(|bytes| element.type_bytes = bytes),
            3 => {
                element.repetition = match reader.integer(kind)? {
                    0 => Repetition::Required,
                    1 => Repetition::Optional,
                    2 => Repetition::Repeated,
                    other => {
                        let why = format!("has the unknown repetition {other}");
                        return Err(Fault::new("schema", why));
                    }
                };
                Ok(())
            }
            4 => {
                let name = reader.binary(kind)?;
                let name = str::from_utf8(name)
                    .map_err(|_| Fault::new("schema", "has a name that is not UTF-8"))?;
                name.clone_into(&mut element.name);
                Ok(())
            }
            5 => reader.count(kind).map(|children| element.children = children),
            6 => reader.integer(kind).map(|number| element.annotation = converted(number)),
            7 => reader.integer(kind).map(|digits| scale = digits),
            10 => logical_type(reader, kind).map(|annotation| logical = annotation),
            _ => reader.skip(kind),
        })?;
        element.annotation = match logical.unwrap_or(element.annotation) {
            Annotation::Decimal { .. } if logical.is_none() => Annotation::Decimal { scale },
            annotation => annotation,
        };
        Ok(element)
    }
}

/// Returns the annotation that a `ConvertedType` stands for.
fn converted(number: i64) -> Annotation {
    let integer = |bits, is_signed| Annotation::Integer { bits, is_signed };
    match number {
        0 | 4 => Annotation::Meaning(Logical::Text),
        1 | 2 => Annotation::Map,
        3 => Annotation::List,
        5 => Annotation::Decimal { scale: 0 },
        6 => Annotation::Meaning(Logical::Date),
        7 => Annotation::Meaning(Logical::Time(TimeUnit::Millisecond)),
        8 => Annotation::Meaning(Logical::Time(TimeUnit::Microsecond)),
        9 => Annotation::Meaning(Logical::Timestamp(TimeUnit::Millisecond)),
        10 => Annotation::Meaning(Logical::Timestamp(TimeUnit::Microsecond)),
        11 => integer(8, false),
        12 => integer(16, false),
        13 => integer(32, false),
        14 => integer(64, false),
        15 => integer(8, true),
        16 => integer(16, true),
        19 => Annotation::Meaning(Logical::Json),
        _ => Annotation::None,
    }
}

/// Reads a `LogicalType`, a union with one field.
fn logical_type(reader: &mut Reader<'_>, kind: Kind) -> Result<Option<Annotation>, Fault> {
    if kind != Kind::Struct {
        reader.skip(kind)?;
        return Ok(None);
    }
    let mut found = None;
    reader.fields(|reader, field, kind| {
        found = match field {
            1 | 4 => Some(Annotation::Meaning(Logical::Text)),
            6 => Some(Annotation::Meaning(Logical::Date)),
            11 => Some(Annotation::Null),
            12 => Some(Annotation::Meaning(Logical::Json)),
            7 | 8 => {
                let unit = time_unit(reader, kind)?;
                let logical = if field == 7 { Logical::Time } else { Logical::Timestamp };
                found = unit.map(|unit| Annotation::Meaning(logical(unit)));
                return Ok(());
            }
            2 => Some(Annotation::Map),
            3 => Some(Annotation::List),
            5 => {
                let mut scale = 0;
                reader.fields(|reader, field, kind| match field {
                    1 => reader.integer(kind).map(|digits| scale = digits),
                    _ => reader.skip(kind),
                })?;
                found = Some(Annotation::Decimal { scale });
                return Ok(());
            }
            15 => Some(Annotation::Float16),
            10 => {
                let (mut bits, mut is_signed) = (0, true);
                reader.fields(|reader, field, kind| match field {
                    1 => {
                        reader.integer(kind).map(|number| bits = u8::try_from(number).unwrap_or(0))
                    }
                    2 => Reader::boolean(kind).map(|signed| is_signed = signed),
                    _ => reader.skip(kind),
                })?;
                found = Some(Annotation::Integer { bits, is_signed });
                return Ok(());
            }
            _ => found,
        };
        reader.skip(kind)
    })?;
    Ok(found)
}

/// Reads the unit of a `TimeType` or `TimestampType`: a union in their second field.
fn time_unit(reader: &mut Reader<'_>, kind: Kind) -> Result<Option<TimeUnit>, Fault> {
    let mut unit = None;
    if kind != Kind::Struct {
        reader.skip(kind)?;
        return Ok(None);
    }
    reader.fields(|reader, field, kind| match (field, kind) {
        (2, Kind::Struct) => reader.fields(|reader, field, kind| {
            unit = match field {
                1 => Some(TimeUnit::Millisecond),
                2 => Some(TimeUnit::Microsecond),
                3 => Some(TimeUnit::Nanosecond),
                _ => unit,
            };
            reader.skip(kind)
        }),
        _ => reader.skip(kind),
    })?;
    Ok(unit)
}

impl RowGroup {
    /// Reads a row group. `chunks` counts those of all groups.
    fn parse(reader: &mut Reader<'_>, chunks: &mut usize) -> Result<Self, Fault> {
        let mut group = Self::default();
        reader.fields(|reader, field, kind| match field {
            1 => reader.list(kind, |reader, _| {
                group.chunks.push(Chunk::parse(reader)?);
                *chunks += 1;
                at_most(*chunks, CHUNKS_MAX, "chunks of columns")
            }),
            3 => reader.count(kind).map(|rows| group.rows = rows),
            _ => reader.skip(kind),
        })?;
        Ok(group)
    }
}

impl Chunk {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut chunk = None;
        reader.fields(|reader, field, kind| match field {
            1 => Err(Fault::new("chunk", "lies in another file: not yet")),
            3 if kind == Kind::Struct => Self::parse_metadata(reader).map(|own| chunk = Some(own)),
            8 => Err(Fault::new("chunk", "is encrypted: not yet")),
            _ => reader.skip(kind),
        })?;
        chunk.ok_or_else(|| Fault::new("chunk", "has no metadata"))
    }

    fn parse_metadata(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut chunk = Self::default();
        let (mut data, mut dictionary) = (None, None);
        reader.fields(|reader, field, kind| match field {
            1 => reader.integer(kind).map(|physical| chunk.physical = physical),
            4 => reader.integer(kind).map(|codec| chunk.codec = codec),
            5 => reader.count(kind).map(|values| chunk.values = values),
            6 => reader.count(kind).map(|bytes| chunk.decoded_bytes = bytes),
            7 => reader.count(kind).map(|bytes| chunk.stored_bytes = bytes),
            9 => reader.count(kind).map(|begin| data = Some(begin)),
            11 => reader.count(kind).map(|begin| dictionary = Some(begin)),
            12 if kind == Kind::Struct => reader.fields(|reader, field, kind| match field {
                3 => reader.count(kind).map(|nulls| chunk.nulls = Some(nulls)),
                _ => reader.skip(kind),
            }),
            _ => reader.skip(kind),
        })?;
        let data = data.ok_or_else(|| Fault::new("chunk", "has no pages"))?;
        // Some writers give a dictionary that is not there the offset 0.
        chunk.begin = dictionary.filter(|&begin| begin > 0).map_or(data, |begin| begin.min(data));
        Ok(chunk)
    }
}

fn at_most(found: usize, limit: usize, what: &str) -> Result<(), Fault> {
    if found > limit {
        return Err(Fault::new("footer", format!("has more than {limit} {what}")));
    }
    Ok(())
}
