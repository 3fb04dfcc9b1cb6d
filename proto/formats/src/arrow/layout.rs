//! The columns of a schema, and the nodes and buffers of a batch that each takes its rows from.
//!
//! A batch lists a node (a length and a count of nulls) for each field, and its buffers, both in
//! the order of the schema's tree, parents first. [`ColumnLayout`] walks the tree once and counts.
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
pub(super) struct ColumnLayout {
    pub(super) columns: Vec<Spec>,
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

/// A column, and the ways to its rows.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) name: String,
    /// The values, unless only JSON can hold them.
    pub(super) flat: Option<Flat>,
    /// The parts of a batch that are the rows, if it is not compressed and has no nulls.
    pub(super) plain: Option<ColumnSource>,
    /// Why rows can't be JSON.
    pub(super) no_json: Option<String>,
    /// The names of the structs around the field, and the field.
    pub(super) path: Vec<String>,
    pub(super) field: Field,
    /// These structs, the field and the fields in it, parents first.
    pub(super) nodes: Vec<NodeAt>,
}

/// Values that are no JSON.
#[derive(Debug, Clone)]
pub(super) struct Flat {
    pub(super) dtype: Dtype,
    pub(super) logical: Logical,
    pub(super) shape: Vec<u64>,
    pub(super) ragged: bool,
    /// Whether elements are lists, which must all have one length. It is no part of the shape.
    pub(super) with_lists: bool,
}

/// The place of a field among the nodes and buffers of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeAt {
    pub(super) kind: Kind,
    pub(super) node: usize,
    pub(super) buffer: usize,
    pub(super) views: usize,
    /// The node around it, and how many values it has for each of that. `None` if any number.
    pub(super) parent: Option<(usize, u64)>,
}

/// The parts of each batch that a column takes its rows from.
#[derive(Debug)]
pub(super) struct ColumnSource {
    pub(super) values: Values,
    /// The index of the buffer of offsets, if rows differ in length.
    pub(super) offsets: Option<Offsets>,
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
    /// Bytes of one value.
    pub(super) bytes: u64,
    pub(super) buffer: usize,
    /// The node with one entry for each value. Bytes of strings have none.
    pub(super) node: Option<usize>,
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
    pub(super) fn after(self, field: &Field) -> Self {
        field.children.iter().fold(self.inside(field), Self::after)
    }
}

/// The structs around a field: their names and places.
type Around<'a> = [(&'a str, Counts)];

impl ColumnLayout {
    pub(super) fn of(fields: &[Field]) -> Result<Self, Fault> {
        let mut layout = Self::default();
        let mut names = HashSet::new();
        for field in fields {
            layout.add(&mut names, field, field.name.clone(), layout.counts, &[])?;
            layout.counts = layout.counts.after(field);
        }
        Ok(layout)
    }

    /// Adds the columns of a field.
    fn add(
        &mut self,
        names: &mut HashSet<String>,
        field: &Field,
        name: String,
        at: Counts,
        around: &Around<'_>,
    ) -> Result<(), Fault> {
        let limit = limits::TENSOR_NAME_BYTES_MAX as usize;
        if name.len() > limit {
            return Err(Fault::new(column_named(&name), format!("has more than {limit} bytes")));
        }
        if matches!(field.kind, Kind::Struct) {
            let around = [around, &[(&*field.name, at)]].concat();
            let mut at = at.inside(field);
            for child in &field.children {
                let name = format!("{name}.{}", child.name);
                self.add(names, child, name, at, &around)?;
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
        if name.is_empty() {
            self.left_out.push((name, "has no name".into()));
        } else if matches!(field.kind, Kind::Null) {
            self.nulls.push(name);
        } else {
            match Spec::of(field, name, at, around)? {
                Ok(spec) => self.columns.push(spec),
                Err(left_out) => self.left_out.push(left_out),
            }
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

impl Spec {
    /// Returns the column of a field, or its name and why it is none.
    fn of(
        field: &Field,
        name: String,
        at: Counts,
        around: &Around<'_>,
    ) -> Result<Result<Self, (String, String)>, Fault> {
        let flat = flat(field);
        let bytes = flat.as_ref().map_or(1, Flat::bytes);
        if bytes > u32::MAX.into() {
            let why = format!("has rows of more than {} bytes", u32::MAX);
            return Err(Fault::new(column_named(&name), why));
        }
        let no_json = json(field).err().map(|noun| match field.kind {
            Kind::List { .. } => format!("holds lists of {noun}: not yet"),
            Kind::FixedList(_) => format!("holds fixed lists of {noun}: not yet"),
            Kind::Map => format!("holds maps of {noun}: not yet"),
            _ => format!("holds {noun}: not yet"),
        });
        if bytes == 0 {
            return Ok(Err((name, "has values of no bytes".into())));
        }
        if let (None, Some(why)) = (&flat, &no_json) {
            return Ok(Err((name, why.clone())));
        }
        let plain = source(field, at);
        let mut nodes = Vec::new();
        for (index, (_, counts)) in around.iter().enumerate() {
            let parent = index.checked_sub(1).map(|above| (above, 1));
            nodes.push(counts.at(Kind::Struct, parent));
        }
        put_nodes(field, at, around.len().checked_sub(1).map(|above| (above, 1)), &mut nodes);
        let path = around.iter().map(|(name, _)| (*name).to_owned()).collect();
        let field = field.clone();
        Ok(Ok(Self { name, flat, plain, no_json, path, field, nodes }))
    }
}

impl Spec {
    /// Returns the levels of lists in the lists of a column without JSON.
    pub(super) fn inner_lists(&self) -> usize {
        self.flat.as_ref().map_or(0, |flat| flat.with_lists.into())
    }
}

impl Flat {
    /// Returns the bytes of a row, or of an element of a ragged one.
    pub(super) fn bytes(&self) -> u64 {
        let scalar = self.dtype.size_bytes();
        self.shape.iter().fold(scalar, |bytes, dim| bytes.saturating_mul(*dim))
    }
}

impl Counts {
    fn at(self, kind: Kind, parent: Option<(usize, u64)>) -> NodeAt {
        NodeAt { kind, node: self.nodes, buffer: self.buffers, views: self.views, parent }
    }
}

/// Appends the nodes of a field and of the fields in it.
pub(super) fn put_nodes(
    field: &Field,
    at: Counts,
    parent: Option<(usize, u64)>,
    nodes: &mut Vec<NodeAt>,
) {
    let own = nodes.len();
    nodes.push(at.at(field.kind, parent));
    let parent = match field.kind {
        Kind::Struct => Some((own, 1)),
        Kind::FixedList(size) => Some((own, size)),
        _ => None,
    };
    let mut at = at.inside(field);
    for child in &field.children {
        put_nodes(child, at, parent, nodes);
        at = at.after(child);
    }
}

/// Returns the values of a column without JSON. `None` if there are none.
fn flat(field: &Field) -> Option<Flat> {
    let text = |logical| {
        let (dtype, shape) = (Dtype::U8, Vec::new());
        Flat { dtype, logical, shape, ragged: true, with_lists: false }
    };
    match (field.kind, &field.values) {
        (Kind::Text { logical, .. } | Kind::View(logical), _) => Some(text(logical)),
        (Kind::Dictionary { .. }, Some(values)) => match values.kind {
            Kind::Text { logical, .. } | Kind::View(logical) => Some(text(logical)),
            _ => fixed(field),
        },
        (Kind::List { .. }, _) => {
            let element = &field.children[0];
            let Kind::List { .. } = element.kind else {
                return Some(Flat { ragged: true, ..fixed(element)? });
            };
            let number = fixed(&element.children[0]).filter(|inner| inner.shape.is_empty())?;
            Some(Flat { ragged: true, with_lists: true, ..number })
        }
        _ => fixed(field),
    }
}

/// Returns values of one length.
fn fixed(field: &Field) -> Option<Flat> {
    let (ragged, with_lists) = (false, false);
    let flat = |dtype, logical, shape| Flat { dtype, logical, shape, ragged, with_lists };
    match (field.kind, &field.values) {
        (Kind::Bool, _) => Some(flat(Dtype::Bool, Logical::Boolean, Vec::new())),
        (Kind::Number(dtype, logical), _) => Some(flat(dtype, logical, Vec::new())),
        (Kind::FixedBytes(size), _) => Some(flat(Dtype::U8, Logical::Bytes, vec![size])),
        (Kind::FixedList(size), _) => {
            let mut inner = fixed(&field.children[0])?;
            inner.shape.insert(0, size);
            Some(inner)
        }
        (Kind::Dictionary { .. }, Some(values)) => match values.kind {
            Kind::Number(dtype, logical) => Some(flat(dtype, logical, Vec::new())),
            _ => None,
        },
        _ => None,
    }
}

/// Checks that values have a text in JSON. Returns words for those that have none.
fn json(field: &Field) -> Result<(), String> {
    match (field.kind, &field.values) {
        (Kind::Text { logical, .. } | Kind::View(logical), _) if logical != Logical::Text => {
            Err("bytes".into())
        }
        (Kind::FixedBytes(_), _) => Err("bytes".into()),
        (Kind::Union { .. } | Kind::Other(..), _) => Err(field.kind.noun().into()),
        (Kind::Dictionary { .. }, Some(values)) => match values.kind {
            Kind::Number(..) => Ok(()),
            Kind::Text { logical, .. } | Kind::View(logical) if logical == Logical::Text => Ok(()),
            kind => Err(format!("places in a dictionary of {}", kind.noun())),
        },
        _ => field.children.iter().try_for_each(json),
    }
}

/// Returns where the rows of a field come from, if they lie in a batch.
fn source(field: &Field, at: Counts) -> Option<ColumnSource> {
    let (values, large) = match field.kind {
        Kind::Text { large, .. } => {
            (Values { bytes: 1, buffer: at.buffers + 2, node: None }, Some(large))
        }
        Kind::List { large } => (fixed_values(&field.children[0], at.inside(field))?, Some(large)),
        _ => (fixed_values(field, at)?, None),
    };
    let offsets =
        large.map(|large| Offsets { buffer: at.buffers + 1, width: if large { 8 } else { 4 } });
    Some(ColumnSource { values, offsets, views: at.views })
}

/// Returns the values of a field if all have one length and lie in a batch.
fn fixed_values(field: &Field, at: Counts) -> Option<Values> {
    let flat = |bytes| Values { bytes, buffer: at.buffers + 1, node: Some(at.nodes) };
    match field.kind {
        Kind::Number(dtype, _) => Some(flat(dtype.size_bytes())),
        Kind::FixedBytes(size) => Some(flat(size)),
        Kind::FixedList(size) => {
            let inner = fixed_values(&field.children[0], at.inside(field))?;
            let bytes = inner.bytes.saturating_mul(size);
            Some(Values { bytes, node: Some(at.nodes), ..inner })
        }
        _ => None,
    }
}
