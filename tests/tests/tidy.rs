//! The house rules that a compiler does not check: sizes of files and functions, lengths of test
//! names, where `unsafe` and certain packages may be named, the directions in which crates may
//! depend on each other, and the tests and messages that a page names.
//!
//! Limits are a floor, not the aim. A file that needs more room is two files.

#[path = "tidy/cycles.rs"]
mod cycles;
#[path = "tidy/failures.rs"]
mod failures;
#[path = "tidy/limits.rs"]
mod limits;
#[path = "tidy/manifest.rs"]
mod manifest;
#[path = "tidy/markdown.rs"]
mod markdown;
#[path = "tidy/modules.rs"]
mod modules;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/prose.rs"]
mod prose;
#[path = "tidy/python.rs"]
mod python;
#[path = "tidy/size.rs"]
mod size;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/variables.rs"]
mod variables;

use source::{Source, sources};

/// Lines of a file, tests at its end not counted.
const FILE_LINES_MAX: usize = 600;
const FILE_LINES_P90_MAX: usize = 450;
/// Lines of a function, its signature and closing brace included.
const FUNCTION_LINES_MAX: usize = 70;
const FUNCTION_LINES_P90_MAX: usize = 35;
/// Characters of the name of a test.
const TEST_NAME_MAX: usize = 60;

/// The only folders with code that may say `unsafe`.
const UNSAFE_HOMES: &[&str] =
    &["proto/extent/", "client/src/device/cuda/", "client/python/src/array", "tests/cuda/"];

fn report(problems: &[String], rule: &str) {
    assert!(problems.is_empty(), "{rule}:\n  {}", problems.join("\n  "));
}

fn p90(mut sizes: Vec<usize>) -> usize {
    sizes.sort_unstable();
    sizes.get(sizes.len() * 9 / 10).copied().unwrap_or(0)
}

#[test]
fn files_are_within_the_length_limits() {
    let sizes: Vec<(usize, String)> =
        sources().iter().map(|s| (s.production_lines().len(), s.path.clone())).collect();
    let long: Vec<String> = sizes
        .iter()
        .filter(|(lines, _)| *lines > FILE_LINES_MAX)
        .map(|(lines, path)| format!("{path}: {lines} lines"))
        .collect();
    report(&long, &format!("files over {FILE_LINES_MAX} production lines"));
    let python = python::long_files(FILE_LINES_MAX);
    report(&python, &format!("files of Python over {FILE_LINES_MAX} lines"));
    let p90 = p90(sizes.into_iter().map(|(lines, _)| lines).collect());
    assert!(p90 <= FILE_LINES_P90_MAX, "p90 of file lengths is {p90}, limit {FILE_LINES_P90_MAX}");
}

#[test]
fn functions_are_within_the_length_limits() {
    let functions: Vec<(usize, String)> = sources().iter().flat_map(Source::functions).collect();
    assert!(
        functions.len() > 100,
        "only {} functions found: does the rule still see?",
        functions.len()
    );
    let long: Vec<String> = functions
        .iter()
        .filter(|(lines, _)| *lines > FUNCTION_LINES_MAX)
        .map(|(lines, name)| format!("{name}: {lines} lines"))
        .collect();
    report(&long, &format!("functions over {FUNCTION_LINES_MAX} lines"));
    let python = python::long_functions(FUNCTION_LINES_MAX);
    report(&python, &format!("functions of Python over {FUNCTION_LINES_MAX} lines"));
    let p90 = p90(functions.into_iter().map(|(lines, _)| lines).collect());
    assert!(
        p90 <= FUNCTION_LINES_P90_MAX,
        "p90 of functions is {p90}, limit {FUNCTION_LINES_P90_MAX}"
    );
}

#[test]
fn test_names_are_within_the_length_limit() {
    let long: Vec<String> =
        sources().iter().flat_map(|source| source.long_test_names(TEST_NAME_MAX)).collect();
    report(&long, &format!("test names over {TEST_NAME_MAX} characters"));
}

#[test]
fn unsafe_code_is_in_the_allowed_folders_only() {
    let mut problems = Vec::new();
    for source in sources() {
        let at_home = UNSAFE_HOMES.iter().any(|home| source.path.starts_with(home));
        for (number, line) in source.code_lines() {
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            if !at_home && words.into_iter().any(|word| word == "unsafe") {
                problems.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    report(&problems, &format!("`unsafe` outside {UNSAFE_HOMES:?}"));
}

#[test]
fn no_unfinished_code_is_checked_in() {
    let mut problems = Vec::new();
    for source in sources() {
        for (number, line) in source.code_lines() {
            for mark in ["todo!(", "unimplemented!(", "dbg!(", "#[ignore"] {
                if line.contains(mark) {
                    problems.push(format!("{}:{number}: {mark}", source.path));
                }
            }
        }
    }
    report(&problems, "unfinished code");
}

#[test]
fn dependencies_follow_the_allowed_directions() {
    report(&manifest::violations(), "forbidden dependencies");
}

#[test]
fn modules_have_no_circular_dependencies() {
    let cycles = [cycles::cycles(), python::cycles()].concat();
    report(&cycles, "modules that need each other: move what both need below both");
}

#[test]
fn one_name_stands_for_one_thing() {
    report(&names::crowded(), "types of one name in many modules: name each by its meaning");
}

#[test]
fn limits_stand_where_they_are_used() {
    report(&limits::misplaced(), "limits for the file that uses them, or of no use");
}

#[test]
fn pages_name_only_paths_that_exist() {
    report(&markdown::dead_paths(), "paths in Markdown that lead nowhere");
}

#[test]
fn page_of_faults_names_tests_and_messages_that_exist() {
    report(&failures::unfounded(), "tests or words that docs/what-can-fail.md makes up");
}

#[test]
fn page_for_operators_lists_the_variables_that_programs_read() {
    report(&variables::unlisted(), "variables in the code or in docs/operating.md only");
}

#[test]
fn comments_and_pages_follow_the_prose_rules() {
    report(&prose::problems(), "prose to mend: see `docs/glossary.md` for the words");
}

#[test]
fn folders_are_within_the_file_limit() {
    size::print();
    report(&size::full_folders(), "folders with too many files: part them by subject");
}

#[test]
fn crates_without_io_depend_on_none() {
    report(&manifest::impurities(), "packages that do I/O below crates that do none");
}

#[test]
fn one_crypto_library_is_compiled() {
    let lock = std::fs::read_to_string(source::root().join("Cargo.lock")).expect("Cargo.lock");
    let banned: Vec<String> = ["aws-lc-rs", "aws-lc-sys", "openssl-sys", "native-tls"]
        .iter()
        .filter(|name| lock.contains(&format!("name = \"{name}\"")))
        .map(ToString::to_string)
        .collect();
    report(&banned, "crypto libraries besides ring");
}
