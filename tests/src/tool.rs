//! The admin tool as an operator runs it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::node::binary;

/// Runs `larder` in a folder against the nodes at `cluster`, with the cluster's token in its
/// environment if there is one.
///
/// # Panics
/// When it does not start.
#[must_use]
pub fn larder(cluster: &str, folder: &Path, token: Option<&str>, args: &[&str]) -> Output {
    let mut command = Command::new(binary("larder"));
    command.args(args).args(["--cluster", cluster]).current_dir(folder);
    command.env_remove("LARDER_TOKEN").env_remove("LARDER_TOKEN_FILE");
    command.envs(token.map(|token| ("LARDER_TOKEN", token)));
    command.output().expect("larder starts")
}

/// Its standard output.
#[must_use]
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Its standard error.
#[must_use]
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Its output with `-o json`. Commands that show nodes have code 5 if some do not answer.
///
/// # Panics
/// When it failed, or printed anything else.
#[must_use]
pub fn json(output: &Output) -> Value {
    let shown = matches!(output.status.code(), Some(0 | 5));
    assert!(shown, "{}: {}", output.status, said(output));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}
