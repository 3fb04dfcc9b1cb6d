//! Parses sizes as users type them: one grammar for the daemon and the tool.

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
    fn refuses_a_malformed_size_and_names_valid_ones() {
        let wrong =
            ["", "GiB", ".5GiB", "8gib", "8G", "-1", "99999999999TiB", "1.2.3GiB", "8 apples"];
        for text in wrong {
            let error = parse_size(text).expect_err(text).to_string();
            assert!(error.contains(text) && error.contains("64MiB"), "{error}");
        }
    }
}
