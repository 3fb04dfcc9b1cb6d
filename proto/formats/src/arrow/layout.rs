//! The columns of a schema, and the nodes and buffers of a batch that each takes its rows from.
//!
//! A batch lists a node (a length and a count of nulls) for each field, and its buffers, both in
//! the order of the schema's tree, parents first. [`Layout`] walks the tree once and counts.
//!
//! Thread rule: plain values. Non-goals: numbers of one batch (`batch`).

use std::collections::HashSet;

use larder_base::limits;

use super::{
    column_named,
    schema::{Field, Kind},
};
use crate::{Dtype, Fault, Logical, table::SHARED_NAME};

#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) columns: Vec<Source>,
    pub(super) left_out: Vec<(String, String)>,
    /// Columns of a type that has only nulls.
    pub(super) nulls: Vec<String>,
    /// Of the whole schema.
    pub(super) counts: Counts,
}

/// Nodes and buffers before a field, views (which have further buffers) and unions.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) nodes: usize,
    pub(super) buffers: usize,
    pub(super) views: usize,
    pub(super) unions: usize,
}

/// The parts of each batch that a column takes its rows from.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) values: Values,
    /// The index of the buffer of offsets, if rows differ in length.
    pub(super) offsets: Option<Offsets>,
    /// Nodes with one value a row.
    pub(super) nodes: Vec<usize>,
    /// Views before its buffers.
    pub(super) views: usize,
}

#[derive(Debug)]
pub(super) struct Offsets {
    pub(super) buffer: usize,
    /// Bytes of an offset.
    pub(super) width: u64,
}

/// Values of one length: the rows of a column, or the elements of its rows.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) dtype: Dtype,
    pub(super) logical: Logical,
    pub(super) shape: Vec<u64>,
    /// Bytes of one value.
    pub(super) bytes: u64,
    pub(super) buffer: usize,
    /// Each node, with its entries for one value. Bytes of strings have none.
    pub(super) nodes: Vec<(usize, u64)>,
}

impl Counts {
    /// Returns the counts before the children of the field that begins here.
    fn inside(self, field: &Field) -> Self {
        Self {
            nodes: self.nodes + 1,
            buffers: self.buffers + field.kind.buffers(),
            views: self.views + usize::from(matches!(field.kind, Kind::View(_))),
            unions: self.unions + usize::from(matches!(field.kind, Kind::Union { .. })),
        }
    }

    /// Returns the counts behind the field that begins here.
    fn after(self, field: &Field) -> Self {
        field.children.iter().fold(self.inside(field), Self::after)
    }
}

impl Layout {
    pub(super) fn of(fields: &[Field]) -> Result<Self, Fault> {
        let mut layout = Self::default();
        let mut names = HashSet::new();
        for field in fields {
            layout.add(&mut names, field, field.name.clone(), layout.counts, &[])?;
            layout.counts = layout.counts.after(field);
        }
        Ok(layout)
    }

    /// Adds the columns of a field. `parents` are the nodes of the structs around it.
    fn add(
        &mut self,
        names: &mut HashSet<String>,
        field: &Field,
        name: String,
        at: Counts,
        parents: &[usize],
    ) -> Result<(), Fault> {
        let limit = limits::TENSOR_NAME_BYTES_MAX as usize;
        if name.len() > limit {
            return Err(Fault::new(column_named(&name), format!("has more than {limit} bytes")));
        }
        if matches!(field.kind, Kind::Struct) {
            let parents = [parents, &[at.nodes]].concat();
            let mut at = at.inside(field);
            for child in &field.children {
                let name = format!("{name}.{}", child.name);
                self.add(names, child, name, at, &parents)?;
                at = at.after(child);
            }
            return Ok(());
        }
        if !names.insert(name.clone()) {
            self.columns.retain(|column| column.name != name);
            self.leave_out(name, SHARED_NAME);
            return Ok(());
        }
        if names.len() > limits::TENSORS_MAX as usize {
            let limit = limits::TENSORS_MAX;
            return Err(Fault::new("schema", format!("has more than {limit} columns")));
        }
        if matches!(field.kind, Kind::Null) && !name.is_empty() {
            self.nulls.push(name);
            return Ok(());
        }
        match source(field, &name, at, parents) {
            Ok(source) if source.values.bytes > u32::MAX.into() => {
                let why = format!("has rows of more than {} bytes", u32::MAX);
                return Err(Fault::new(column_named(&name), why));
            }
            Ok(source) => self.columns.push(source),
            Err(why) => self.left_out.push((name, why)),
        }
        Ok(())
    }

    /// Leaves a name out, once.
    fn leave_out(&mut self, name: String, why: &str) {
        if !self.left_out.iter().any(|(known, _)| *known == name) {
            self.left_out.push((name, why.to_owned()));
        }
    }
}

/// Returns where the rows of a field come from, or why it is no column.
fn source(field: &Field, name: &str, at: Counts, parents: &[usize]) -> Result<Source, String> {
    let not_yet = |noun: String| format!("holds {noun}: not yet");
    let (values, large) = match field.kind {
        _ if name.is_empty() => return Err("has no name".into()),
        Kind::Text { large, logical } => {
            let (buffer, nodes) = (at.buffers + 2, Vec::new());
            let (dtype, shape) = (Dtype::U8, Vec::new());
            (Values { dtype, logical, shape, bytes: 1, buffer, nodes }, Some(large))
        }
        Kind::List { large } => {
            let elements = fixed_values(&field.children[0], at.inside(field));
            (elements.map_err(|noun| not_yet(format!("lists of {noun}")))?, Some(large))
        }
        _ => (fixed_values(field, at).map_err(not_yet)?, None),
    };
    if values.bytes == 0 {
        return Err("has values of no bytes".into());
    }
    let offsets =
        large.map(|large| Offsets { buffer: at.buffers + 1, width: if large { 8 } else { 4 } });
    let own = offsets.is_some().then_some(at.nodes);
    let nodes = parents.iter().copied().chain(own).collect();
    Ok(Source { name: name.to_owned(), values, offsets, nodes, views: at.views })
}

/// Returns the values of a field if all have one length, or words for them.
fn fixed_values(field: &Field, at: Counts) -> Result<Values, String> {
    let flat = |dtype: Dtype, logical, shape: Vec<u64>| {
        let bytes = shape.iter().fold(dtype.size_bytes(), |bytes, dim| bytes.saturating_mul(*dim));
        Values { dtype, logical, shape, bytes, buffer: at.buffers + 1, nodes: vec![(at.nodes, 1)] }
    };
    match field.kind {
        Kind::Number(dtype, logical) => Ok(flat(dtype, logical, Vec::new())),
        Kind::FixedBytes(size) => Ok(flat(Dtype::U8, Logical::Bytes, vec![size])),
        Kind::FixedList(size) => {
            let inner = fixed_values(&field.children[0], at.inside(field))
                .map_err(|noun| format!("fixed lists of {noun}"))?;
            let nodes =
                inner.nodes.into_iter().map(|(node, times)| (node, times.saturating_mul(size)));
            Ok(Values {
                shape: [&[size], inner.shape.as_slice()].concat(),
                bytes: inner.bytes.saturating_mul(size),
                nodes: [(at.nodes, 1)].into_iter().chain(nodes).collect(),
                ..inner
            })
        }
        kind => Err(kind.noun().into()),
    }
}
