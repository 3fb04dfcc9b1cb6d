//! Tables: columns with headings, ruled on a terminal and plain when piped.

use larder_client::printable_line;

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, TableStyle, presets};

/// A line under the headings and nothing else.
const RULED: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// The alignment of the cells of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows under headings.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| printable_line(&cell).into_owned()).collect());
    }

    pub(super) fn render(self, ruled: bool) -> String {
        let mut table = comfy_table::Table::new();
        let style = if ruled { RULED } else { presets::NOTHING };
        table.load_style(style).set_content_arrangement(ContentArrangement::Disabled);
        let align = |(text, align): (String, Align)| {
            let side = match align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            };
            Cell::new(text).set_alignment(side)
        };
        let heads = self.columns.iter().map(|&(name, side)| align((name.to_owned(), side)));
        table.set_header(heads.collect::<Vec<_>>());
        for row in self.rows {
            let cells = row.into_iter().zip(&self.columns).map(|(text, &(_, side))| (text, side));
            table.add_row(cells.map(align).collect::<Vec<_>>());
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
    fn piped_table_is_aligned_columns() {
        let mut table = Table::new(&[("NAME", Align::Left), ("ROWS", Align::Right)]);
        table.row(["a".to_owned(), "1,000".to_owned()]);
        assert_eq!(table.render(false), "NAME   ROWS\na     1,000");
    }
}
