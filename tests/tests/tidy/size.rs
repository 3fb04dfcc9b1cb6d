//! The size of the product: lines of Rust and of Python, files, and files in a folder.
//!
//! The product is the code in `src/` below `node/`, `client/` and `proto/`, and the Python package.
//! Tests and generated code do not count. Lines of Rust are those of code, without blanks and
//! comments; lines of Python are all lines.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, root, sources};

/// Source files that lie directly in one folder.
const FILES_IN_A_FOLDER_MAX: usize = 14;

/// Prints the lines and files of the product.
pub(crate) fn print() {
    let sources = sources();
    let product = product(&sources);
    let rust: usize = product.iter().map(|source| lines_of_code(source)).sum();
    let (files, python) = (product.len(), python_lines());
    assert!(
        files > 100 && python > 1000,
        "{files} files, {python} lines: does the rule still see?"
    );
    println!("product: {rust} lines of Rust in {files} files, {python} lines of Python");
}

/// The sources that are product code.
pub(crate) fn product(sources: &[Source]) -> Vec<&Source> {
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
pub(crate) fn full_folders() -> Vec<String> {
    let sources = sources();
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
