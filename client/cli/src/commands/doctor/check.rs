//! One check: its finding, the reason why it matters, the remedy.

use serde::Serialize;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// As it should be.
    Ok,
    /// It works, but slower or with less memory than it could.
    Warn,
    /// It does not work.
    Fail,
}

/// The outcome of one check.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) state: State,
    pub(super) found: String,
    /// Why the finding matters.
    pub(super) why: &'static str,
    /// The remedy, if one is needed.
    pub(super) hint: Option<String>,
}

impl Check {
    pub(super) fn ok(name: &'static str, found: impl Into<String>, why: &'static str) -> Self {
        Self { name, state: State::Ok, found: found.into(), why, hint: None }
    }

    pub(super) fn warn(
        name: &'static str,
        found: impl Into<String>,
        why: &'static str,
        hint: impl Into<String>,
    ) -> Self {
        Self { state: State::Warn, hint: Some(hint.into()), ..Self::ok(name, found, why) }
    }

    pub(super) fn fail(
        name: &'static str,
        found: impl Into<String>,
        why: &'static str,
        hint: impl Into<String>,
    ) -> Self {
        Self { state: State::Fail, hint: Some(hint.into()), ..Self::ok(name, found, why) }
    }
}
