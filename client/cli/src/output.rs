//! Prints results, notes and errors.
//!
//! A result is a [`Report`]: a value that serde writes as JSON and that shows itself on a [`Page`].
//! On a terminal tables have rules and words have colour. In a pipe they are plain aligned columns.

mod page;
pub(crate) mod units;

use std::io::{self, IsTerminal, Write};

use console::Term;
use serde::Serialize;

use crate::{
    error::Failure,
    global::{Colour, Format, Global},
};

pub(crate) use page::{Ink, Page, TextTable};

/// A result that can be printed.
pub(crate) trait Report: Serialize {
    /// Writes the result for people.
    fn show(&self, page: &mut Page);
}

/// The outputs of the program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    format: Format,
    quiet: bool,
    /// Whether standard output is a terminal.
    terminal: bool,
    colour_out: bool,
    colour_err: bool,
}

impl Output {
    pub(crate) fn new(global: &Global) -> Self {
        let (out, err) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let wanted = |terminal: bool| match global.color {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => {
                terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
        };
        Self {
            format: global.output,
            quiet: global.quiet,
            terminal: out,
            colour_out: wanted(out),
            colour_err: wanted(err),
        }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Whether only results and errors are wanted.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether progress is drawn: for people only, on their terminal.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// A page for standard output.
    pub(crate) fn page(&self) -> Page {
        Page::new(self.terminal, self.colour_out).within(columns(&Term::stdout()))
    }

    /// Prints a result.
    pub(crate) fn print(&self, report: &impl Report) -> Result<(), Failure> {
        if self.is_json() {
            return self.print_json(report);
        }
        let mut page = self.page();
        report.show(&mut page);
        self.write(page.text())
    }

    /// Prints a value as JSON: indented on a terminal, on one line when piped.
    pub(crate) fn print_json(&self, value: &impl Serialize) -> Result<(), Failure> {
        let text = if self.terminal {
            serde_json::to_string_pretty(value)
        } else {
            serde_json::to_string(value)
        };
        let text = text.map_err(|error| Failure::output(&error.into()))?;
        self.write(&(text + "\n"))
    }

    /// Writes to standard output at once.
    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.map_err(|error| Failure::output(&error))
    }

    /// Shows on standard error the change that the user must agree to. Writes nothing if results
    /// are JSON.
    pub(crate) fn show_first(&self, show: impl FnOnce(&mut Page)) {
        if !self.quiet && !self.is_json() {
            let mut page = self.page_of_errors(io::stderr().is_terminal());
            show(&mut page);
            page.line("");
            self.tell(&page);
        }
    }

    /// Writes a note on standard error.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            let mut page = self.page_of_errors(false);
            page.marked(Ink::Cyan, "note", text);
            self.tell(&page);
        }
    }

    /// Writes a warning on standard error, even with `--quiet`.
    pub(crate) fn warn(&self, text: &str) {
        let mut page = self.page_of_errors(false);
        page.marked(Ink::Yellow, "warning", text);
        self.tell(&page);
    }

    /// Writes the failure of the command on standard error.
    pub(crate) fn fail(&self, failure: &Failure) {
        if failure.is_silent() {
            return;
        }
        let mut page = self.page_of_errors(false);
        page.marked(Ink::Red, "error", &failure.what);
        if let Some(why) = &failure.why {
            page.marked(Ink::Dim, "  why", why);
        }
        if let Some(hint) = &failure.hint {
            page.marked(Ink::Cyan, " hint", hint);
        }
        self.tell(&page);
    }

    fn page_of_errors(&self, ruled: bool) -> Page {
        Page::new(ruled, self.colour_err).within(columns(&Term::stderr()))
    }

    /// Writes a page on standard error. If standard error is closed, the page is lost.
    fn tell(&self, page: &Page) {
        let _ = io::stderr().lock().write_all(page.text().as_bytes());
    }
}

/// The width of a terminal, if it is one.
fn columns(of: &Term) -> Option<usize> {
    of.size_checked().map(|(_, columns)| columns.into())
}
