//! Keys with their time.
//!
//! Thread rule: plain values.

use std::time::SystemTime;

use object_store::aws::AwsCredential;

/// Keys, and when they expire.
pub(super) struct Fetched {
    pub(super) keys: AwsCredential,
    pub(super) until: Option<SystemTime>,
}

#[expect(clippy::disallowed_methods, reason = "keys expire by the wall clock")]
pub(super) fn now() -> SystemTime {
    SystemTime::now()
}

/// Reads a time as services and tools write it.
pub(super) fn time(text: &str) -> Option<SystemTime> {
    // Old tools write the zone by its name.
    let text = text.strip_suffix("UTC").map_or_else(|| text.to_owned(), |time| format!("{time}Z"));
    chrono::DateTime::parse_from_rfc3339(&text).ok().map(SystemTime::from)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_read_as_services_and_tools_write_them() {
        let expected = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(1_000_000_000));
        for text in [
            "2001-09-09T01:46:40Z",
            "2001-09-09T01:46:40UTC",
            "2001-09-09T01:46:40.000000+00:00",
            "2001-09-09T03:46:40+02:00",
        ] {
            assert_eq!(time(text), expected, "{text}");
        }
        assert_eq!(time("soon"), None);
    }
}
