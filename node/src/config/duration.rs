//! Durations as people type them.

use std::time::Duration;

use super::ConfigError;

/// Parses `60s`, `500ms`, `10m` or `2h`: whole numbers with a required unit.
pub(super) fn parse_duration(setting: &'static str, text: &str) -> Result<Duration, ConfigError> {
    let text = text.trim();
    let wrong = || {
        ConfigError::new(setting, format!("{text:?} is not a time such as 500ms, 60s, 10m or 2h"))
    };
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(milliseconds).map(Duration::from_millis).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        let cases = [("60s", 60_000), ("500ms", 500), (" 10m ", 600_000), ("2h", 7_200_000)];
        for (text, milliseconds) in cases {
            let parsed = parse_duration("--exit-when-unused", text).expect(text);
            assert_eq!(parsed, Duration::from_millis(milliseconds), "{text}");
        }
        for text in ["", "60", "s", "-1s", "1.5s", "1d", "99999999999999999999h"] {
            let error = parse_duration("--exit-when-unused", text).expect_err(text).to_string();
            assert!(error.starts_with("--exit-when-unused"), "{error}");
        }
    }
}
