//! `larder exit-codes`, which `larder help exit-codes` explains at length.

use serde::Serialize;

use crate::{
    context::Context,
    error::Failure,
    output::{Align, Page, Report, Table},
};

/// The text of [`CODES`] for the help of the command.
pub(super) const TEXT: &str = "\
Exit codes of every command:

  0    done
  1    failed, for a reason that has no code of its own; also: a check of 'larder doctor' failed
  2    wrong usage: what was typed can't be meant
  3    not found: no such bucket, dataset, tag, tensor, sample, node or file
  4    not allowed: credentials are missing, or the origin or a node refuses
  5    not reachable now: a node or the origin does not answer; the same command may work later
  6    data changed since it was indexed, or is corrupt
  130  interrupted";

const CODES: [(u8, &str); 8] = [
    (0, "done"),
    (
        1,
        "failed, for a reason that has no code of its own; also: a check of 'larder doctor' failed",
    ),
    (2, "wrong usage: what was typed can't be meant"),
    (3, "not found: no such bucket, dataset, tag, tensor, sample, node or file"),
    (4, "not allowed: credentials are missing, or the origin or a node refuses"),
    (5, "not reachable now: a node or the origin does not answer; the same command may work later"),
    (6, "data changed since it was indexed, or is corrupt"),
    (130, "interrupted"),
];

#[derive(Debug, Serialize)]
struct ExitCodes {
    exit_codes: Vec<Code>,
}

#[derive(Debug, Serialize)]
struct Code {
    code: u8,
    meaning: &'static str,
}

pub(super) fn run(context: &Context) -> Result<(), Failure> {
    let exit_codes = CODES.iter().map(|&(code, meaning)| Code { code, meaning }).collect();
    context.output.print(&ExitCodes { exit_codes })
}

impl Report for ExitCodes {
    fn show(&self, page: &mut Page) {
        let mut table = Table::new(&[("CODE", Align::Right), ("MEANING", Align::Left)]);
        for code in &self.exit_codes {
            table.row([code.code.to_string(), code.meaning.to_owned()]);
        }
        page.table(table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_every_exit_code() {
        for (code, meaning) in CODES {
            assert!(TEXT.contains(&format!("  {code:<3}  {meaning}")), "{code}");
        }
    }
}
