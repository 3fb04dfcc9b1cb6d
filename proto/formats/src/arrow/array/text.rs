//! Rows in JSON out of a batch in memory.
//!
//! A struct is an object, and so is a map with texts as keys. Any other map is a list of pairs.
//!
//! Thread rule: plain functions. Non-goals: how values are written (`json`).

use super::{super::schema::Kind, Array, fault, rows::Rows};
use crate::{
    Fault, Logical,
    block::{Put, json::Texts},
};

/// Hands over the rows, or only their lengths.
pub(in crate::arrow) fn put(
    rows: &Rows<'_>,
    with_bytes: bool,
    put: &mut Put<'_>,
) -> Result<(), Fault> {
    let mut texts = Texts::new(with_bytes, put);
    for row in 0..rows.field.length {
        if rows.is_valid(row) {
            value(rows.field, row, &mut texts)?;
        }
        texts.end_row()?;
    }
    texts.flush()
}

fn value(array: &Array<'_>, index: usize, texts: &mut Texts<'_, '_>) -> Result<(), Fault> {
    if index >= array.length {
        return Err(fault("offsets", "lead past the values"));
    }
    if !array.is_valid(index) {
        return texts.null();
    }
    match array.node.kind {
        Kind::Bool => texts.boolean(array.boolean(index)),
        Kind::Number(dtype, logical) => {
            let bytes = usize::try_from(dtype.size_bytes()).expect("at most 8");
            texts.number(dtype, logical, &array.values()[bytes * index..][..bytes])
        }
        Kind::Text { .. } | Kind::View(_) => texts.string(array.text(index)?),
        Kind::Dictionary { .. } => {
            let bytes = array.dictionary_value(index)?;
            match &array.node.dictionary {
                Some(values) if values.ends.is_none() => {
                    texts.number(values.dtype, values.logical, bytes)
                }
                _ => texts.string(bytes),
            }
        }
        Kind::List { .. } => list(array, array.range(index)?, texts),
        Kind::FixedList(size) => {
            let size = usize::try_from(size).map_err(|_| fault("size", "is too large"))?;
            list(array, size * index..size * (index + 1), texts)
        }
        Kind::Struct => object(array, index, texts),
        Kind::Map => map(array, array.range(index)?, texts),
        Kind::Null => texts.null(),
        Kind::FixedBytes(_) | Kind::Union { .. } | Kind::Other(..) => {
            Err(fault("type", "has no text in JSON"))
        }
    }
}

fn list(
    array: &Array<'_>,
    range: std::ops::Range<usize>,
    texts: &mut Texts<'_, '_>,
) -> Result<(), Fault> {
    let begin = range.start;
    texts.raw(b"[");
    for index in range {
        if index > begin {
            texts.raw(b",");
        }
        value(&array.children[0], index, texts)?;
    }
    texts.raw(b"]");
    Ok(())
}

fn object(array: &Array<'_>, index: usize, texts: &mut Texts<'_, '_>) -> Result<(), Fault> {
    texts.raw(b"{");
    for (number, child) in array.children.iter().enumerate() {
        if number > 0 {
            texts.raw(b",");
        }
        texts.raw(&child.node.key);
        value(child, index, texts)?;
    }
    texts.raw(b"}");
    Ok(())
}

fn map(
    array: &Array<'_>,
    range: std::ops::Range<usize>,
    texts: &mut Texts<'_, '_>,
) -> Result<(), Fault> {
    let (keys, values) = (&array.children[0].children[0], &array.children[0].children[1]);
    let is_object = is_text(keys);
    let begin = range.start;
    texts.raw(if is_object { b"{" } else { b"[" });
    for index in range {
        if index > begin {
            texts.raw(b",");
        }
        if !is_object {
            texts.raw(b"[");
        }
        value(keys, index, texts)?;
        texts.raw(if is_object { b":" } else { b"," });
        value(values, index, texts)?;
        if !is_object {
            texts.raw(b"]");
        }
    }
    texts.raw(if is_object { b"}" } else { b"]" });
    Ok(())
}

/// Returns whether all keys are text. Null is none.
fn is_text(keys: &Array<'_>) -> bool {
    let is_text = match keys.node.kind {
        Kind::Text { logical, .. } | Kind::View(logical) => logical == Logical::Text,
        Kind::Dictionary { .. } => keys.node.dictionary.is_some_and(|values| values.ends.is_some()),
        _ => false,
    };
    is_text && !keys.has_nulls()
}
