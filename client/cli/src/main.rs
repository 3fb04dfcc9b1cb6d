//! `larder`: the admin tool. It indexes and checks datasets, shows and changes nodes and the ring,
//! checks a host, runs a demo, and measures the user's own data.
//!
//! Results go to standard output, as a table or as JSON. Progress, notes and errors go to standard
//! error, so that `larder ... -o json | jq` always works. One process runs one command and keeps no
//! state.

mod error;
mod global;
mod output;
mod progress;

mod context;

mod commands;

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, parser::ValueSource};

use commands::Command;
use context::Context;
use global::Global;

fn main() -> ExitCode {
    let (cli, cluster_was_typed) = Cli::read();
    let context = Context::new(&cli.global, cluster_was_typed);
    let output = context.output;
    larder_client::take_warnings(move |_, text| progress::above(|| output.warn(&text)));
    match commands::run(&context, cli.command, Cli::command()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            context.output.fail(&failure);
            failure.exit.into()
        }
    }
}

/// Admin tool of Larder, the warm tensor cache between object storage and GPUs.
#[derive(Debug, Parser)]
#[command(name = "larder", version, after_help = SEE_ALSO, after_long_help = MORE)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

impl Cli {
    /// The parsed command line, and whether it has `--cluster`. A value from the environment does
    /// not count.
    fn read() -> (Self, bool) {
        Self::from_words(std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    fn from_words<T: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = T>,
    ) -> Result<(Self, bool), clap::Error> {
        let matches = Self::command().try_get_matches_from(words)?;
        let typed = matches.value_source("cluster") == Some(ValueSource::CommandLine);
        Ok((Self::from_arg_matches(&matches)?, typed))
    }
}

const SEE_ALSO: &str = "Try it without anything configured: larder demo";

const MORE: &str = "\
Origins are s3://bucket/prefix (also S3-compatible stores), gs://, az:// and file:///folder. S3 is set
up by the usual AWS_* variables; AWS_ENDPOINT_URL names another endpoint. A dataset is named by its
prefix and, if wanted, a tag or snapshot: s3://bucket/prefix@v3.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 not allowed, 5 not reachable now,
6 data changed or corrupt, 130 interrupted (larder help exit-codes).

Try it without anything configured: larder demo";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::global::Format;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    fn global(typed: &str) -> Global {
        Cli::try_parse_from(typed.split(' ')).expect("this is how people write it").global
    }

    #[test]
    fn global_options_are_accepted_before_and_after_the_command() {
        let at = Some("http://h:1".to_owned());
        assert_eq!(global("larder --cluster http://h:1 node ls").cluster, at);
        let after = global("larder node ls -o json --cluster http://h:1");
        assert_eq!((after.output, after.cluster), (Format::Json, at));
    }

    #[test]
    fn typed_cluster_option_is_detected_at_any_position() {
        let typed = |words: &str| Cli::from_words(words.split(' ')).unwrap().1;
        assert!(typed("larder --cluster http://h:1 demo"));
        assert!(typed("larder dataset --cluster http://h:1 ls"));
        assert!(typed("larder dataset ls --cluster http://h:1"));
        assert!(!typed("larder dataset ls"));
    }

    #[test]
    fn cluster_option_requires_an_address_that_may_be_empty() {
        assert!(Cli::try_parse_from(["larder", "node", "ls", "--cluster"]).is_err());
        assert_eq!(global("larder node ls --cluster=").cluster, Some(String::new()));
    }
}
