//! The columns of a schema: which leaf of its tree becomes a column, and how its values are coded.
//!
//! ```text
//! optional int64 label                          -> label: int64
//! optional group image { binary bytes; .. }     -> image.bytes: bytes of any length
//! optional group ids (LIST) {                   -> ids: int32 of any length
//!   repeated group list { optional int32 element } }
//! ```
//!
//! Thread rule: plain values. Non-goals: places in the file.

use std::collections::HashMap;

use larder_base::limits;

use super::{
    decimals::DIGITS_MAX,
    footer::{Annotation, Element, Repetition},
};
use crate::{
    Dtype, Fault, Logical, TimeUnit,
    block::{Decimal, Physical},
    shown,
};

/// Most levels of a schema.
const DEPTH_MAX: usize = 16;

/// A leaf of the schema. Chunks of a row group come in the order of leaves.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) name: String,
    /// The column, or why there is none.
    pub(super) column: Result<Shape, String>,
    /// No row has a value, and the type says so.
    pub(super) is_null: bool,
    /// The level of a value that is there.
    pub(super) definition_max: u8,
    /// The level from which on a list has elements. 0 if the column has no lists.
    pub(super) list_definition: u8,
    /// The same of the list around these. 0 if there is none.
    pub(super) outer_definition: u8,
}

/// The values of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) physical: Physical,
    /// How numbers become text, if they are decimals.
    pub(super) decimal: Option<Decimal>,
    pub(super) dtype: Dtype,
    pub(super) logical: Logical,
    /// The shape of a row; of a ragged row, that of an element.
    pub(super) shape: Vec<u64>,
    pub(super) ragged: bool,
}

/// Returns the leaves of a schema. `fixed` has the lengths of lists that all have one length, by
/// the name of their column.
pub(super) fn leaves(schema: &[Element], fixed: &HashMap<String, u64>) -> Result<Vec<Leaf>, Fault> {
    let Some((root, rest)) = schema.split_first() else {
        return Err(Fault::new("schema", "is empty"));
    };
    let mut walk = Walk { rest: rest.iter(), fixed, leaves: Vec::new() };
    for _ in 0..root.children {
        walk.visit(&Place::default())?;
    }
    match walk.rest.next() {
        None => Ok(walk.leaves),
        Some(_) => Err(Fault::new("schema", "has elements that belong to no group")),
    }
}

struct Walk<'a> {
    rest: std::slice::Iter<'a, Element>,
    fixed: &'a HashMap<String, u64>,
    leaves: Vec<Leaf>,
}

/// What lies above an element.
#[derive(Debug, Default, Clone)]
struct Place {
    name: String,
    depth: usize,
    definition: u8,
    /// Repeated elements above.
    lists: u8,
    list_definition: u8,
    /// Why there can be no column below.
    refused: Option<&'static str>,
    /// The next element has no name of its own: it is the list or the element of one.
    in_list: InList,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum InList {
    #[default]
    No,
    /// Below the group with the annotation.
    Repeated,
    /// Below the repeated group.
    Element,
}

impl<'a> Walk<'a> {
    fn visit(&mut self, above: &Place) -> Result<(), Fault> {
        let Some(element) = self.rest.next() else {
            return Err(Fault::new("schema", "has a group with more children than there are"));
        };
        let mut place = above.clone();
        place.enter(element)?;
        if let Some(physical) = element.physical {
            self.add_leaf(&place, element, physical);
            return Ok(());
        }
        place.in_list = match (element.annotation, above.in_list) {
            (_, InList::Repeated) if element.children == 1 => InList::Element,
            (_, InList::Repeated | InList::Element) => {
                place.refuse("is a list of structs or of lists: only lists of numbers are read");
                InList::No
            }
            (Annotation::List, _) if element.children == 1 => InList::Repeated,
            (Annotation::Map, _) => {
                place.refuse("is a map: not yet");
                InList::No
            }
            _ if element.repetition == Repetition::Repeated => {
                place.refuse("is a list of structs: only lists of numbers are read");
                InList::No
            }
            _ => InList::No,
        };
        // Below a list and a map, a column has the name of the whole.
        for _ in 0..element.children {
            self.visit(&place)?;
        }
        Ok(())
    }

    fn add_leaf(&mut self, place: &Place, element: &Element, physical: i64) {
        let column = match place.refused {
            Some(why) => Err(why.to_owned()),
            None if place.lists > 1 => Err("is a list of lists: not yet".to_owned()),
            None => values(element, physical).and_then(|shape| match place.lists {
                0 => Ok(shape),
                _ => self.list_of(place, shape),
            }),
        };
        let (name, definition_max) = (place.name.clone(), place.definition);
        let list_definition = if place.lists > 0 { place.list_definition } else { 0 };
        let is_null = element.annotation == Annotation::Null && list_definition == 0;
        self.leaves.push(Leaf {
            name,
            column,
            is_null,
            definition_max,
            list_definition,
            outer_definition: 0,
        });
    }

    /// Returns the values of a column of lists of these elements.
    fn list_of(&self, place: &Place, element: Shape) -> Result<Shape, String> {
        if element.ragged || !element.shape.is_empty() {
            return Err("is a list of texts: only lists of numbers are read".to_owned());
        }
        Ok(match self.fixed.get(&place.name) {
            Some(&length) => Shape { shape: vec![length], ..element },
            None => Shape { ragged: true, ..element },
        })
    }
}

impl Place {
    /// Goes down to an element.
    fn enter(&mut self, element: &Element) -> Result<(), Fault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let why = format!("lies more than {DEPTH_MAX} levels deep");
            return Err(Fault::new(format!("column '{}'", shown(&self.name)), why));
        }
        if self.in_list == InList::No && self.refused.is_none() {
            if !self.name.is_empty() {
                self.name.push('.');
            }
            self.name.push_str(&element.name);
        }
        if self.name.len() > limits::TENSOR_NAME_BYTES_MAX as usize {
            let why = format!("has more than {} bytes", limits::TENSOR_NAME_BYTES_MAX);
            return Err(Fault::new(format!("name '{}'", shown(&self.name)), why));
        }
        match element.repetition {
            Repetition::Required => {}
            Repetition::Optional => self.definition += 1,
            Repetition::Repeated => {
                self.definition += 1;
                self.lists += 1;
                self.list_definition = self.definition;
            }
        }
        Ok(())
    }

    fn refuse(&mut self, why: &'static str) {
        self.refused.get_or_insert(why);
    }
}

/// Returns the values of a leaf that is no list.
pub(super) fn values(element: &Element, number: i64) -> Result<Shape, String> {
    let physical = Physical::of_parquet(number);
    let physical = physical.ok_or_else(|| format!("has the unknown type {number}"))?;
    if let Annotation::Decimal { scale } = element.annotation {
        return decimals(element, physical, scale);
    }
    let (dtype, shape, ragged) = match (physical, element.annotation) {
        (Physical::Bool, _) => (Dtype::Bool, Vec::new(), false),
        (Physical::I32, Annotation::Integer { bits, is_signed }) => {
            let dtype = match (bits, is_signed) {
                (8, true) => Dtype::I8,
                (8, false) => Dtype::U8,
                (16, true) => Dtype::I16,
                (16, false) => Dtype::U16,
                (_, true) => Dtype::I32,
                (_, false) => Dtype::U32,
            };
            (dtype, Vec::new(), false)
        }
        (Physical::I32, _) => (Dtype::I32, Vec::new(), false),
        (Physical::I64, Annotation::Integer { is_signed: false, .. }) => {
            (Dtype::U64, Vec::new(), false)
        }
        (Physical::I64 | Physical::I96, _) => (Dtype::I64, Vec::new(), false),
        (Physical::F32, _) => (Dtype::F32, Vec::new(), false),
        (Physical::F64, _) => (Dtype::F64, Vec::new(), false),
        (Physical::Bytes, _) => (Dtype::U8, Vec::new(), true),
        (Physical::Fixed, Annotation::Float16) if element.type_bytes == 2 => {
            (Dtype::F16, Vec::new(), false)
        }
        (Physical::Fixed, _) => {
            let bytes = element.type_bytes;
            if bytes == 0 || bytes > u64::from(u16::MAX) {
                return Err(format!("has {bytes} bytes a row: from 1 to {} are read", u16::MAX));
            }
            (Dtype::U8, vec![bytes], false)
        }
    };
    let logical = match element.annotation {
        Annotation::Meaning(logical) if logical.fits(dtype) => logical,
        _ if physical == Physical::I96 => Logical::Timestamp(TimeUnit::Nanosecond),
        _ if matches!(physical, Physical::Bytes) => Logical::Bytes,
        _ if element.annotation == Annotation::Float16 => Logical::Number,
        _ if matches!(physical, Physical::Fixed) => Logical::Bytes,
        _ => Logical::of(dtype),
    };
    Ok(Shape { physical, decimal: None, dtype, logical, shape, ragged })
}

/// Returns the values of a leaf of decimals: their text.
fn decimals(element: &Element, physical: Physical, scale: i64) -> Result<Shape, String> {
    let bytes = if physical == Physical::Fixed { element.type_bytes } else { 0 };
    let (scale, bytes) = (u8::try_from(scale), u8::try_from(bytes));
    let decimal = scale.ok().zip(bytes.ok()).map(|(scale, bytes)| Decimal { scale, bytes });
    let decimal = decimal.filter(|decimal| decimal.stored_bytes(physical).is_some());
    let why = || format!("is a decimal of more than {DIGITS_MAX} digits: not yet");
    let (decimal, dtype, logical) = (decimal.ok_or_else(why)?, Dtype::U8, Logical::Decimal);
    let (decimal, shape) = (Some(decimal), Vec::new());
    Ok(Shape { physical, decimal, dtype, logical, shape, ragged: true })
}
