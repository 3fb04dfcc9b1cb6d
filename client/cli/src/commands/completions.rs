//! `larder completions SHELL`.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::{context::Context, error::Failure};

/// Prints a completion script.
///
/// bash: larder completions bash > ~/.local/share/bash-completion/completions/larder
/// zsh: larder completions zsh > ~/.zfunc/_larder
/// fish: larder completions fish > ~/.config/fish/completions/larder.fish
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(
    context: &Context,
    arguments: &Arguments,
    mut program: Command,
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
