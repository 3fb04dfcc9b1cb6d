//! The failure of a command: the failed action, its reason, its remedy and the exit code.
//!
//! This module maps errors of the libraries to the few cases on which a script can act.

mod from;

use std::{fmt, io, process::ExitCode};

/// Why a command ended without its result.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) what: String,
    pub(crate) why: Option<String>,
    pub(crate) hint: Option<String>,
}

/// The exit codes. Scripts rely on the numbers; [`EXIT_CODES`] gives the meanings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Failed for a reason without its own code.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// There is no such dataset, tag, tensor, sample or node.
    NotFound = 3,
    /// Credentials are missing, or the origin or a node refuses.
    Denied = 4,
    /// A node or the origin does not answer now; the same command may work later.
    Unavailable = 5,
    /// Data has changed since it was indexed, or bytes failed their check.
    Data = 6,
    /// Stopped by the user.
    Interrupted = 130,
}

/// Every exit code and its meaning: the table of `larder exit-codes` and of `docs/operating.md`.
pub(crate) const EXIT_CODES: [(u8, &str); 8] = [
    (0, "done"),
    (
        Exit::Failed as u8,
        "failed, for a reason that has no code of its own; also: the state of the cluster does not allow the command, \
         or a check of 'larder doctor' failed",
    ),
    (Exit::Usage as u8, "wrong usage: what was typed can't be meant"),
    (Exit::NotFound as u8, "not found: no such bucket, dataset, tag, tensor, sample, node or file"),
    (Exit::Denied as u8, "not allowed: credentials are missing, or the origin or a node refuses"),
    (
        Exit::Unavailable as u8,
        "not reachable now: a node, the cluster or the origin does not answer; the same command may work later",
    ),
    (Exit::Data as u8, "data changed since it was indexed, or is corrupt"),
    (Exit::Interrupted as u8, "interrupted"),
];

impl Failure {
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self { exit, what: what.into(), why: None, hint: None }
    }

    pub(crate) fn why(mut self, why: impl fmt::Display) -> Self {
        self.why = Some(why.to_string());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Whether to print nothing. A closed pipe (`larder ... | head`) is no failure to report.
    pub(crate) fn is_silent(&self) -> bool {
        self.what.is_empty()
    }

    /// Standard output could not be written.
    pub(crate) fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Exit::Failed, "");
        }
        Self::new(Exit::Failed, "the result could not be printed").why(error)
    }

    /// A file of the user could not be read or written.
    pub(crate) fn file(doing: &str, path: &std::path::Path, error: &io::Error) -> Self {
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::NotFound,
            io::ErrorKind::PermissionDenied => Exit::Denied,
            _ => Exit::Failed,
        };
        Self::new(exit, format!("cannot {doing} {}", path.display())).why(error)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        (exit as u8).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operating_guide_has_the_table_of_exit_codes() {
        let guide = include_str!("../../../docs/operating.md");
        let rows = EXIT_CODES.iter().map(|(code, meaning)| format!("| {code} | {meaning} |"));
        let missing: Vec<String> = rows.filter(|row| !guide.contains(row)).collect();
        assert!(missing.is_empty(), "docs/operating.md lacks:\n{}", missing.join("\n"));
    }
}
