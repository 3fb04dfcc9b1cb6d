//! The page *What can fail*: each entry names tests that exist, and quotes words that a program
//! or a test has.

use super::source::{Source, files, root};

const PAGE: &str = "docs/what-can-fail.md";

/// Returns the tests and words of the page that do not exist, and entries without a test.
pub(crate) fn unfounded() -> Vec<String> {
    let page = std::fs::read_to_string(root().join(PAGE)).expect("the page");
    let mut sources = files(".rs");
    sources.extend(files(".py"));
    let entries = entries(&page);
    assert!(entries.len() > 40, "{} entries found: does the rule still see?", entries.len());
    let code: String = sources.iter().map(|source| joined(source.text())).collect();
    entries.iter().flat_map(|entry| wrong_in(entry, &sources, &code)).collect()
}

/// Returns the items of the page's lists about faults, each on one line.
fn entries(page: &str) -> Vec<String> {
    let items = page.split("\n- ").skip(1).filter(|item| item.starts_with("**"));
    let items = items.map(|item| item.split("\n\n").next().unwrap_or(item));
    items.map(|item| item.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn wrong_in(entry: &str, sources: &[Source], code: &str) -> Vec<String> {
    let comments = entry.split("<!-- ").skip(1).filter_map(|rest| rest.split(" -->").next());
    let tests: Vec<&str> = comments.collect();
    let text = entry.split("<!-- ").next().unwrap_or(entry);
    let words = text.split('"').skip(1).step_by(2).flat_map(|quoted| quoted.split('…'));
    let absent = words.filter(|words| !code.contains(words)).map(|words| format!("\"{words}\""));
    let unknown = tests.iter().filter(|test| !exists(test, sources)).map(ToString::to_string);
    let untested = tests.is_empty().then(|| format!("no test of: {text}"));
    absent.chain(unknown).chain(untested).collect()
}

/// Returns whether a file has a test. `test` is its path, a colon and the test's name.
fn exists(test: &str, sources: &[Source]) -> bool {
    let Some((path, name)) = test.split_once(": ") else { return false };
    let heads = [format!("fn {name}()"), format!("def {name}(")];
    let source = sources.iter().find(|source| source.path == path);
    source.is_some_and(|source| heads.iter().any(|head| source.text().contains(head)))
}

/// Returns code with the lines of each text put together.
fn joined(code: &str) -> String {
    let mut pieces = code.split("\\\n");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| text + piece.trim_start())
}

#[test]
fn wrong_test_or_word_of_an_entry_is_reported() {
    let code =
        "#[test]\nfn it_fails() {\n    said(\"the disk {name} \\\n          is full\");\n}\n";
    let source = [Source::new("tests/it/a.rs", code)];
    let wrong = |page: &str| {
        let entries = entries(page);
        assert_eq!(entries.len(), 1, "{entries:?}");
        wrong_in(&entries[0], &source, &joined(code))
    };
    let right = "# Page\n\n- other\n- **A fault.** \"the disk … is\n  full\"\n  <!-- tests/it/a.rs: it_fails -->\n";
    assert_eq!(wrong(right), Vec::<String>::new());
    assert_eq!(wrong(&right.replace("it_fails", "it_falls")), ["tests/it/a.rs: it_falls"]);
    assert_eq!(wrong(&right.replace("a.rs", "b.rs")), ["tests/it/b.rs: it_fails"]);
    assert_eq!(wrong(&right.replace("full", "empty")), ["\" is empty\""]);
    assert_eq!(wrong("\n- **A fault.** It passes.\n"), ["no test of: **A fault.** It passes."]);
}
