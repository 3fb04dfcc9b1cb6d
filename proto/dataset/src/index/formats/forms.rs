//! Brings the columns of all files into forms that they can agree on.
//!
//! A column has one layout in a dataset. Its rows may lie in one file as they are, and must be made
//! in another: there it has nulls, is compressed, or only JSON can hold its lists. The first files
//! are then scanned again and give the same form.
//!
//! Non-goals: types, on which files must agree by themselves (`tables`).

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
    needed.retain(|_, form| *form > Form::Stored);
    needed
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
