//! Which crate may name which: the arrows of ARCHITECTURE.md, held by a test.

use super::source::root;

/// A crate's folder and the workspace crates its library may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("proto/base", &[]),
    ("proto/extent", &[]),
    ("proto/dataset", &["larder-base"]),
    ("proto/wire", &["larder-base"]),
    ("node/store", &[]),
    ("node/plan", &["larder-base"]),
    ("node/cluster", &["larder-base", "larder-plan"]),
    (
        "node",
        &[
            "larder-base",
            "larder-cluster",
            "larder-dataset",
            "larder-extent",
            "larder-plan",
            "larder-store",
            "larder-wire",
        ],
    ),
    ("client", &["larder-base", "larder-dataset", "larder-extent", "larder-wire"]),
    ("client/cli", &["larder-client"]),
    ("client/python", &["larder-client"]),
    ("tests/cuda", &[]),
    ("tests/origin", &[]),
    ("tests/sim", &["larder-base", "larder-cluster", "larder-plan"]),
];

/// A package and the only folders whose libraries may name it.
const HOMES: &[(&str, &[&str])] = &[
    ("hashring", &["proto/base"]),
    ("memmap2", &["proto/extent"]),
    ("libc", &["proto/extent", "tests/cuda"]),
    ("cudarc", &["client"]),
    ("pyo3", &["client/python"]),
    ("object_store", &["proto/dataset"]),
    ("nix", &["proto/extent", "node", "client", "client/cli"]),
    ("tokio", &["proto/dataset", "node", "client", "client/cli", "tests/origin"]),
    ("s3s", &["tests/origin"]),
    ("s3s-fs", &["tests/origin"]),
];

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
