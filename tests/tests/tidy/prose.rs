//! The words and widths of comments and pages.
//!
//! Counts words that hide the subject of a sentence, in three kinds: two lists of pronouns, and
//! clauses that begin with a question word.

use std::path::Path;

use super::markdown::pages;
use super::source::{root, sources};

/// Columns of a line of comment, and of a line of Markdown.
const COMMENT_COLUMNS_MAX: usize = 100;
const MARKDOWN_COLUMNS_MAX: usize = 120;

/// Most words of each kind in a thousand lines, in module headers and Markdown, and in comments.
const IN_HEADERS: [usize; 3] = [1, 1, 3];
const IN_COMMENTS: [usize; 3] = [5, 5, 15];

/// Folders of gRPC schemas. Their comments become those of the generated code.
const SCHEMAS: [&str; 2] = ["proto/wire/schema", "node/coordinator/schema"];

const WHO: &[&str] = &["who", "whoever", "whom", "whomever", "whose"];
const BODY: &[&str] = &["anybody", "everybody", "nobody", "somebody"];
const AFTER_WHAT: &[&str] = &[
    "a", "an", "came", "comes", "has", "is", "it", "lies", "others", "stands", "the", "they",
    "was", "were",
];

/// Lines, and words of each kind in them.
#[derive(Default)]
struct Tally {
    lines: usize,
    words: [usize; 3],
}

impl Tally {
    fn add(&mut self, line: &str) {
        self.lines += 1;
        let letters = |c: char| !c.is_alphanumeric();
        let words: Vec<String> =
            line.split(letters).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
        for (index, word) in words.iter().enumerate() {
            let next = words.get(index + 1).map_or("", String::as_str);
            self.words[0] += usize::from(WHO.contains(&word.as_str()));
            self.words[1] += usize::from(BODY.contains(&word.as_str()));
            self.words[2] += usize::from(word == "what" && AFTER_WHAT.contains(&next));
        }
    }

    fn excess(&self, place: &str, most: [usize; 3]) -> Vec<String> {
        let kinds = ["who", "nobody", "what is"].into_iter().zip(self.words).zip(most);
        let over = kinds.filter(|((_, count), most)| count * 1000 > most * self.lines);
        let told = |((kind, count), most): ((&str, usize), usize)| {
            format!(
                "{place}: {count} of \"{kind}\" in {} lines, at most {most} in 1000",
                self.lines
            )
        };
        over.map(told).collect()
    }
}

/// Everything that breaks a rule of prose.
pub(crate) fn problems() -> Vec<String> {
    let (mut headers, mut comments) = (Tally::default(), Tally::default());
    let mut found = Vec::new();
    for source in &sources() {
        for (number, line) in source.comment_lines() {
            let tally = if line.starts_with("//!") { &mut headers } else { &mut comments };
            tally.add(line);
            if line.chars().count() + source.indent(number) > COMMENT_COLUMNS_MAX {
                found.push(format!("{}:{number}: over {COMMENT_COLUMNS_MAX} columns", source.path));
            }
        }
    }
    for (path, number, line) in
        SCHEMAS.iter().flat_map(|folder| schema_comments(&root().join(folder)))
    {
        comments.add(line.trim_start());
        if line.chars().count() > COMMENT_COLUMNS_MAX {
            found.push(format!("{path}:{number}: over {COMMENT_COLUMNS_MAX} columns"));
        }
    }
    for page in pages() {
        let path = page.strip_prefix(root()).expect("under the root").display().to_string();
        let text = std::fs::read_to_string(&page).expect("UTF-8 Markdown");
        for (number, line) in prose_of(&text) {
            headers.add(line);
            // A line that cannot be broken may be longer.
            if line.chars().count() > MARKDOWN_COLUMNS_MAX && !line.starts_with('|') {
                found.push(format!("{path}:{number}: over {MARKDOWN_COLUMNS_MAX} columns"));
            }
        }
    }
    found.extend(headers.excess("module headers and Markdown", IN_HEADERS));
    found.extend(comments.excess("comments", IN_COMMENTS));
    found
}

/// Path, number and text of each line of comment in the schemas below a folder.
fn schema_comments(folder: &Path) -> Vec<(String, usize, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a readable folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(schema_comments(&path));
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            let text = std::fs::read_to_string(&path).expect("UTF-8 schema");
            let name = path.strip_prefix(root()).expect("under the root").display().to_string();
            let lines =
                text.lines().zip(1..).filter(|(line, _)| line.trim_start().starts_with("//"));
            found.extend(lines.map(|(line, number)| (name.clone(), number, line.to_owned())));
        }
    }
    found
}

/// Numbered lines of a page outside its blocks of code.
fn prose_of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        let prose = !fence && !in_code && line.trim_end().contains(' ');
        prose.then_some((index + 1, line))
    })
}
