//! Sizes as users type and read them: one grammar and one format for all programs.

use std::fmt;

/// A text that is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a size such as 4096, 64MiB, 1.5GiB or 10GB")]
pub struct SizeError(String);

/// Parses `8GiB`, `512 MiB`, `1.5TiB`, `64Mi`, `10GB`, `4096` into bytes. Knows binary and decimal
/// units, and never guesses: it refuses a lone `G`, because tools differ on its meaning.
///
/// # Errors
/// If the text is not a size, or exceeds 64 bits; the error names the accepted forms.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    parse(text.trim()).ok_or_else(|| SizeError(text.to_owned()))
}

fn parse(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale: u64 = match unit.trim() {
        "" | "B" => 1,
        "KiB" | "Ki" => 1 << 10,
        "MiB" | "Mi" => 1 << 20,
        "GiB" | "Gi" => 1 << 30,
        "TiB" | "Ti" => 1 << 40,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    if fraction.is_empty() {
        return Some(whole);
    }
    let parts: u64 = fraction.parse().ok()?;
    let one = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let rest = u128::from(parts) * u128::from(scale) / u128::from(one);
    whole.checked_add(u64::try_from(rest).ok()?)
}

const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// Shows a number of bytes with two or three digits: `1.4 GiB`, `64 MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        match unit {
            0 => write!(f, "{} B", self.0),
            _ if value < 9.95 => write!(f, "{value:.1} {}", UNITS[unit]),
            _ => write!(f, "{value:.0} {}", UNITS[unit]),
        }
    }
}

/// Shows a number with its noun: `1 shard`, `2 shards`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted(pub u64, pub &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, noun) = self;
        write!(f, "{number} {noun}{}", if *number == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_units_are_parsed() {
        let cases = [
            ("8GiB", 8 << 30),
            ("512 MiB", 512 << 20),
            (" 64Mi ", 64 << 20),
            ("1.5GiB", 3 << 29),
            ("10GB", 10_000_000_000),
            ("4096", 4096),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn bytes_are_shown_with_two_or_three_digits() {
        let sizes = [0, 999, 1024, 9 << 10, 64 << 20, (3 << 30) / 2];
        let shown = sizes.map(|bytes| Bytes(bytes).to_string());
        assert_eq!(shown, ["0 B", "999 B", "1.0 KiB", "9.0 KiB", "64 MiB", "1.5 GiB"]);
    }

    #[test]
    fn one_thing_has_no_plural() {
        let shown = [0, 1, 2].map(|number| Counted(number, "shard").to_string());
        assert_eq!(shown, ["0 shards", "1 shard", "2 shards"]);
    }

    #[test]
    fn refuses_a_malformed_size_and_names_valid_ones() {
        let wrong =
            ["", "GiB", ".5GiB", "8gib", "8G", "-1", "99999999999TiB", "1.2.3GiB", "8 apples"];
        for text in wrong {
            let error = parse_size(text).expect_err(text).to_string();
            assert!(error.contains(text) && error.contains("64MiB"), "{error}");
        }
    }
}
