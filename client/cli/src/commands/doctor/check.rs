//! One check: what was found, why it matters, what to do.

use serde::Serialize;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// As it should be.
    Ok,
    /// It works, but slower or with less than it could.
    Warn,
    /// Something does not work.
    Fail,
}

/// The outcome of one check.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) state: State,
    pub(super) found: String,
    /// Why anybody should care.
    pub(super) why: &'static str,
    /// What to do, where something is to be done.
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
