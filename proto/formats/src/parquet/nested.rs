//! Fields that hold lists, structs in lists, and maps: their tree with its levels, as a recipe.
//!
//! ```text
//! recipe: 2, node
//! node:   kind, name, levels, leaves below, children
//! levels: the definition from which on a value is there, and from which on a list has elements;
//!         the repetition of a further element
//! ```
//!
//! Lists are read as the format's rules for old writers say: a repeated group with one field is no
//! value of its own, unless its name is `array` or ends with `_tuple`.
//!
//! Thread rule: plain values. Non-goals: the levels of a file (`leaf`), and its texts (`text`).

mod leaf;
pub(super) mod scan;
mod text;

use std::ops::Range;

use super::{
    footer::{Annotation, Element, Repetition},
    schema::{self, Shape},
    values::Type,
};
use crate::{
    Dtype, Fault, Logical,
    block::{Fields, Physical, json, malformed, put_bytes, put_integer},
};

pub(crate) use text::make;

/// The first number of a recipe for JSON from Parquet.
pub(crate) const NESTED: u64 = 2;
/// Most levels of a tree, and most nodes.
const DEPTH_MAX: usize = 32;
const NODES_MAX: usize = 1 << 14;

/// A node of a field.
#[derive(Debug, Clone)]
pub(super) struct FieldTree {
    pub(super) kind: Kind,
    name: String,
    /// Its name as the key of an object, with the colon.
    pub(super) key: Vec<u8>,
    /// The level from which on there is a value.
    pub(super) definition: u8,
    /// The level from which on there are elements, of a list or map.
    pub(super) elements: u8,
    /// The level of a further element.
    pub(super) repetition: u8,
    /// Leaves below, counted in the field.
    pub(super) leaves: Range<usize>,
    pub(super) children: Vec<Self>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Leaf(Leaf),
    Struct,
    /// Of its only child.
    List,
    /// Of two children.
    Map,
}

/// The values of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) values: Type,
    pub(super) dtype: Dtype,
    pub(super) logical: Logical,
}

/// Returns the tree of the field that has exactly these leaves of the schema, or why it has no
/// texts in JSON.
pub(super) fn field(schema: &[Element], leaves: &Range<usize>) -> Result<FieldTree, String> {
    let mut walk = Walk { rest: schema.iter(), leaf: 0, wanted: leaves.clone() };
    let found = walk.find(Levels::default(), 0);
    found.ok_or_else(|| "has no place in the schema".to_owned())?
}

/// The levels of the elements above.
#[derive(Debug, Default, Clone, Copy)]
struct Levels {
    definition: u8,
    repetition: u8,
}

struct Walk<'a> {
    rest: std::slice::Iter<'a, Element>,
    leaf: usize,
    wanted: Range<usize>,
}

impl<'a> Walk<'a> {
    /// Looks for the field below the structs that come next.
    fn find(&mut self, above: Levels, depth: usize) -> Option<Result<FieldTree, String>> {
        let before = self.rest.clone();
        let element = self.rest.next()?;
        let own = self.leaf..self.leaf + leaves_of(&mut before.clone(), 0)?;
        if depth > 0 && own == self.wanted && !is_struct(element) {
            self.rest = before;
            return Some(self.node(above, 0));
        }
        if own.end <= self.wanted.start || element.physical.is_some() {
            for _ in 0..element.children {
                leaves_of(&mut self.rest, 0)?;
            }
            self.leaf = own.end;
            return None;
        }
        let definition = u8::from(depth > 0 && element.repetition == Repetition::Optional);
        let below = Levels { definition: above.definition + definition, ..above };
        (0..element.children).find_map(|_| self.find(below, depth + 1))
    }

    /// Reads the tree of the next element.
    fn node(&mut self, above: Levels, depth: usize) -> Result<FieldTree, String> {
        let element = self.rest.next().ok_or("has no element")?;
        if element.repetition == Repetition::Repeated {
            // A list without a group around it.
            let item =
                Levels { definition: above.definition + 1, repetition: above.repetition + 1 };
            let child = self.value(element, item, depth + 1)?;
            return Ok(FieldTree::list(
                Kind::List,
                &element.name,
                above.definition,
                item,
                vec![child],
            ));
        }
        let own = Levels {
            definition: above.definition + u8::from(element.repetition == Repetition::Optional),
            ..above
        };
        self.value(element, own, depth)
    }

    /// Reads the tree of an element whose own levels these are.
    fn value(
        &mut self,
        element: &'a Element,
        own: Levels,
        depth: usize,
    ) -> Result<FieldTree, String> {
        if depth > DEPTH_MAX {
            return Err(format!("lies more than {DEPTH_MAX} levels deep"));
        }
        if element.physical.is_some() {
            let leaf = leaf(element)?;
            self.leaf += 1;
            let at = self.leaf - 1 - self.wanted.start;
            return Ok(FieldTree::new(Kind::Leaf(leaf), &element.name, own.definition, at..at + 1));
        }
        if is_list(element) {
            return self.list(element, own, depth);
        }
        let (begin, mut children) = (self.leaf - self.wanted.start, Vec::new());
        for _ in 0..element.children {
            children.push(self.node(own, depth + 1)?);
        }
        let leaves = begin..self.leaf - self.wanted.start;
        let node = FieldTree::new(Kind::Struct, &element.name, own.definition, leaves);
        Ok(FieldTree { children, ..node })
    }

    /// Reads a list or map below the element with the annotation.
    fn list(
        &mut self,
        element: &'a Element,
        own: Levels,
        depth: usize,
    ) -> Result<FieldTree, String> {
        let Some(repeated) = self.rest.as_slice().first() else {
            return Err("is a list of nothing".into());
        };
        if repeated.repetition != Repetition::Repeated {
            return Err("is a list that is not repeated".into());
        }
        let item = Levels { definition: own.definition + 1, repetition: own.repetition + 1 };
        let is_map = element.annotation == Annotation::Map;
        let is_pair = is_map && repeated.physical.is_none() && repeated.children == 2;
        let is_wrapper = repeated.physical.is_none()
            && repeated.children == 1
            && repeated.name != "array"
            && !repeated.name.ends_with("_tuple");
        if is_map && !is_pair {
            return Err("is a map without keys and values: not yet".into());
        }
        self.rest.next();
        let mut children = Vec::new();
        match is_pair || is_wrapper {
            true => {
                for _ in 0..repeated.children {
                    children.push(self.node(item, depth + 1)?);
                }
            }
            false => children.push(self.value(repeated, item, depth + 1)?),
        }
        let kind = if is_map { Kind::Map } else { Kind::List };
        Ok(FieldTree::list(kind, &element.name, own.definition, item, children))
    }
}

impl FieldTree {
    fn new(kind: Kind, name: &str, definition: u8, leaves: Range<usize>) -> Self {
        let (key, name) = (json::key(name), name.to_owned());
        let (elements, repetition, children) = (0, 0, Vec::new());
        Self { kind, name, key, definition, elements, repetition, leaves, children }
    }

    fn list(kind: Kind, name: &str, definition: u8, item: Levels, children: Vec<Self>) -> Self {
        let begin = children.first().map_or(0, |child| child.leaves.start);
        let end = children.last().map_or(0, |child| child.leaves.end);
        let node = Self::new(kind, name, definition, begin..end);
        let Levels { definition: elements, repetition } = item;
        Self { elements, repetition, children, ..node }
    }

    /// Returns whether this is a text.
    pub(super) fn is_text(&self) -> bool {
        matches!(&self.kind, Kind::Leaf(leaf) if leaf.values.physical == Physical::Bytes)
    }

    /// Returns whether the keys of a map are texts, none of them null. Others have no place in an
    /// object.
    pub(super) fn has_whole_text_keys(&self) -> bool {
        self.children.first().is_some_and(|key| key.is_text() && key.definition == self.elements)
    }

    /// Returns the column of a list of lists of numbers, if these have one length.
    pub(super) fn even_lists(&self, name: &str) -> Option<(schema::Leaf, Shape)> {
        let [inner] = &self.children[..] else { return None };
        let [value] = &inner.children[..] else { return None };
        let (Kind::List, Kind::List, Kind::Leaf(of)) = (self.kind, inner.kind, value.kind) else {
            return None;
        };
        if value.is_text() {
            return None;
        }
        // The scan finds the length.
        let (shape, ragged, decimal) = (vec![0], true, None);
        let Leaf { values: Type { physical, .. }, dtype, logical } = of;
        let shape = Shape { physical, decimal, dtype, logical, shape, ragged };
        let leaf = schema::Leaf {
            name: name.to_owned(),
            column: Ok(shape.clone()),
            is_null: false,
            definition_max: value.definition,
            list_definition: inner.elements,
            outer_definition: self.elements,
        };
        Some((leaf, shape))
    }

    /// Returns the leaves with the highest levels of definition and repetition that they have.
    pub(super) fn leaf_levels(&self) -> Vec<(Leaf, u8, u8)> {
        fn visit(node: &FieldTree, repetition: u8, found: &mut Vec<(Leaf, u8, u8)>) {
            let repetition = repetition.max(node.repetition);
            if let Kind::Leaf(leaf) = node.kind {
                found.push((leaf, node.definition, repetition));
            }
            node.children.iter().for_each(|child| visit(child, repetition, found));
        }
        let mut found = Vec::new();
        visit(self, 0, &mut found);
        found
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut recipe = Vec::new();
        put_integer(NESTED, &mut recipe);
        self.put(&mut recipe);
        recipe
    }

    fn put(&self, recipe: &mut Vec<u8>) {
        let (kind, leaf) = match self.kind {
            Kind::Leaf(leaf) => (0, Some(leaf)),
            Kind::Struct => (1, None),
            Kind::List => (2, None),
            Kind::Map => (3, None),
        };
        put_integer(kind, recipe);
        put_bytes(self.name.as_bytes(), recipe);
        for level in [self.definition, self.elements, self.repetition] {
            put_integer(level.into(), recipe);
        }
        match leaf {
            Some(leaf) => {
                let codes = [leaf.dtype.code(), leaf.logical.code()];
                put_integer(leaf.values.physical as u64, recipe);
                codes.into_iter().for_each(|code| put_integer(code.into(), recipe));
            }
            None => put_integer(self.children.len() as u64, recipe),
        }
        self.children.iter().for_each(|child| child.put(recipe));
    }

    /// Reads a recipe behind its first number.
    pub(super) fn parse(mut fields: Fields<'_>) -> Result<Self, Fault> {
        let node = Self::parse_node(&mut fields, 0, &mut (0, 0))?;
        fields.finish()?;
        Ok(node)
    }

    fn parse_node(
        fields: &mut Fields<'_>,
        depth: usize,
        seen: &mut (usize, usize),
    ) -> Result<Self, Fault> {
        seen.0 += 1;
        if depth > DEPTH_MAX || seen.0 > NODES_MAX {
            return Err(malformed("has too many types"));
        }
        let number = fields.integer()?;
        let name =
            str::from_utf8(fields.bytes()?).map_err(|_| malformed("has a name in no UTF-8"))?;
        let [definition, elements, repetition] =
            [fields.small()?, fields.small()?, fields.small()?];
        let begin = seen.1;
        if number == 0 {
            seen.1 += 1;
            let leaf = parse_leaf(fields)?;
            return Ok(Self::new(Kind::Leaf(leaf), name, definition, begin..seen.1));
        }
        let count: usize = fields.small()?;
        let (kind, fits) = match number {
            1 => (Kind::Struct, count > 0),
            2 => (Kind::List, count == 1),
            3 => (Kind::Map, count == 2),
            _ => return Err(malformed("has an unknown type")),
        };
        if !fits || (kind != Kind::Struct && (elements <= definition || repetition == 0)) {
            return Err(malformed("has other children or levels than its type"));
        }
        let mut children = Vec::new();
        for _ in 0..count {
            children.push(Self::parse_node(fields, depth + 1, seen)?);
        }
        let node = Self::new(kind, name, definition, begin..seen.1);
        Ok(Self { elements, repetition, children, ..node })
    }
}

fn parse_leaf(fields: &mut Fields<'_>) -> Result<Leaf, Fault> {
    let unknown = || malformed("has values of an unknown type");
    let physical = Physical::from_code(fields.small()?).ok_or_else(unknown)?;
    let dtype = Dtype::from_code(fields.small()?).ok_or_else(unknown)?;
    let logical = Logical::from_code(fields.small()?).ok_or_else(unknown)?;
    let bytes = dtype.size_bytes();
    if physical != Physical::Bytes && bytes > physical.bytes(bytes).unwrap_or(1) {
        return Err(unknown());
    }
    let bytes = usize::try_from(bytes).expect("at most 8");
    Ok(Leaf { values: Type { physical, bytes }, dtype, logical })
}

/// Returns the values of a leaf, or why JSON has no text for them.
fn leaf(element: &Element) -> Result<Leaf, String> {
    let shape = schema::values(element, element.physical.unwrap_or(-1))?;
    if shape.logical == Logical::Decimal || shape.physical == Physical::I96 {
        return Err("holds lists or maps of decimals or of INT96 times: not yet".into());
    }
    let is_text = matches!(shape.logical, Logical::Text | Logical::Json);
    if (shape.ragged || !shape.shape.is_empty()) && !(shape.ragged && is_text) {
        return Err("holds lists or maps of bytes: not yet".into());
    }
    let bytes = usize::try_from(shape.dtype.size_bytes()).expect("at most 8");
    let values = Type { physical: shape.physical, bytes };
    Ok(Leaf { values, dtype: shape.dtype, logical: shape.logical })
}

fn is_list(element: &Element) -> bool {
    let is_annotated = matches!(element.annotation, Annotation::List | Annotation::Map);
    is_annotated && element.physical.is_none() && element.children == 1
}

/// Returns whether the fields of an element are columns of their own.
fn is_struct(element: &Element) -> bool {
    element.physical.is_none() && !is_list(element) && element.repetition != Repetition::Repeated
}

/// Passes over an element. Returns the number of its leaves.
fn leaves_of(rest: &mut std::slice::Iter<'_, Element>, depth: usize) -> Option<usize> {
    let element = rest.next()?;
    if element.physical.is_some() {
        return Some(1);
    }
    if depth > DEPTH_MAX {
        return None;
    }
    (0..element.children).try_fold(0, |sum, _| Some(sum + leaves_of(rest, depth + 1)?))
}
