//! The modules of a crate as a graph: which file names an item of which other file.
//!
//! A path in a `use`, or one that begins with `crate`, `super` or `self`, leads from module to
//! module and through re-exports to the file that defines the item. A file may name its own
//! ancestors freely. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};

/// A file of a crate: its path below `src/`, and its text without comments, strings and tests.
pub(crate) type File = (String, String);

/// How often a name may be re-exported on its way.
const HOPS_MAX: usize = 8;

/// A module that lies in a file of its own.
#[derive(Debug, Default)]
struct Module {
    file: String,
    children: BTreeSet<String>,
    /// The path from the root that each name in scope stands for.
    names: BTreeMap<String, Vec<String>>,
    /// Modules with all names in scope.
    globs: Vec<Vec<String>>,
    text: String,
}

/// All modules of a crate by their paths from its root.
pub(crate) struct Crate(BTreeMap<Vec<String>, Module>);

/// From each file to those of which it names an item.
pub(crate) type Edges = BTreeMap<String, BTreeSet<String>>;

impl Crate {
    pub(crate) fn of(files: &[File]) -> Self {
        let mut modules = BTreeMap::new();
        for (file, text) in files {
            let module = Module { file: file.clone(), text: text.clone(), ..Module::default() };
            modules.insert(path_of(file), module);
        }
        let paths: Vec<Vec<String>> = modules.keys().cloned().collect();
        for path in paths.iter().filter(|path| !path.is_empty()) {
            let (name, parent) = path.split_last().expect("not the root");
            if let Some(parent) = modules.get_mut(parent) {
                parent.children.insert(name.clone());
            }
        }
        let mut made = Self(modules);
        for path in paths {
            let uses = uses(&made.0[&path].text);
            let found: Vec<_> =
                uses.iter().filter_map(|used| Some((used, made.absolute(&path, used)?))).collect();
            let module = made.0.get_mut(&path).expect("known");
            for (used, target) in found {
                match used.last().map(String::as_str) {
                    Some("*") => module.globs.push(target[..target.len() - 1].to_vec()),
                    Some(name) => drop(module.names.insert(name.to_owned(), target)),
                    None => {}
                }
            }
        }
        made
    }

    pub(crate) fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (path, module) in &self.0 {
            let targets = edges.entry(module.file.clone()).or_default();
            for named in uses(&module.text).into_iter().chain(inline_paths(&module.text)) {
                let Some(target) = self.absolute(path, &named) else { continue };
                let Some(found) = self.resolve(&target, HOPS_MAX) else { continue };
                if !path.starts_with(found) {
                    targets.insert(self.0[found].file.clone());
                }
            }
        }
        edges
    }

    /// The path from the root, unless it leads into another crate.
    fn absolute(&self, from: &[String], path: &[String]) -> Option<Vec<String>> {
        let first = path.first()?;
        match first.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([from, &path[1..]].concat()),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                let base = from.len().checked_sub(ups)?;
                Some([&from[..base], &path[ups..]].concat())
            }
            _ if self.0.get(from)?.children.contains(first) => Some([from, path].concat()),
            _ => None,
        }
    }

    /// Returns the module that defines the item of a path.
    fn resolve<'a>(&'a self, path: &[String], hops: usize) -> Option<&'a Vec<String>> {
        let mut known = 0;
        while known < path.len() && self.0.contains_key(&path[..=known]) {
            known += 1;
        }
        let (at, module) = self.0.get_key_value(&path[..known])?;
        let Some(name) = path.get(known) else { return Some(at) };
        if hops > 0 {
            if let Some(target) = module.names.get(name) {
                let target = [target, &path[known + 1..]].concat();
                return self.resolve(&target, hops - 1);
            }
            for glob in &module.globs {
                let target = [glob.as_slice(), &path[known..]].concat();
                if let Some(found) = self.resolve(&target, hops - 1)
                    && defines(&self.0[found].text, name)
                {
                    return Some(found);
                }
            }
        }
        Some(at)
    }
}

/// Whether the text defines an item of this name.
fn defines(text: &str, name: &str) -> bool {
    ["struct", "enum", "fn", "trait", "type", "const", "static"]
        .iter()
        .any(|kind| text.contains(&format!("{kind} {name}")))
}

/// The path of the module that lies in a file.
fn path_of(file: &str) -> Vec<String> {
    let stem = file.trim_end_matches(".rs");
    let parts: Vec<String> = stem.split('/').map(str::to_owned).collect();
    match parts.last().map(String::as_str) {
        Some("lib" | "main") => parts[..parts.len() - 1].to_vec(),
        _ => parts,
    }
}

/// All paths of all `use` statements, braces taken apart; the last part is the name in scope.
fn uses(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut statement: Option<String> = None;
    for line in text.lines() {
        let line = line.trim();
        let visible = line.strip_prefix("pub ").or_else(|| {
            line.strip_prefix("pub(").and_then(|rest| rest.split_once(") ").map(|(_, rest)| rest))
        });
        if let Some(rest) = visible.unwrap_or(line).strip_prefix("use ") {
            statement = Some(rest.to_owned());
        } else if let Some(statement) = &mut statement {
            statement.push_str(line);
        }
        if let Some(whole) = statement.take_if(|statement| statement.ends_with(';')) {
            take_apart(&[], whole.trim_end_matches(';'), &mut found);
        }
    }
    found
}

/// Takes apart `a::{b, c::d as e}` behind a prefix.
fn take_apart(prefix: &[String], tree: &str, found: &mut Vec<Vec<String>>) {
    let (head, braced) = match tree.split_once('{') {
        Some((head, rest)) => (head, rest.rsplit_once('}').map(|(inside, _)| inside)),
        None => (tree, None),
    };
    let head = head.split(" as ").next().unwrap_or(head);
    let parts = head.split("::").map(str::trim).filter(|part| !part.is_empty());
    let path: Vec<String> = prefix.iter().cloned().chain(parts.map(str::to_owned)).collect();
    let Some(inside) = braced else {
        let is_self = path.len() > 1 && path.last().is_some_and(|part| part == "self");
        found.push(if is_self { path[..path.len() - 1].to_vec() } else { path });
        return;
    };
    let (mut depth, mut start) = (0, 0);
    for (index, c) in inside.char_indices().chain([(inside.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = inside[start..index].trim();
                if !part.is_empty() {
                    take_apart(&path, part, found);
                }
                start = index + 1;
            }
            _ => {}
        }
    }
}

/// Paths in code that begin with `crate`, `super` or `self`.
fn inline_paths(text: &str) -> Vec<Vec<String>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = text.split(|c: char| !is_part(c)).map(|word| word.trim_end_matches(':'));
    let rooted = |word: &&str| ["crate::", "super::", "self::"].iter().any(|s| word.starts_with(s));
    let parts = |word: &str| word.split("::").map(str::to_owned).collect();
    words.filter(rooted).map(parts).collect()
}
