//! Names of types: one word for one thing.

use std::collections::{BTreeMap, BTreeSet};

use super::{size, source::sources};

/// Most product modules that may define a type of one name.
const MODULES_MAX: usize = 3;

/// Names that mean the same of each module, with that meaning. At most twelve.
const SHARED: &[(&str, &str)] = &[
    ("Arguments", "the arguments of a command of the tool"),
    ("Kind", "the kinds of the things that its module is about"),
    ("State", "the values that change together in its module, mostly behind a lock"),
];

/// Most names of [`SHARED`].
const SHARED_MAX: usize = 12;

/// Returns the names that too many modules define, with the modules.
pub(crate) fn crowded() -> Vec<String> {
    assert!(SHARED.len() <= SHARED_MAX, "{} names are shared", SHARED.len());
    let mut homes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let sources = sources();
    for source in size::product(&sources) {
        for line in source.production_code() {
            if let Some(name) = defined(&line) {
                homes.entry(name.to_owned()).or_default().insert(source.path.clone());
            }
        }
    }
    homes.retain(|name, homes| {
        homes.len() > MODULES_MAX && !SHARED.iter().any(|(shared, _)| shared == name)
    });
    let told = |(name, homes): (String, BTreeSet<String>)| {
        let homes: Vec<String> = homes.into_iter().collect();
        format!("{name}: {}", homes.join(", "))
    };
    homes.into_iter().map(told).collect()
}

/// Returns the name of the type that a line of code defines.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let visible = line.strip_prefix("pub").map_or(line, |rest| {
        let rest = rest
            .strip_prefix('(')
            .and_then(|rest| rest.split_once(')'))
            .map_or(rest, |(_, rest)| rest);
        rest.trim_start()
    });
    let rest = ["struct ", "enum ", "trait ", "union "]
        .iter()
        .find_map(|word| visible.strip_prefix(word))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}
