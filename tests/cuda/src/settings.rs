//! The settings of the stand-in, from the environment.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `STANDIN_DEVICES` | number of devices; with 0, `cuInit` returns 100 | 1 |
//! | `STANDIN_MEMORY` | bytes of memory of each device | 1 GiB |
//! | `STANDIN_VERSION` | version of the driver, as in 12080 | 12080 |
//! | `STANDIN_READ_ONLY` | 1: the devices register read-only memory | 1 |
//! | `STANDIN_DELAY_US` | microseconds before each copy runs; a batch waits once | 0 |
//! | `STANDIN_FAIL` | list of `name:code@nth`: the nth call of `name` returns `code` | none |
//! | `STANDIN_STUB` | 1: plays the toolkit's link-time stub | 0 |
//! | `STANDIN_REPORT` | file of the report; `%p` stands for the process id | none |
//!
//! `STANDIN_FAIL` without `@nth` fails every call. The name may lack its `_v2`.
//!
//! The first call of a process reads them once. A value that is no number ends the process.
//! Thread rule: immutable after it is read. Non-goals: settings that change while a program runs.

use std::time::Duration;

/// An error that a call returns instead of doing its work.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    name: String,
    code: i32,
    nth: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) devices: usize,
    pub(crate) memory_bytes: usize,
    pub(crate) version: i32,
    pub(crate) read_only: bool,
    pub(crate) delay: Duration,
    pub(crate) stub: bool,
    pub(crate) report: Option<String>,
    failures: Vec<Failure>,
}

impl Settings {
    /// Reads the settings; `read` answers with the value of a variable.
    pub(crate) fn read(read: impl Fn(&str) -> Option<String>) -> Self {
        let number =
            |name: &str, default: u64| read(name).map_or(default, |text| parsed(name, text.trim()));
        let failures = read("STANDIN_FAIL").unwrap_or_default();
        Self {
            devices: usize::try_from(number("STANDIN_DEVICES", 1)).expect("STANDIN_DEVICES"),
            memory_bytes: usize::try_from(number("STANDIN_MEMORY", 1 << 30))
                .expect("STANDIN_MEMORY"),
            version: i32::try_from(number("STANDIN_VERSION", 12080)).expect("STANDIN_VERSION"),
            read_only: number("STANDIN_READ_ONLY", 1) == 1,
            delay: Duration::from_micros(number("STANDIN_DELAY_US", 0)),
            stub: number("STANDIN_STUB", 0) == 1,
            report: read("STANDIN_REPORT").filter(|path| !path.is_empty()),
            failures: failures
                .split(',')
                .filter(|one| !one.trim().is_empty())
                .map(failure)
                .collect(),
        }
    }

    /// The code that the `nth` call of `name` must return, if it must fail.
    pub(crate) fn failure(&self, name: &str, nth: u64) -> Option<i32> {
        let named = |failure: &Failure| {
            name.strip_prefix(failure.name.as_str()).is_some_and(|rest| matches!(rest, "" | "_v2"))
        };
        let due = |failure: &Failure| failure.nth.is_none_or(|due| due == nth);
        self.failures.iter().find(|failure| named(failure) && due(failure)).map(|f| f.code)
    }
}

fn failure(text: &str) -> Failure {
    let (name, rest) = text
        .trim()
        .split_once(':')
        .unwrap_or_else(|| panic!("STANDIN_FAIL is not a list of name:code@nth: {text}"));
    let (code, nth) = match rest.split_once('@') {
        Some((code, nth)) => (code, Some(parsed("STANDIN_FAIL", nth))),
        None => (rest, None),
    };
    Failure { name: name.to_owned(), code: parsed("STANDIN_FAIL", code), nth }
}

fn parsed<N: std::str::FromStr>(name: &str, text: &str) -> N {
    text.parse().unwrap_or_else(|_| panic!("{name} holds no number: {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::Settings;

    #[test]
    fn fails_the_named_calls_only() {
        let list = "cuMemAlloc:2@3, cuEventQuery:700";
        let settings = Settings::read(|name| (name == "STANDIN_FAIL").then(|| list.to_owned()));
        assert_eq!(settings.failure("cuMemAlloc_v2", 3), Some(2));
        assert_eq!(settings.failure("cuMemAlloc_v2", 2), None);
        assert_eq!(settings.failure("cuEventQuery", 9), Some(700));
        assert_eq!(settings.failure("cuEventRecord", 9), None);
    }
}
