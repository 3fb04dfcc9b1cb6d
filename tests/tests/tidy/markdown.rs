//! The Markdown files of the repository: every path that they name exists.

use std::path::{Path, PathBuf};

use super::source::root;

/// Folders at the top of the repository. A word in code that begins with one is a path.
const TOPS: &[&str] = &[
    "benches/",
    "client/",
    "deploy/",
    "docs/",
    "examples/",
    "node/",
    "proto/",
    "tests/",
    ".ci/",
    ".config/",
];

/// Every path in a Markdown file that leads nowhere.
pub(crate) fn dead_paths() -> Vec<String> {
    pages().iter().flat_map(|file| dead_in(file)).collect()
}

/// Every Markdown file that a person wrote.
pub(crate) fn pages() -> Vec<PathBuf> {
    let mut files = Vec::new();
    collect(&root(), &mut files);
    assert!(files.len() > 30, "only {} pages found: does the rule still see?", files.len());
    files.sort();
    files
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() && name != "target" && (!name.starts_with('.') || name == ".ci") {
            collect(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

fn dead_in(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).expect("UTF-8 Markdown");
    let folder = file.parent().expect("a file lies in a folder");
    let page = file.strip_prefix(root()).expect("under the root").display();
    let named = in_code(&text).filter(|word| TOPS.iter().any(|top| word.starts_with(top)));
    let named = named.map(|word| (word, root().join(word)));
    let linked = links(&text).map(|link| (link, folder.join(link)));
    let dead = named.chain(linked).filter(|(_, path)| !path.exists());
    dead.map(|(word, _)| format!("{page}: {word}")).collect()
}

/// Words between backticks that could be paths: without spaces or patterns.
fn in_code(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().filter(|line| !line.starts_with("```"));
    let words = lines.flat_map(|line| line.split('`').skip(1).step_by(2));
    let plain = |word: &&str| !word.contains([' ', '*', '<', '{', '$', '=', ':']);
    words.filter(plain).map(|word| word.split(['#', '(']).next().unwrap_or(word))
}

/// Targets of links within the repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let ends = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let targets = ends.map(|(target, _)| target.split('#').next().unwrap_or(target));
    targets.filter(|target| !target.is_empty() && !target.contains("://") && !target.contains(' '))
}
