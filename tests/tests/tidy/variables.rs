//! Environment variables: `docs/operating.md` lists those of Larder that programs read.

use std::collections::BTreeSet;

use super::size::product;
use super::source::{Source, files, root, sources};

/// A variable of builds for tests.
const UNLISTED: &str = "LARDER_PLANTED_MISTAKE";

/// Returns the variables that are only in the product, or only on the page.
pub(crate) fn unlisted() -> Vec<String> {
    let sources = [sources(), files(".py")];
    let page = root().join("docs/operating.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let package = |script: &&Source| script.path.starts_with("client/python/python/larder/");
    let product = product(&sources[0]).into_iter().chain(sources[1].iter().filter(package));
    let lines = product.flat_map(Source::production_lines);
    let lines = lines.filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n");
    let [read, listed] = [&code, &page].map(|text| variables(text));
    assert!(read.len() > 30, "{} variables found: does the rule still see?", read.len());
    let others = read.symmetric_difference(&listed).filter(|name| **name != UNLISTED);
    others.map(|name| (*name).to_owned()).collect()
}

fn variables(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("LARDER_") && !word.ends_with('_')).collect()
}
