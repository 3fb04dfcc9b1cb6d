//! The options that every command has.

use std::ffi::OsString;

use clap::{
    Args, ValueEnum,
    builder::{OsStringValueParser, TypedValueParser as _},
};

/// Options of every command; shown after its own.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// Format of results: a table for people or JSON for programs
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,

    /// Nodes to ask, any of the cluster: http://host:port[,http://host:port]; by default the node
    /// of this host, if one runs: that of its training processes, or a larder-node on its default
    /// socket; 'none' asks no node
    #[arg(
        long,
        global = true,
        env = "LARDER_CLUSTER",
        value_name = "ADDRESS",
        hide_env_values = true,
        value_parser = OsStringValueParser::new().try_map(text)
    )]
    pub(crate) cluster: Option<String>,

    /// When to colour the output
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Colour,

    /// Print results and errors only: no progress, no notes
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

/// Returns text, or why it is none: clap's own error names no option.
fn text(typed: OsString) -> Result<String, &'static str> {
    typed.into_string().map_err(|_| "it is not UTF-8")
}

/// The format of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables, with rules on a terminal and plain when piped.
    Table,
    /// One JSON object.
    Json,
}

/// When output is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Also when piped.
    Always,
    /// Not at all.
    Never,
}
