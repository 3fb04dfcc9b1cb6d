//! The common part of all commands that change a cluster: the user's name, the token, and the
//! question before the change.

use std::{
    env::{self, VarError},
    io::{self, BufRead, IsTerminal, Read, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use larder_client::{
    ErrorKind,
    admin::{CoordinatorKind, Operator, check_secret_mode, parse_size},
};

use crate::{
    context::Context,
    error::{Exit, Failure},
    output::units,
};

/// The most bytes of a token file.
const TOKEN_FILE_BYTES_MAX: u64 = 1 << 10;

/// The right to change the cluster.
#[derive(Debug, Args)]
pub(crate) struct Entitlement {
    /// File with the token of the cluster, the same that its nodes got; or set LARDER_TOKEN
    #[arg(long, env = "LARDER_TOKEN_FILE", value_name = "FILE", hide_env_values = true)]
    token_file: Option<PathBuf>,
}

/// The same, and whether the user has agreed in advance.
#[derive(Debug, Args)]
pub(crate) struct Consent {
    /// Act without asking first
    #[arg(short, long)]
    yes: bool,

    #[command(flatten)]
    entitlement: Entitlement,
}

/// An operator without a token: it only reads.
pub(crate) fn onlooker(context: &Context) -> Result<Operator, Failure> {
    Ok(Operator::new(context.cluster_to_operate()?, None, who()))
}

impl Consent {
    /// An operator with the right to change the cluster.
    pub(crate) fn operator(&self, context: &Context) -> Result<Operator, Failure> {
        self.entitlement.operator(context)
    }

    /// Asks the user to agree to `what`, a question without its mark.
    pub(crate) fn ask(&self, what: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            let failure = Failure::new(Exit::Usage, "nothing was done, as nobody can be asked");
            return Err(failure
                .why(format!("'{what}?' is asked on a terminal, and this is none"))
                .hint("add --yes to act without being asked"));
        }
        let mut err = io::stderr().lock();
        let _ = write!(err, "{what}? [y/N] ").and_then(|()| err.flush());
        let mut answer = String::new();
        let read = io::stdin().lock().take(64).read_line(&mut answer);
        match (read, answer.trim().to_lowercase().as_str()) {
            (Ok(_), "y" | "yes") => Ok(()),
            _ => Err(Failure::new(Exit::Interrupted, "nothing was done, as you did not say yes")),
        }
    }
}

impl Entitlement {
    /// An operator with the token of this entitlement, if there is one.
    pub(crate) fn operator(&self, context: &Context) -> Result<Operator, Failure> {
        let token = self.token()?;
        Ok(Operator::new(context.cluster_to_operate()?, token.as_deref(), who()))
    }

    fn token(&self) -> Result<Option<String>, Failure> {
        match &self.token_file {
            Some(path) => read_token(path).map(Some),
            None => match env::var("LARDER_TOKEN") {
                Err(VarError::NotUnicode(_)) => {
                    Err(Failure::new(Exit::Usage, "LARDER_TOKEN is not UTF-8"))
                }
                token => Ok(token.ok().filter(|token| !token.is_empty())),
            },
        }
    }
}

fn read_token(path: &Path) -> Result<String, Failure> {
    let read = |error: &io::Error| {
        Failure::file("read the token in", path, error)
            .hint("name its file by --token-file or LARDER_TOKEN_FILE")
    };
    let file = std::fs::File::open(path).map_err(|error| read(&error))?;
    let mode = file.metadata().map_err(|error| read(&error))?.permissions().mode();
    check_secret_mode(path, mode)
        .map_err(|why| Failure::new(Exit::Usage, "the token is not used").why(why))?;
    let mut token = String::new();
    file.take(TOKEN_FILE_BYTES_MAX).read_to_string(&mut token).map_err(|error| read(&error))?;
    Ok(token)
}

/// `user@host`, for the audit log.
fn who() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
    let user = user.map_or_else(|| nix::unistd::geteuid().to_string(), |user| user.name);
    let host = nix::unistd::gethostname().ok().and_then(|host| host.into_string().ok());
    let mut who = format!("{user}@{}", host.unwrap_or_else(|| "?".to_owned()));
    who.retain(|character| !character.is_control());
    who.truncate(who.floor_char_boundary(128));
    who
}

/// The failure of an action on the cluster.
pub(crate) fn failed(what: impl Into<String>, error: larder_client::Error) -> Failure {
    let kind = error.kind();
    let failure = Failure::from(error.context(what));
    match kind {
        // The state of the cluster does not allow it. No data has changed.
        ErrorKind::DataChanged => Failure { exit: Exit::Failed, hint: None, ..failure },
        ErrorKind::Unauthenticated => failure
            .hint("give --token-file FILE, or set LARDER_TOKEN, as the nodes were started with"),
        _ => failure,
    }
}

/// Some of the nodes that were shown do not answer.
pub(crate) fn nodes_away(away: usize, of: usize) -> Failure {
    let of = units::counted(of as u64, "node");
    Failure::new(Exit::Unavailable, format!("{away} of {of} do not answer"))
        .hint("their shards are read from the next nodes on the ring, at last from the origin")
}

/// Reads `500MiB/s`.
pub(crate) fn parse_rate(text: &str) -> Result<u64, String> {
    let size = text.strip_suffix("/s").unwrap_or(text);
    match parse_size(size) {
        Ok(0) => Err("a rate of 0 never ends; use larder ring pause".to_owned()),
        Ok(rate) => Ok(rate),
        Err(why) => Err(format!("{why}; write it like 500MiB/s")),
    }
}

/// Reads `90s`, `5m`, `2h`, `500ms`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => 0,
    };
    let number: Option<u64> = number.parse().ok().filter(|_| scale_ms > 0);
    let ms = number.and_then(|number| number.checked_mul(scale_ms)).filter(|ms| *ms > 0);
    ms.map(Duration::from_millis)
        .ok_or_else(|| format!("{text:?} is no time; write it like 90s, 5m or 2h"))
}

/// Whether this node is the coordinator.
pub(super) fn keeps_record(operator: &Operator, node: &str) -> bool {
    let Ok(status) = operator.status() else {
        return false;
    };
    let mut members = status.nodes.iter().filter_map(|node| node.member.as_ref());
    status.coordinator() == CoordinatorKind::Node
        && members.any(|member| member.id == node && member.control == status.coordinator_address)
}

/// The advice for stopping a node that keeps the record for good.
pub(super) fn of_the_record(node: &str) -> String {
    format!(
        "{node} goes on keeping the record of the cluster: members can't change while it is stopped. To stop it for good, do so and then: \
         larder ring takeover --lost {node}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_durations_with_units_are_parsed() {
        assert_eq!(parse_rate("500MiB/s"), Ok(500 << 20));
        assert_eq!(parse_rate("1GiB"), Ok(1 << 30));
        assert!(parse_rate("0").unwrap_err().contains("pause"));
        assert!(parse_rate("fast").unwrap_err().contains("500MiB/s"));
        let read =
            ["90s", "5m", "2h", "500ms"].map(|text| parse_duration(text).unwrap().as_millis());
        assert_eq!(read, [90_000, 300_000, 7_200_000, 500]);
        for odd in ["", "s", "90", "0s", "-1s", "1.5h", "99999999999999999999h"] {
            assert!(parse_duration(odd).unwrap_err().contains("90s"), "{odd}");
        }
    }

    #[test]
    fn refusal_of_an_operator_has_no_hint_about_data() {
        let refused = larder_client::Error::new(ErrorKind::DataChanged, "the call failed")
            .because("no change is in flight");
        let failure = failed("the change was not paused", refused);
        assert_eq!((failure.exit, failure.hint), (Exit::Failed, None));
        assert_eq!(failure.why.as_deref(), Some("the call failed: no change is in flight"));
        let denied = larder_client::Error::new(ErrorKind::Unauthenticated, "the call failed");
        assert!(failed("no", denied).hint.unwrap().contains("--token-file"));
    }

    #[test]
    fn operator_name_has_user_and_host() {
        assert!(who().contains('@'));
    }
}
