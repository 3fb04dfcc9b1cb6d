//! Objects and columns that an index leaves out, each with the reason.

use std::{cmp::Reverse, collections::BTreeMap, fmt};

use larder_base::Counted;
use serde::Serialize;

/// An object or tensor under the prefix that is not part of the dataset.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LeftOut {
    /// The key of the object, relative to the prefix.
    pub object: String,
    /// The tensor, if the rest of the object is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor: Option<String>,
    /// The reason.
    pub why: String,
}

impl LeftOut {
    pub(super) fn object(key: &str, why: impl Into<String>) -> Self {
        Self { object: key.into(), tensor: None, why: why.into() }
    }

    pub(super) fn tensor(key: &str, tensor: &str, why: impl Into<String>) -> Self {
        Self { object: key.into(), tensor: Some(tensor.into()), why: why.into() }
    }
}

/// One clause: `notes.txt is empty`.
impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, tensor, why } = self;
        match tensor {
            Some(tensor) => write!(f, "tensor '{tensor}' of {object} {why}"),
            None => write!(f, "{object} {why}"),
        }
    }
}

/// Parts that were left out for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOutGroup {
    /// The reason.
    pub why: String,
    /// How many parts.
    pub count: u64,
    /// The first of them.
    pub first: LeftOut,
}

/// One clause: `12 objects, first a/._b.jpg: is a sidecar file of macOS`.
impl fmt::Display for LeftOutGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { why, count, first } = self;
        if *count == 1 {
            return first.fmt(f);
        }
        match &first.tensor {
            Some(name) => {
                let counted = Counted(*count, "column");
                write!(f, "{counted}, first '{name}' of {}: {why}", first.object)
            }
            None => write!(f, "{}, first {}: {why}", Counted(*count, "object"), first.object),
        }
    }
}

/// Counts the parts that were left out by reason, the most frequent reason first.
pub fn left_out_by_reason(left_out: &[LeftOut]) -> Vec<LeftOutGroup> {
    let mut groups: BTreeMap<(&str, bool), LeftOutGroup> = BTreeMap::new();
    for one in left_out {
        let group = groups
            .entry((&one.why, one.tensor.is_some()))
            .or_insert_with(|| LeftOutGroup { why: one.why.clone(), count: 0, first: one.clone() });
        group.count += 1;
    }
    let mut groups: Vec<LeftOutGroup> = groups.into_values().collect();
    groups.sort_by_key(|group| Reverse(group.count));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_the_most_frequent_first() {
        let left_out = [
            LeftOut::object("a", "is empty"),
            LeftOut::tensor("b", "x", "has no name"),
            LeftOut::object("c", "is hidden"),
            LeftOut::object("d", "is hidden"),
        ];
        let said: Vec<String> =
            left_out_by_reason(&left_out).iter().map(ToString::to_string).collect();
        let expected =
            ["2 objects, first c: is hidden", "tensor 'x' of b has no name", "a is empty"];
        assert_eq!(said, expected);
    }
}
