//! Brings the columns of all files into forms that they can agree on.
//!
//! A column has one layout in a dataset. Its rows may lie in one file as they are, and must be made
//! in another: there it has nulls, is compressed, or only JSON can hold its lists. The first files
//! are then scanned again and give the same form.
//!
//! Lists of lists of numbers have a shape if all inner lists of all files have one length. If their
//! lengths differ, all files give JSON. A file without inner lists takes the length of the others.
//!
//! Non-goals: types, on which files must agree by themselves (`tables`).

use std::collections::{BTreeMap, BTreeSet};

use larder_formats::{Column, Form, Forms, Logical, Rows, Table};

use super::{kind::Kind, scan};
use crate::{
    DatasetError, ObjectInfo, Origin, OriginUri,
    index::{LeftOuts, Progress},
};

/// Scans of a file, at most: one in each form.
const SCANS_MAX: usize = 3;

/// Scans the files of these tables again that give a column in another form than it must have.
pub(super) async fn agree(
    origin: &Origin,
    uri: &OriginUri,
    kind: Kind,
    mut tables: Vec<(ObjectInfo, Table)>,
    columns: Option<&[String]>,
    left_out: &mut LeftOuts,
    progress: Progress<'_>,
) -> Result<Vec<(ObjectInfo, Table)>, DatasetError> {
    let mut scanned = vec![Forms::new(); tables.len()];
    for _ in 1..SCANS_MAX {
        let needed = needed(&tables);
        let is_stale = |index: &usize| {
            let known = |name: &String| scanned[*index].get(name).copied().unwrap_or(Form::Stored);
            let table = &tables[*index].1;
            needed.iter().any(|(name, form)| known(name) < *form && lags(table, name, *form))
        };
        let stale: Vec<usize> = (0..tables.len()).filter(is_stale).collect();
        if stale.is_empty() {
            break;
        }
        let begun = |index: &usize| {
            let file = tables[*index].0.clone();
            scan::begin(kind, file, columns, &needed)
        };
        let scans = stale.iter().map(begun).collect();
        let again = scan::scan_all(origin, uri, scans, columns, left_out, progress).await?;
        let mut again = again.into_iter().peekable();
        for index in stale {
            scanned[index].clone_from(&needed);
            // A file that is found damaged now is not among them.
            let key = &tables[index].0.key;
            match again.next_if(|(file, _)| file.key == *key) {
                Some(table) => tables[index] = table,
                None => tables[index].1 = Table::default(),
            }
        }
    }
    let damaged = left_out.damaged();
    tables.retain(|(file, _)| !damaged.contains(&file.key));
    fill_in(&mut tables);
    Ok(tables)
}

/// Returns the form that each column needs, where that is not the first.
fn needed(tables: &[(ObjectInfo, Table)]) -> Forms {
    let mut needed = Forms::new();
    let mut raise = |name: &String, form: Form| {
        let known = needed.entry(name.clone()).or_insert(form);
        *known = form.max(*known);
    };
    for (_, table) in tables.iter().filter(|(_, table)| table.rows > 0) {
        table.forms.iter().for_each(|(name, form)| raise(name, *form));
        table.nulls.iter().for_each(|name| raise(name, Form::Made));
        for column in &table.columns {
            raise(&column.name, form_of(column));
        }
    }
    for (name, shapes) in ragged_shapes(tables) {
        if shapes.len() > 1 || shapes.contains(&UNKNOWN) {
            raise(name, Form::Json);
        }
    }
    needed.retain(|_, form| *form > Form::Stored);
    needed
}

/// The shape of lists of lists in a file that has no inner list.
const UNKNOWN: &[u64] = &[0];

/// Returns the shapes of elements of each ragged column. A column has [`UNKNOWN`] if no file knows
/// better.
fn ragged_shapes(tables: &[(ObjectInfo, Table)]) -> BTreeMap<&String, BTreeSet<&[u64]>> {
    let mut shapes: BTreeMap<_, BTreeSet<&[u64]>> = BTreeMap::new();
    let tables = tables.iter().filter(|(_, table)| table.rows > 0);
    for column in tables.flat_map(|(_, table)| &table.columns).filter(|column| column.ragged) {
        shapes.entry(&column.name).or_default().insert(&column.shape);
    }
    for known in shapes.values_mut().filter(|known| known.len() > 1) {
        known.remove(UNKNOWN);
    }
    shapes
}

/// Gives columns without inner lists the shape that they have in other files.
fn fill_in(tables: &mut [(ObjectInfo, Table)]) {
    let shapes = ragged_shapes(tables).into_iter();
    let owned = |(name, known): (&String, BTreeSet<&[u64]>)| {
        known.first().map(|shape| (name.clone(), shape.to_vec()))
    };
    let shapes: BTreeMap<String, Vec<u64>> = shapes.filter_map(owned).collect();
    let columns = tables.iter_mut().flat_map(|(_, table)| &mut table.columns);
    for column in columns.filter(|column| column.ragged && column.shape == UNKNOWN) {
        if let Some(shape) = shapes.get(&column.name) {
            column.shape.clone_from(shape);
        }
    }
}

/// Returns whether a table has a column in a lower form, or can't have it in that.
fn lags(table: &Table, name: &String, form: Form) -> bool {
    let has_lower = |column: &Column| column.name == *name && form_of(column) < form;
    table.forms.contains_key(name) || table.columns.iter().any(has_lower)
}

fn form_of(column: &Column) -> Form {
    match column.rows {
        Rows::Blocks(_) if column.logical == Logical::Json => Form::Json,
        Rows::Blocks(_) => Form::Made,
        Rows::Strided { .. } | Rows::Spans(_) | Rows::Inline(_) => Form::Stored,
    }
}

#[cfg(test)]
mod tests {
    use larder_formats::{Blocks, Dtype};

    use super::*;

    /// A file of two rows, with a ragged column of this shape.
    fn boxes(key: &str, shape: u64) -> (ObjectInfo, Table) {
        let file = ObjectInfo { key: key.into(), size_bytes: 16, etag: None, version: None };
        let column = Column {
            name: "boxes".into(),
            dtype: Dtype::F32,
            logical: Logical::Number,
            shape: vec![shape],
            ragged: true,
            rows: Rows::Blocks(Blocks::default()),
            absent: Vec::new(),
        };
        (file, Table { rows: 2, columns: vec![column], ..Table::default() })
    }

    #[test]
    fn lists_of_several_lengths_need_json() {
        let form = |shapes: &[u64]| {
            let tables: Vec<_> = shapes.iter().map(|&shape| boxes("a", shape)).collect();
            needed(&tables)["boxes"]
        };
        assert_eq!(
            (form(&[4]), form(&[4, 4]), form(&[4, 0])),
            (Form::Made, Form::Made, Form::Made)
        );
        assert_eq!((form(&[4, 5]), form(&[0, 4, 5])), (Form::Json, Form::Json));
        assert_eq!((form(&[0]), form(&[0, 0])), (Form::Json, Form::Json), "no file has a length");
    }

    #[test]
    fn a_file_without_inner_lists_takes_the_shape_of_the_others() {
        let mut tables = vec![boxes("a", 0), boxes("b", 4)];
        fill_in(&mut tables);
        assert!(tables.iter().all(|(_, table)| table.columns[0].shape == [4]));
    }
}
