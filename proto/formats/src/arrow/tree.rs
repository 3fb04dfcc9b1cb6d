//! The types of a column as a recipe: the structs around its field, and the field.
//!
//! ```text
//! recipe: 0, 1 if rows are JSON, number of structs around the field, node
//! node:   kind, two parameters, name, number of children, children, [dictionary]
//! ```
//!
//! A struct around the field has one child here, whatever it has in the schema. The values of a
//! dictionary are part of the recipe, because they lie far from the batches.
//!
//! Thread rule: plain values over borrowed bytes.

use super::schema::{Field, Kind};
use crate::{
    Dtype, Fault, Logical,
    block::{Fields, json, malformed, put_bytes, put_integer},
};

/// The first number of a recipe for Arrow.
pub(crate) const ARROW: u64 = 0;
/// Most nodes of a tree, and most levels.
const NODES_MAX: usize = 1 << 14;
const DEPTH_MAX: usize = 32;

/// How the rows of a column come out of any batch.
#[derive(Debug)]
pub(super) struct Tree<'a> {
    /// Whether rows are texts in JSON.
    pub(super) is_json: bool,
    /// Number of structs around the field.
    pub(super) path: usize,
    pub(super) root: TypeNode<'a>,
}

#[derive(Debug)]
pub(super) struct TypeNode<'a> {
    pub(super) kind: Kind,
    /// Its name as the key of an object in JSON, with the colon.
    pub(super) key: Vec<u8>,
    pub(super) children: Vec<Self>,
    pub(super) dictionary: Option<Dictionary<'a>>,
}

/// The values of a dictionary, which has no nulls.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dictionary<'a> {
    pub(super) dtype: Dtype,
    pub(super) logical: Logical,
    /// Where each text ends, four bytes each. `None` for numbers.
    pub(super) ends: Option<&'a [u8]>,
    pub(super) bytes: &'a [u8],
}

/// The values of a dictionary that was read.
#[derive(Debug, Default, Clone)]
pub(super) struct Values {
    /// `None` for numbers.
    pub(super) ends: Option<Vec<u32>>,
    pub(super) bytes: Vec<u8>,
}

impl Dictionary<'_> {
    /// Returns the value at this place.
    pub(super) fn get(&self, place: usize) -> Result<&[u8], Fault> {
        let found = match self.ends {
            None => {
                let bytes = usize::try_from(self.dtype.size_bytes()).expect("at most 8");
                place.checked_mul(bytes).and_then(|at| self.bytes.get(at..)?.get(..bytes))
            }
            Some(ends) => {
                let end = |at: usize| {
                    let end = ends.get(4 * at..)?.first_chunk()?;
                    Some(u32::from_le_bytes(*end) as usize)
                };
                let begin = place.checked_sub(1).map_or(Some(0), end);
                begin.zip(end(place)).and_then(|(begin, end)| self.bytes.get(begin..end))
            }
        };
        found.ok_or_else(|| Fault::new("dictionary", format!("has no value at place {place}")))
    }
}

impl<'a> Tree<'a> {
    /// Reads a recipe behind its first number.
    pub(super) fn parse(mut fields: Fields<'a>) -> Result<Self, Fault> {
        let (is_json, path) = (fields.integer()? != 0, fields.small()?);
        let root = TypeNode::parse(&mut fields, 0, &mut 0)?;
        fields.finish()?;
        let tree = Self { is_json, path, root };
        let mut node = &tree.root;
        for _ in 0..path {
            match (node.kind, &node.children[..]) {
                (Kind::Struct, [only]) => node = only,
                _ => return Err(malformed("has no struct around its field")),
            }
        }
        Ok(tree)
    }
}

impl<'a> TypeNode<'a> {
    /// Returns the bytes of a value as a row holds it. `None` if values differ in length.
    pub(super) fn value_bytes(&self) -> Option<u64> {
        match self.kind {
            Kind::Bool => Some(1),
            Kind::Number(dtype, _) => Some(dtype.size_bytes()),
            Kind::FixedBytes(size) => Some(size),
            Kind::FixedList(size) => self.children.first()?.value_bytes()?.checked_mul(size),
            Kind::Dictionary { .. } => {
                let dictionary = self.dictionary.filter(|values| values.ends.is_none());
                dictionary.map(|values| values.dtype.size_bytes())
            }
            _ => None,
        }
    }

    fn parse(fields: &mut Fields<'a>, depth: usize, nodes: &mut usize) -> Result<Self, Fault> {
        *nodes += 1;
        if depth > DEPTH_MAX || *nodes > NODES_MAX {
            return Err(malformed("has too many types"));
        }
        let kind = parse_kind(fields)?;
        let name =
            str::from_utf8(fields.bytes()?).map_err(|_| malformed("has a name in no UTF-8"))?;
        let count: usize = fields.small()?;
        let fits = match kind {
            Kind::List { .. } | Kind::FixedList(_) | Kind::Map => count == 1,
            Kind::Struct => true,
            _ => count == 0,
        };
        if !fits {
            return Err(malformed("has a type with other children"));
        }
        let mut children = Vec::new();
        for _ in 0..count {
            children.push(Self::parse(fields, depth + 1, nodes)?);
        }
        if kind == Kind::Map
            && (children[0].kind != Kind::Struct || children[0].children.len() != 2)
        {
            return Err(malformed("has a map without keys and values"));
        }
        let dictionary = match kind {
            Kind::Dictionary { .. } => Some(parse_dictionary(fields)?),
            _ => None,
        };
        Ok(Self { kind, key: json::key(name), children, dictionary })
    }
}

/// Returns the values of the dictionary with a number, or why there are none.
pub(super) type Dictionaries<'a> = dyn Fn(i64) -> Result<&'a Values, String> + 'a;

/// Encodes the recipe of a field in these structs, from the outermost in. `values` has the
/// dictionaries by their numbers.
pub(super) fn encode(
    is_json: bool,
    path: &[String],
    field: &Field,
    values: &Dictionaries<'_>,
) -> Result<Vec<u8>, String> {
    let mut recipe = Vec::new();
    for number in [ARROW, u64::from(is_json), path.len() as u64] {
        put_integer(number, &mut recipe);
    }
    for name in path {
        put_node(Kind::Struct, name, 1, &mut recipe);
    }
    put_field(field, values, &mut recipe)?;
    Ok(recipe)
}

fn put_field(field: &Field, values: &Dictionaries<'_>, recipe: &mut Vec<u8>) -> Result<(), String> {
    put_node(field.kind, &field.name, field.children.len(), recipe);
    field.children.iter().try_for_each(|child| put_field(child, values, recipe))?;
    if let (Kind::Dictionary { id, .. }, Some(of)) = (field.kind, &field.values) {
        let found = values(id)?;
        let (dtype, logical) = of.kind.scalar();
        for code in [dtype.code(), logical.code(), u16::from(found.ends.is_some())] {
            put_integer(code.into(), recipe);
        }
        if let Some(ends) = &found.ends {
            let ends: Vec<u8> = ends.iter().flat_map(|end| end.to_le_bytes()).collect();
            put_bytes(&ends, recipe);
        }
        put_bytes(&found.bytes, recipe);
    }
    Ok(())
}

fn put_node(kind: Kind, name: &str, children: usize, recipe: &mut Vec<u8>) {
    let (tag, first, second) = match kind {
        Kind::Null => (0, 0, 0),
        Kind::Bool => (1, 0, 0),
        Kind::Number(dtype, logical) => (2, dtype.code().into(), logical.code()),
        Kind::FixedBytes(size) => (3, size, 0),
        Kind::Text { large, logical } => (4, large.into(), logical.code()),
        Kind::View(logical) => (5, 0, logical.code()),
        Kind::List { large } => (6, large.into(), 0),
        Kind::FixedList(size) => (7, size, 0),
        Kind::Struct => (8, 0, 0),
        Kind::Map => (9, 0, 0),
        Kind::Dictionary { index, .. } => (10, index.code().into(), 0),
        Kind::Union { .. } | Kind::Other(..) => unreachable!("no rows are made of it"),
    };
    for number in [tag, first, second.into()] {
        put_integer(number, recipe);
    }
    put_bytes(name.as_bytes(), recipe);
    put_integer(children as u64, recipe);
}

fn parse_kind(fields: &mut Fields<'_>) -> Result<Kind, Fault> {
    let (tag, first, second) = (fields.integer()?, fields.integer()?, fields.small()?);
    let unknown = || malformed("has an unknown type");
    let logical = Logical::from_code(second).ok_or_else(unknown)?;
    let dtype = || u16::try_from(first).ok().and_then(Dtype::from_code).ok_or_else(unknown);
    Ok(match tag {
        0 => Kind::Null,
        1 => Kind::Bool,
        2 => Kind::Number(dtype()?, logical),
        3 => Kind::FixedBytes(first),
        4 => Kind::Text { large: first != 0, logical },
        5 => Kind::View(logical),
        6 => Kind::List { large: first != 0 },
        7 => Kind::FixedList(first),
        8 => Kind::Struct,
        9 => Kind::Map,
        10 => Kind::Dictionary { index: dtype()?, id: 0 },
        _ => return Err(unknown()),
    })
}

fn parse_dictionary<'a>(fields: &mut Fields<'a>) -> Result<Dictionary<'a>, Fault> {
    let unknown = || malformed("has a dictionary of an unknown type");
    let dtype = Dtype::from_code(fields.small()?).ok_or_else(unknown)?;
    let logical = Logical::from_code(fields.small()?).ok_or_else(unknown)?;
    let is_text = fields.integer()? != 0;
    let ends = is_text.then(|| fields.bytes()).transpose()?;
    Ok(Dictionary { dtype, logical, ends, bytes: fields.bytes()? })
}
