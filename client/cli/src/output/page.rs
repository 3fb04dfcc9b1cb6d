//! Builds text: lines, fields and tables, with colour if it is wanted. On a terminal, text breaks
//! between words at its width.

use std::mem;

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, TableStyle, presets};
use console::measure_text_width;
use larder_client::{printable, printable_line};

/// A colour or weight of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

/// Text to print.
#[derive(Debug)]
pub(crate) struct Page {
    text: String,
    ruled: bool,
    coloured: bool,
    /// The width of the terminal.
    columns: Option<usize>,
}

impl Page {
    pub(crate) fn new(ruled: bool, coloured: bool) -> Self {
        Self { text: String::new(), ruled, coloured, columns: None }
    }

    /// For a terminal of this width.
    pub(crate) fn within(self, columns: Option<usize>) -> Self {
        Self { columns, ..self }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Text in a colour, or as it is.
    pub(crate) fn ink(&self, ink: Ink, text: &str) -> String {
        if !self.coloured {
            return text.to_owned();
        }
        let code = match ink {
            Ink::Bold => "1",
            Ink::Dim => "2",
            Ink::Red => "1;31",
            Ink::Green => "32",
            Ink::Yellow => "33",
            Ink::Cyan => "36",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// Adds a line. Control characters are escaped, except colours: much text comes from files and
    /// servers.
    pub(crate) fn line(&mut self, text: &str) {
        self.hung(text.len() - text.trim_start().len(), text);
    }

    /// Adds a line. If it does not fit the terminal, its further lines are indented.
    pub(crate) fn hung(&mut self, indent: usize, text: &str) {
        for line in printable(text.trim_end()).split('\n') {
            match self.columns {
                Some(columns) => self.text.push_str(&broken(line, columns, indent)),
                None => self.text.push_str(line),
            }
            self.text.push('\n');
        }
    }

    /// `mark: text`, the mark coloured; further lines of the text are indented below the first.
    pub(crate) fn marked(&mut self, ink: Ink, mark: &str, text: &str) {
        let width = mark.len() + 2;
        let indent = format!("\n{:width$}", "");
        let line = format!("{}: {}", self.ink(ink, mark), text.replace('\n', &indent));
        self.hung(width, &line);
    }

    /// That a node did not answer, and why.
    pub(crate) fn no_answer(&mut self, node: &str, why: &str) {
        let mark = self.ink(Ink::Red, "no answer");
        self.line(&format!("{mark} from {node}: {why}"));
    }

    /// A heading, with an empty line before it unless it comes first.
    pub(crate) fn heading(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.line("");
        }
        let text = self.ink(Ink::Bold, text);
        self.line(&text);
    }

    /// Names and values in two columns.
    pub(crate) fn fields(&mut self, fields: &[(&str, String)]) {
        let width = fields.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, value) in fields {
            let name = self.ink(Ink::Dim, &format!("{name:<width$}"));
            let indent = format!("\n{:width$}  ", "");
            self.hung(width + 2, &format!("{name}  {}", value.replace('\n', &indent)));
        }
    }

    pub(crate) fn table(&mut self, table: &TextTable) {
        let text = table.render(self.ruled);
        let width = text.lines().map(measure_text_width).max().unwrap_or(0);
        if self.columns.is_none_or(|columns| width <= columns) {
            text.lines().for_each(|line| self.line(line));
        } else {
            table.rows.iter().for_each(|row| self.block(&table.columns, row));
        }
    }

    /// A row of a table that is wider than the terminal: its first cell, and below it the others,
    /// each after its heading.
    fn block(&mut self, columns: &[(&str, CellAlignment)], row: &[String]) {
        const INDENT: &str = "  ";
        let mut cells = row.iter();
        self.line(cells.next().map_or("", |cell| cell));
        let mut line = INDENT.to_owned();
        for (&(heading, _), cell) in columns.iter().skip(1).zip(cells) {
            let cell = format!("{} {cell}", self.ink(Ink::Dim, &heading.to_lowercase()));
            let width = measure_text_width(&line) + measure_text_width(&cell);
            if line != INDENT && self.columns.is_some_and(|columns| width > columns) {
                self.hung(2 * INDENT.len(), &mem::replace(&mut line, INDENT.to_owned()));
            }
            line = line + &cell + "   ";
        }
        self.hung(2 * INDENT.len(), &line);
    }
}

/// A line, broken between words. A word that is longer than the terminal is left whole.
fn broken(line: &str, columns: usize, indent: usize) -> String {
    let (mut lines, mut at) = (String::new(), 0);
    for (number, word) in line.split(' ').enumerate() {
        let width = measure_text_width(word);
        if number > 0 && at > indent && at + 1 + width > columns {
            lines = lines.trim_end().to_owned() + "\n" + &" ".repeat(indent);
            at = indent;
        } else if number > 0 {
            lines.push(' ');
            at += 1;
        }
        lines.push_str(word);
        at += width;
    }
    lines
}

/// A line under the headings and nothing else.
const RULED: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Rows under headings.
#[derive(Debug)]
pub(crate) struct TextTable {
    columns: Vec<(&'static str, CellAlignment)>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with these headings, as `NAME | >ROWS`. Cells below `>` stand on the right.
    pub(crate) fn new(headings: &'static str) -> Self {
        let column = |heading: &'static str| match heading.trim().strip_prefix('>') {
            Some(name) => (name, CellAlignment::Right),
            None => (heading.trim(), CellAlignment::Left),
        };
        Self { columns: headings.split('|').map(column).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| printable_line(&cell).into_owned()).collect());
    }

    fn render(&self, ruled: bool) -> String {
        let mut table = comfy_table::Table::new();
        let style = if ruled { RULED } else { presets::NOTHING };
        table.load_style(style).set_content_arrangement(ContentArrangement::Disabled);
        let heads = self.columns.iter().map(|&(name, side)| Cell::new(name).set_alignment(side));
        table.set_header(heads.collect::<Vec<_>>());
        for row in &self.rows {
            let cells = row.iter().zip(&self.columns);
            let cells = cells.map(|(text, &(_, side))| Cell::new(text).set_alignment(side));
            table.add_row(cells.collect::<Vec<_>>());
        }
        let text = table.trim_fmt();
        // The padding on the left would indent the whole table.
        let unindented = |line: &str| match line.strip_prefix([' ', '─']) {
            Some(rest) => rest.to_owned(),
            None => line.to_owned(),
        };
        text.lines().map(unindented).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_without_colour_has_no_escape_sequences() {
        let mut page = Page::new(false, false);
        page.marked(Ink::Red, "error", "a\nb");
        page.fields(&[("x", "1".to_owned()), ("long", "2".to_owned())]);
        assert_eq!(page.text(), "error: a\n       b\nx     1\nlong  2\n");
    }

    #[test]
    fn control_characters_in_names_are_escaped() {
        let mut page = Page::new(false, false);
        page.fields(&[("tensor", "a\nchecksums  pinned".to_owned())]);
        page.marked(Ink::Red, "error", "\u{1b}]0;x\u{7}\nb");
        let mut table = TextTable::new("NAME");
        table.row(["a\n\u{1b}[2Jb".to_owned()]);
        page.table(&table);
        let lines: Vec<&str> = page.text().lines().collect();
        let shown =
            ["tensor  a", "        checksums  pinned", "error: \\u{1b}]0;x\\u{7}", "       b"];
        assert_eq!(lines[..4], shown);
        assert_eq!(lines[4..], ["NAME", "a\\n\\u{1b}[2Jb"]);
    }

    #[test]
    fn long_line_is_broken_between_words_and_indented() {
        let mut page = Page::new(true, true).within(Some(20));
        page.fields(&[("x", "one two three four five".to_owned())]);
        page.line("  seven eight nine ten");
        page.line("short");
        page.line("s3://a/word/that/is/longer stays");
        let wanted = "\u{1b}[2mx\u{1b}[0m  one two three\n   four five\n  seven eight nine\n  ten\n\
                      short\ns3://a/word/that/is/longer\nstays\n";
        assert_eq!(page.text(), wanted);
    }

    #[test]
    fn table_that_is_wider_than_the_terminal_becomes_blocks() {
        let mut page = Page::new(true, false).within(Some(30));
        let mut table = TextTable::new("NODE | STATE | CONTROL | >MEMORY");
        table.row(["a", "up", "http://10.0.0.1:7070", "1.0 GiB"].map(str::to_owned));
        page.table(&table);
        let wanted = "a\n  state up\n  control http://10.0.0.1:7070\n  memory 1.0 GiB\n";
        assert_eq!(page.text(), wanted);
    }

    #[test]
    fn coloured_text_ends_with_a_reset() {
        let page = Page::new(false, true);
        assert_eq!(page.ink(Ink::Green, "ok"), "\x1b[32mok\x1b[0m");
    }

    #[test]
    fn piped_table_is_aligned_columns() {
        let mut table = TextTable::new("NAME | >ROWS");
        table.row(["a".to_owned(), "1,000".to_owned()]);
        assert_eq!(table.render(false), "NAME   ROWS\na     1,000");
    }
}
