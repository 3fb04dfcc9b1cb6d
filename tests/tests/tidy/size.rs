//! The size of the product: lines of Rust and of Python, files, and files in a folder.
//!
//! The product is the code in `src/` below `node/`, `client/` and `proto/`, and the Python package.
//! Tests and generated code do not count.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, root, sources};

/// Lines of the product before the code was made easy to take over. Measured by these functions.
const RUST_LINES_BEFORE: usize = 53_322;
const PYTHON_LINES_BEFORE: usize = 4_753;
const FILES_BEFORE: usize = 486;

/// What had to go, so that the product is smaller than it was.
const LINES_FEWER_MIN: usize = 3_800;
const PYTHON_LINES_FEWER_MIN: usize = 717;
const FILES_FEWER_MIN: usize = 68;

/// Source files that lie directly in one folder.
const FILES_IN_A_FOLDER_MAX: usize = 14;

/// Everything that is larger than it may be. Prints the figures.
pub(crate) fn excess() -> Vec<String> {
    let sources = sources();
    let product = product(&sources);
    let rust: usize = product.iter().map(|source| lines_of_code(source)).sum();
    let python = python_lines();
    let files = product.len();
    println!("product: {rust} lines of Rust in {files} files, {python} lines of Python");
    let limits = [
        ("lines", rust + python, RUST_LINES_BEFORE + PYTHON_LINES_BEFORE - LINES_FEWER_MIN),
        ("lines of Python", python, PYTHON_LINES_BEFORE - PYTHON_LINES_FEWER_MIN),
        ("files", files, FILES_BEFORE - FILES_FEWER_MIN),
    ];
    let over = limits.into_iter().filter(|(_, found, most)| found > most);
    let mut problems: Vec<String> =
        over.map(|(kind, found, most)| format!("{found} {kind}, at most {most}")).collect();
    problems.extend(full_folders(&sources));
    problems
}

/// The sources that are product code.
fn product(sources: &[Source]) -> Vec<&Source> {
    let tops = ["node/", "client/", "proto/"];
    let tests: BTreeSet<String> = sources.iter().flat_map(Source::test_modules).collect();
    let is_test = |source: &Source| {
        let module = source.path.trim_end_matches(".rs");
        source.is_test()
            || tests.iter().any(|test| module == test || module.starts_with(&format!("{test}/")))
    };
    let in_product = |source: &&Source| {
        tops.iter().any(|top| source.path.starts_with(top)) && source.path.contains("/src/")
    };
    sources.iter().filter(in_product).filter(|source| !is_test(source)).collect()
}

fn lines_of_code(source: &Source) -> usize {
    let lines = source.production_lines().into_iter().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

fn python_lines() -> usize {
    let package = root().join("client/python/python/larder");
    let files = std::fs::read_dir(package).expect("the Python package").flatten();
    let files =
        files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|e| e == "py"));
    files.map(|path| std::fs::read_to_string(path).expect("UTF-8 Python").lines().count()).sum()
}

/// Folders of source code with too many files.
fn full_folders(sources: &[Source]) -> Vec<String> {
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path.contains("/src/") && !source.is_test())
    {
        let (folder, _) = source.path.rsplit_once('/').expect("a file lies in a folder");
        *folders.entry(folder).or_default() += 1;
    }
    let full = folders.into_iter().filter(|(_, count)| *count > FILES_IN_A_FOLDER_MAX);
    full.map(|(folder, count)| format!("{folder}: {count} files, at most {FILES_IN_A_FOLDER_MAX}"))
        .collect()
}
