//! Which crate may name which: the arrows of ARCHITECTURE.md, held by a test.

use std::collections::{BTreeMap, BTreeSet};

use super::source::root;

/// A crate's folder and the workspace crates its library may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("proto/base", &[]),
    ("proto/extent", &[]),
    ("proto/order", &["larder-base"]),
    ("proto/formats", &["larder-base"]),
    ("proto/dataset", &["larder-base", "larder-formats"]),
    ("proto/wire", &["larder-base"]),
    ("node/foresight", &["larder-order"]),
    ("node/store", &["larder-base"]),
    ("node/disk", &["larder-base", "larder-extent"]),
    ("node/membership", &["larder-base"]),
    ("node/coordinator", &["larder-base", "larder-membership", "larder-wire"]),
    (
        "node",
        &[
            "larder-base",
            "larder-coordinator",
            "larder-dataset",
            "larder-extent",
            "larder-foresight",
            "larder-membership",
            "larder-order",
            "larder-store",
            "larder-wire",
        ],
    ),
    (
        "client",
        &[
            "larder-base",
            "larder-dataset",
            "larder-decode",
            "larder-extent",
            "larder-order",
            "larder-wire",
        ],
    ),
    ("client/cli", &["larder-client"]),
    ("client/decode", &[]),
    ("client/python", &["larder-client"]),
    ("tests/cuda", &[]),
    ("tests/origin", &[]),
    (
        "tests/sim",
        &["larder-base", "larder-foresight", "larder-membership", "larder-order", "larder-store"],
    ),
];

/// A package, and the only folders with libraries that may name it.
const HOMES: &[(&str, &[&str])] = &[
    ("hashring", &["proto/base"]),
    ("memmap2", &["proto/extent"]),
    ("libc", &["proto/extent", "tests/cuda"]),
    ("cudarc", &["client"]),
    ("pyo3", &["client/python"]),
    ("object_store", &["proto/dataset"]),
    (
        "nix",
        &[
            "proto/dataset",
            "proto/extent",
            "node/coordinator",
            "node/disk",
            "node",
            "client",
            "client/cli",
        ],
    ),
    (
        "tokio",
        &["proto/dataset", "node/coordinator", "node", "client", "client/cli", "tests/origin"],
    ),
    ("s3s", &["tests/origin"]),
    ("s3s-fs", &["tests/origin"]),
];

/// Crates that do no I/O, and the packages that none of them may reach through any other.
const PURE: &[&str] = &[
    "proto/base",
    "proto/formats",
    "proto/order",
    "node/foresight",
    "node/store",
    "node/membership",
    "client/decode",
];
const IMPURE: &[&str] = &["hyper", "object_store", "reqwest", "tokio", "tonic"];

/// Every arrow that points the wrong way.
pub(crate) fn violations() -> Vec<String> {
    let mut found = Vec::new();
    for (folder, allowed) in ARROWS {
        let names = dependencies(folder);
        for name in names.iter().filter(|name| name.starts_with("larder-")) {
            if !allowed.contains(&name.as_str()) {
                found.push(format!("{folder} may not depend on {name}"));
            }
        }
        for (package, homes) in HOMES {
            if names.iter().any(|name| name == package) && !homes.contains(folder) {
                found.push(format!("{folder} may not name {package}: its home is {homes:?}"));
            }
        }
    }
    found
}

/// Every way from a pure crate to a package that does I/O.
pub(crate) fn impurities() -> Vec<String> {
    let locked = locked();
    assert!(IMPURE.iter().all(|name| locked.contains_key(*name)), "Cargo.lock is misread");
    let mut found = Vec::new();
    for folder in PURE {
        let mut reached = BTreeSet::new();
        let mut open = dependencies(folder);
        while let Some(name) = open.pop() {
            if reached.insert(name.clone()) {
                // Cargo.lock mixes a workspace crate's own dependencies with those of its tests.
                open.extend(match folder_of(&name) {
                    Some(folder) => dependencies(folder),
                    None => locked.get(&name).cloned().unwrap_or_default(),
                });
            }
        }
        let impure = IMPURE.iter().filter(|name| reached.contains(**name));
        found.extend(impure.map(|name| format!("{folder} reaches {name}")));
    }
    found
}

/// The folder of a workspace crate.
fn folder_of(name: &str) -> Option<&'static str> {
    let of = |folder: &str| format!("larder-{}", folder.rsplit('/').next().unwrap_or(folder));
    ARROWS.iter().map(|(folder, _)| *folder).find(|folder| of(folder) == name)
}

/// The packages of Cargo.lock, with the names of those that each depends on.
fn locked() -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock");
    let quoted = |line: &str| line.split('"').nth(1).map(str::to_owned);
    let mut packages: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for block in text.split("[[package]]").skip(1) {
        let mut lines = block.lines().map(str::trim);
        let name = lines.find(|line| line.starts_with("name = ")).and_then(quoted);
        let listed = lines.skip_while(|line| *line != "dependencies = [").skip(1);
        // A dependency is a name, and a version where two are locked.
        let names = listed.take_while(|line| *line != "]").filter_map(quoted);
        let names = names.filter_map(|name| name.split(' ').next().map(str::to_owned));
        packages.entry(name.expect("a package has a name")).or_default().extend(names);
    }
    packages
}

/// The names in `[dependencies]` (not those of tests and build scripts).
fn dependencies(folder: &str) -> Vec<String> {
    let path = root().join(folder).join("Cargo.toml");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut inside = false;
    let mut names = Vec::new();
    for line in text.lines() {
        if line.starts_with('[') {
            inside = line == "[dependencies]";
        } else if inside && let Some((name, _)) = line.split_once(['.', '=']) {
            names.push(name.trim().to_owned());
        }
    }
    assert!(!names.is_empty() || folder.starts_with("proto"), "{folder}: no dependencies read");
    names
}
