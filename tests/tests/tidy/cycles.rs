//! Finds modules that depend on each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::{Crate, Edges, File};
use super::source::sources;

/// All circles of all crates, between top-level modules and between files.
pub(crate) fn cycles() -> Vec<String> {
    let mut crates: BTreeMap<String, Vec<File>> = BTreeMap::new();
    for source in sources() {
        if let Some((folder, file)) = source.path.split_once("/src/")
            && !source.is_test()
        {
            let text: Vec<String> = source.production_code();
            crates.entry(folder.to_owned()).or_default().push((file.to_owned(), text.join("\n")));
        }
    }
    assert!(crates.len() > 10, "only {} crates found: does the rule still see?", crates.len());
    let mut found = Vec::new();
    for (folder, files) in crates {
        let circles =
            circles_of(&files).into_iter().map(|circle| format!("{folder}/src: {circle}"));
        found.extend(circles);
    }
    found
}

/// The circles of one crate.
fn circles_of(files: &[File]) -> Vec<String> {
    let edges = Crate::of(files).edges();
    let mut found = circles(&edges);
    found.extend(circles(&by_top(&edges)));
    found
}

/// The same edges between the modules that lie directly below the root.
fn by_top(edges: &Edges) -> Edges {
    let top = |file: &str| {
        let first = file.split('/').next().unwrap_or(file).trim_end_matches(".rs");
        (!["lib", "main", "bin"].contains(&first)).then(|| format!("module {first}"))
    };
    let mut merged = Edges::new();
    for (from, targets) in edges {
        let Some(from) = top(from) else { continue };
        let targets = targets.iter().filter_map(|target| top(target));
        let targets: BTreeSet<String> = targets.filter(|target| *target != from).collect();
        merged.entry(from).or_default().extend(targets);
    }
    merged
}

/// Each group of which every member reaches every other, with the edges inside.
pub(crate) fn circles(edges: &Edges) -> Vec<String> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|from| (from.as_str(), reached(edges, from))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (from, there) in &reach {
        let back = |to: &&str| reach.get(to).is_some_and(|again| again.contains(from));
        let circle: BTreeSet<&str> = there.iter().copied().filter(back).collect();
        if circle.len() > 1 && seen.insert(circle.clone()) {
            let inside = circle.iter().flat_map(|member| {
                let targets =
                    edges[*member].iter().filter(|target| circle.contains(target.as_str()));
                targets.map(move |target| format!("{member} -> {target}"))
            });
            found.push(inside.collect::<Vec<_>>().join(", "));
        }
    }
    found
}

/// All that can be reached from here in at least one step.
fn reached<'a>(edges: &'a Edges, from: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&str> = edges[from].iter().map(String::as_str).collect();
    while let Some(next) = open.pop() {
        if seen.insert(next) {
            open.extend(edges.get(next).into_iter().flatten().map(String::as_str));
        }
    }
    seen
}

/// Circles in a crate of these files.
fn in_files(files: &[(&str, &str)]) -> Vec<String> {
    let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
    circles_of(&files.iter().map(owned).collect::<Vec<_>>())
}

#[test]
fn a_planted_cycle_is_found_through_a_re_export() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "mod inner;\npub use inner::Deep;\nuse crate::b::Other;"),
        ("a/inner.rs", "pub struct Deep;"),
        ("b.rs", "pub struct Other;\nfn f(_: crate::a::Deep) {}"),
    ];
    let circle = "module a -> module b, module b -> module a";
    assert_eq!(in_files(&files), [circle]);
    let closed = ("a/inner.rs", "pub struct Deep;\nuse crate::{\n    b::Other,\n};");
    let files = [files[0], files[1], closed, files[3]];
    assert_eq!(in_files(&files), ["a/inner.rs -> b.rs, b.rs -> a/inner.rs", circle]);
}

#[test]
fn module_can_name_its_ancestors() {
    let files = [
        ("lib.rs", "mod a;\npub use a::Shared;"),
        ("a.rs", "mod inner;\nuse inner::Deep;\npub struct Shared;"),
        ("a/inner.rs", "use super::Shared;\nuse crate::Shared as Again;\npub struct Deep;"),
    ];
    assert_eq!(in_files(&files), Vec::<String>::new());
}
