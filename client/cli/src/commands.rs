//! The commands. Each has one file, with its arguments, its code and its result. `completions` and
//! `exit-codes` are here.

mod bench;
mod dataset;
mod demo;
mod doctor;
mod explain;
mod jobs;
mod node;
mod operator;
mod ring;

use clap::{Args, Subcommand};
use clap_complete::Shell;
use serde::Serialize;

use crate::{
    context::Context,
    error::{EXIT_CODES, Failure},
    output::{Page, Report, TextTable},
};

/// The commands of the tool.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Index, list, show, verify and sample datasets
    #[command(subcommand)]
    Dataset(dataset::DatasetCommand),
    /// List nodes, show one, or let one leave
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Show the members of the cluster; plan, begin and steer changes of them
    #[command(subcommand)]
    Ring(ring::RingCommand),
    /// Show which nodes own a shard or sample, which have it, and why the others do not
    Explain(explain::Arguments),
    /// Check this host, the origin and the nodes, and name the remedy for each problem
    Doctor(doctor::Arguments),
    /// Run a demo: two nodes, three shuffled epochs, every byte checked
    Demo(demo::Arguments),
    /// Measure your dataset: from the origin, over the network, from memory on this host
    Bench(bench::Arguments),
    /// Print a completion script for a shell
    Completions(CompletionsArguments),
    /// List the exit codes and their meanings
    #[command(long_about = exit_codes_text())]
    ExitCodes,
}

/// Runs one command of `program` to its end.
pub(crate) fn run(
    context: &Context,
    command: Command,
    program: clap::Command,
) -> Result<(), Failure> {
    match command {
        Command::Dataset(command) => dataset::run(context, command),
        Command::Node(command) => node::run(context, command),
        Command::Ring(command) => ring::run(context, command),
        Command::Explain(arguments) => explain::run(context, &arguments),
        Command::Doctor(arguments) => doctor::run(context, &arguments),
        Command::Demo(arguments) => demo::run(context, &arguments),
        Command::Bench(arguments) => bench::run(context, &arguments),
        Command::Completions(arguments) => completions(context, &arguments, program),
        Command::ExitCodes => exit_codes(context),
    }
}

/// Prints a completion script.
///
/// bash: larder completions bash > ~/.local/share/bash-completion/completions/larder
/// zsh: larder completions zsh > ~/.zfunc/_larder
/// fish: larder completions fish > ~/.config/fish/completions/larder.fish
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

fn completions(
    context: &Context,
    arguments: &CompletionsArguments,
    mut program: clap::Command,
) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut program, "larder", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    if context.output.is_json() {
        let shell = arguments.shell.to_string();
        return context.output.print_json(&serde_json::json!({ "shell": shell, "script": script }));
    }
    context.output.write(&script)
}

/// The text of [`EXIT_CODES`] for the help of the command.
fn exit_codes_text() -> String {
    let lines = EXIT_CODES.iter().map(|(code, meaning)| format!("\n  {code:<3}  {meaning}"));
    format!("Exit codes of every command:\n{}", lines.collect::<String>())
}

#[derive(Debug, Serialize)]
struct ExitCodes {
    exit_codes: Vec<Code>,
}

#[derive(Debug, Serialize)]
struct Code {
    code: u8,
    meaning: &'static str,
}

fn exit_codes(context: &Context) -> Result<(), Failure> {
    let exit_codes = EXIT_CODES.iter().map(|&(code, meaning)| Code { code, meaning }).collect();
    context.output.print(&ExitCodes { exit_codes })
}

impl Report for ExitCodes {
    fn show(&self, page: &mut Page) {
        let mut table = TextTable::new(">CODE | MEANING");
        for code in &self.exit_codes {
            table.row([code.code.to_string(), code.meaning.to_owned()]);
        }
        page.table(&table);
    }
}
