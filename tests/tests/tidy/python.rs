//! Python: the size of files and functions, and circles of imports.
//!
//! Reads text, as `source` does for Rust. ruff fixes the layout, so a function ends before the next
//! line that is indented no deeper than its `def`.

use std::collections::BTreeMap;

use super::{
    cycles::circles,
    modules::Edges,
    source::{Source, files},
};

/// Folders of modules that import each other, and the package that a folder is.
const FOLDERS: &[(&str, &str)] = &[
    ("client/python/python/larder", "larder"),
    ("client/python/tests", ""),
    ("tests/python", ""),
    ("benches/python", ""),
    ("benches/gpu", ""),
];

/// Files of more lines.
pub(crate) fn long_files(max: usize) -> Vec<String> {
    let files = files(".py");
    assert!(files.len() > 100, "only {} files found: does the rule still see?", files.len());
    let sizes = files.iter().map(|file| (file.text().lines().count(), &file.path));
    let long = sizes.filter(|(lines, _)| *lines > max);
    long.map(|(lines, path)| format!("{path}: {lines} lines")).collect()
}

/// Functions of more lines, docstrings not counted. Tests may be as long as their tables.
pub(crate) fn long_functions(max: usize) -> Vec<String> {
    let files = files(".py");
    let files = files.iter().filter(|file| !file.is_test());
    let found: Vec<(usize, String)> = files.flat_map(functions).collect();
    assert!(found.len() > 500, "only {} functions found: does the rule still see?", found.len());
    let long = found.into_iter().filter(|(lines, _)| *lines > max);
    long.map(|(lines, name)| format!("{name}: {lines} lines")).collect()
}

/// Circles of imports, also of those for types alone and of those inside functions.
pub(crate) fn cycles() -> Vec<String> {
    let files = files(".py");
    let found = FOLDERS.iter().flat_map(|(folder, package)| {
        let below = |file: &&Source| file.path.starts_with(&format!("{folder}/"));
        let edges = edges(files.iter().filter(below), folder, package);
        assert!(!edges.is_empty(), "no module in {folder}: does the rule still see?");
        circles(&edges).into_iter().map(move |circle| format!("{folder}: {circle}"))
    });
    found.collect()
}

/// From each module to those that it imports.
fn edges<'a>(files: impl Iterator<Item = &'a Source>, folder: &str, package: &str) -> Edges {
    let named = |file: &'a Source| {
        let path = file.path[folder.len()..].trim_end_matches(".py").trim_end_matches("/__init__");
        (format!("{package}{}", path.replace('/', ".")).trim_start_matches('.').to_owned(), file)
    };
    let modules: BTreeMap<String, &Source> = files.map(named).collect();
    let targets = |name: &str, file: &Source| {
        // A script finds modules in its own folder. A package does not.
        let home = name.rsplit_once('.').map_or("", |(home, _)| home);
        let beside = |import: &str| {
            let found = module_of(&format!("{home}.{import}"), &modules);
            found.filter(|_| !home.is_empty() && !modules.contains_key(home))
        };
        let of = |import: String| beside(&import).or_else(|| module_of(&import, &modules));
        let targets = imports(file).into_iter().filter_map(of);
        // A module can name its ancestors.
        targets.filter(|target| !format!("{name}.").starts_with(&format!("{target}."))).collect()
    };
    modules.iter().map(|(name, file)| (name.clone(), targets(name, file))).collect()
}

/// The module that an imported name is, or lies in.
fn module_of(import: &str, modules: &BTreeMap<String, &Source>) -> Option<String> {
    let ends = import.match_indices('.').map(|(end, _)| end).chain([import.len()]);
    let longest = ends.map(|end| &import[..end]).rfind(|name| modules.contains_key(*name));
    longest.map(str::to_owned)
}

/// All imported names, with their modules: `a.b` for `from a import b`.
fn imports(file: &Source) -> Vec<String> {
    let lines: Vec<&str> = code(file).iter().map(|line| line.text.trim()).collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        if let Some(list) = line.strip_prefix("import ") {
            found.extend(names(list).map(str::to_owned));
        } else if let Some((module, list)) =
            line.strip_prefix("from ").and_then(|line| line.split_once(" import "))
        {
            let more = lines[start + 1..].iter().take_while(|line| list == "(" && **line != ")");
            let all = names(list).chain(more.flat_map(|list| names(list)));
            found.extend(all.map(|name| format!("{module}.{name}")));
        }
    }
    found
}

/// The names in a list of imports, without `as`.
fn names(list: &str) -> impl Iterator<Item = &str> {
    let list = list.split('#').next().unwrap_or(list).trim_matches('(');
    list.split(',').filter_map(|name| name.split_whitespace().next())
}

/// Length and name of each function. A docstring does not count.
fn functions(file: &Source) -> Vec<(usize, String)> {
    let lines = code(file);
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let head = line.text.trim_start();
        let Some(name) = head.trim_start_matches("async ").strip_prefix("def ") else { continue };
        // The colon of a long signature stands in the column of its `def`.
        let is_colon = |line: &Line| {
            line.text.split("  #").next().is_some_and(|code| code.ends_with(':'))
                && line.indent() == lines[start].indent()
        };
        let is_one_line = line.text.ends_with("...");
        let colon = lines[start..].iter().position(is_colon).filter(|_| !is_one_line);
        let signature = colon.unwrap_or(0) + 1;
        let rest = &lines[start + signature..];
        let is_after = |next: &Line| !next.is_blank() && next.indent() <= line.indent();
        let body = &rest[..rest.iter().position(is_after).unwrap_or(rest.len())];
        let body =
            &body[..body.iter().rposition(|line| !line.is_blank()).map_or(0, |last| last + 1)];
        let is_documented = body.first().is_some_and(|line| line.text.trim().starts_with(TEXT));
        let inside = body.iter().skip(1).take_while(|line| line.is_in_text).count();
        let docstring = if is_documented { 1 + inside } else { 0 };
        let name = name.split('(').next().unwrap_or(name);
        let length = signature + body.len().saturating_sub(docstring);
        found.push((length, format!("{}:{}: {name}", file.path, start + 1)));
    }
    found
}

/// The mark at both ends of a long text.
const TEXT: &str = "\"\"\"";

/// A line, empty if it continues a long text.
struct Line<'a> {
    text: &'a str,
    is_in_text: bool,
}

impl Line<'_> {
    fn indent(&self) -> usize {
        self.text.len() - self.text.trim_start().len()
    }

    fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }
}

fn code(file: &Source) -> Vec<Line<'_>> {
    let mut is_open = false;
    let line = |text| {
        let is_in_text = is_open;
        is_open ^= str::matches(text, TEXT).count() % 2 == 1;
        Line { text: if is_in_text { "" } else { text }, is_in_text }
    };
    file.text().lines().map(line).collect()
}

fn in_files(files: &[(&str, &str)]) -> Vec<String> {
    let files: Vec<Source> = files.iter().map(|(path, text)| Source::new(path, text)).collect();
    circles(&edges(files.iter(), "here/larder", "larder"))
}

#[test]
fn planted_circle_of_imports_is_found() {
    let a = ("here/larder/_a.py", "def late() -> None:\n    from larder import _b, os\n");
    let b =
        ("here/larder/_b.py", "if TYPE_CHECKING:\n    from larder._c import (\n        C,\n    )");
    let back = ("here/larder/_c.py", "import larder._a as one\n");
    let top = ("here/larder/__init__.py", "from larder._a import late\n");
    let circle = "larder._a -> larder._b, larder._b -> larder._c, larder._c -> larder._a";
    assert_eq!(in_files(&[a, b, back, top]), [circle]);
    let text = ("here/larder/_c.py", "PROGRAM = \"\"\"\nimport larder._a\n\"\"\"\n");
    assert_eq!(in_files(&[a, b, text, top]), Vec::<String>::new());
}

#[test]
fn planted_long_function_is_found_without_its_docstring() {
    let text = [
        "class A:\n    def short(self): ...\n\n    async def long(\n        self,\n    ) -> int:  # x\n",
        "        \"\"\"Counts.\n\n        Long text.\n        \"\"\"\n\n        return 1\n\n\nB = 2\n",
    ];
    let found = functions(&Source::new("a.py", &text.concat()));
    assert_eq!(found, [(1, "a.py:2: short".to_owned()), (5, "a.py:4: long".to_owned())]);
}
