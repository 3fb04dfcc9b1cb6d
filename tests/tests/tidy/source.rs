//! Reads the workspace's Rust files as text. rustfmt fixes the layout, so a function ends at the
//! first closing brace indented like its signature.

use std::path::{Path, PathBuf};

/// One file, its path relative to the workspace.
pub(crate) struct Source {
    pub(crate) path: String,
    text: String,
}

/// The workspace root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_owned()
}

/// Returns every Rust file that a person writes, without generated code and build outputs.
pub(crate) fn sources() -> Vec<Source> {
    files(".rs")
}

/// Returns every file of an ending, without generated code and build outputs.
pub(crate) fn files(ending: &str) -> Vec<Source> {
    let mut found = Vec::new();
    collect(&root(), ending, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn collect(folder: &Path, ending: &str, found: &mut Vec<Source>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder").flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                collect(&path, ending, found);
            }
        } else if name.ends_with(ending) && name != "generated.rs" {
            let text = std::fs::read_to_string(&path).expect("UTF-8 source");
            let path = path.strip_prefix(root()).expect("under the root").display().to_string();
            found.push(Source { path, text });
        }
    }
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The lines before the unit tests at the end of the file.
    pub(crate) fn production_lines(&self) -> Vec<&str> {
        let lines: Vec<&str> = self.text.lines().collect();
        let tests = lines.windows(2).position(|pair| {
            pair[0].trim() == "#[cfg(test)]"
                && pair[1].trim_start().starts_with("mod ")
                && pair[1].ends_with('{')
        });
        lines[..tests.unwrap_or(lines.len())].to_vec()
    }

    /// Numbered lines without comments and string literals' insides; good enough to search words.
    pub(crate) fn code_lines(&self) -> impl Iterator<Item = (usize, String)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, strip(line)))
    }

    /// Numbered lines that are comments, without their indent.
    pub(crate) fn comment_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate();
        let lines = lines.map(|(index, line)| (index + 1, line.trim_start()));
        lines.filter(|(_, line)| line.starts_with("//"))
    }

    /// Columns before the text of a line.
    pub(crate) fn indent(&self, number: usize) -> usize {
        self.text.lines().nth(number - 1).map_or(0, |line| line.len() - line.trim_start().len())
    }

    /// The same lines, without comments and string literals' insides.
    pub(crate) fn production_code(&self) -> Vec<String> {
        self.production_lines().into_iter().map(strip).collect()
    }

    /// Whether all of the file is tests, where a table of cases may be as long as it must.
    pub(crate) fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    /// Paths, without `.rs`, of the modules that this file declares for tests alone.
    pub(crate) fn test_modules(&self) -> Vec<String> {
        let path = self.path.trim_end_matches(".rs");
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let home = if ["lib", "main"].contains(&name) { folder } else { path };
        let lines: Vec<&str> = self.text.lines().collect();
        let pairs = lines.windows(2).filter(|pair| pair[0].trim() == "#[cfg(test)]");
        let declared = pairs.filter_map(|pair| {
            let (_, name) = pair[1].split_once("mod ")?;
            name.strip_suffix(';')
        });
        declared.map(|name| format!("{home}/{name}")).collect()
    }

    /// Length and name of each function outside tests.
    pub(crate) fn functions(&self) -> Vec<(usize, String)> {
        let lines = if self.is_test() { Vec::new() } else { self.production_lines() };
        let mut found = Vec::new();
        for (start, line) in lines.iter().enumerate() {
            let Some(name) = function_name(line) else {
                continue;
            };
            let indent = &line[..line.len() - line.trim_start().len()];
            let close = format!("{indent}}}");
            let one_line = line.trim_end().ends_with('}') || line.trim_end().ends_with(';');
            let length = if one_line {
                1
            } else {
                let end = lines[start..].iter().position(|l| {
                    l.trim_end() == close || l.trim_end() == format!("{indent}) -> ();")
                });
                end.map_or(1, |end| end + 1)
            };
            found.push((length, format!("{}:{}: {name}", self.path, start + 1)));
        }
        found
    }

    /// Place and name of each test with a name over `max` characters.
    pub(crate) fn long_test_names(&self, max: usize) -> Vec<String> {
        let mut found = Vec::new();
        let mut is_test = false;
        for (index, line) in self.text.lines().enumerate() {
            let line = line.trim_start();
            is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
            let Some(name) = function_name(line).filter(|_| is_test) else {
                continue;
            };
            is_test = false;
            if name.chars().count() > max {
                found.push(format!("{}:{}: {name}", self.path, index + 1));
            }
        }
        found
    }
}

fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    for prefix in
        ["pub(crate) ", "pub(super) ", "pub ", "const ", "async ", "unsafe ", "extern \"C\" "]
    {
        rest = rest.strip_prefix(prefix).unwrap_or(rest);
    }
    let name = rest.strip_prefix("fn ")?;
    Some(&name[..name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len())])
}

fn strip(line: &str) -> String {
    let mut code = String::new();
    let mut in_string = false;
    let mut previous = ' ';
    for (index, c) in line.char_indices() {
        if !in_string && line[index..].starts_with("//") {
            break;
        }
        if c == '"' && previous != '\\' && previous != '\'' {
            in_string = !in_string;
        } else if !in_string {
            code.push(c);
        }
        previous = c;
    }
    code
}

#[test]
fn planted_long_test_name_is_found() {
    let text =
        ["#[test]\nfn short() {}\n", "fn longer() {}\n", "#[tokio::test]\nasync fn long() {}"];
    let source = Source::new("a.rs", &text.concat());
    assert_eq!(source.long_test_names(3), ["a.rs:2: short", "a.rs:5: long"]);
    assert_eq!(source.long_test_names(4), ["a.rs:2: short"]);
    assert_eq!(source.long_test_names(5), Vec::<String>::new());
}
