//! Sizes as people type them.

use super::ConfigError;

/// Parses `8GiB`, `512MiB`, `1.5TiB`, `10GB`, `4096`: binary and decimal units, never a guess.
///
/// # Errors
/// Names the setting, the text and the forms that are understood.
pub fn parse_size(setting: &'static str, text: &str) -> Result<u64, ConfigError> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let wrong = || {
        ConfigError::new(setting, format!("{text:?} is not a size such as 512MiB, 8GiB or 10GB"))
    };
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
        _ => return Err(wrong()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let mut bytes = whole.checked_mul(scale).ok_or_else(wrong)?;
    if !fraction.is_empty() {
        let digits = u32::try_from(fraction.len()).map_err(|_| wrong())?;
        let parts: u64 = fraction.parse().map_err(|_| wrong())?;
        let whole = 10_u64.checked_pow(digits).ok_or_else(wrong)?;
        bytes += u64::try_from(u128::from(parts) * u128::from(scale) / u128::from(whole))
            .map_err(|_| wrong())?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes_are_read_as_people_type_them() {
        let cases = [
            ("8GiB", 8 << 30),
            ("512 MiB", 512 << 20),
            ("1.5GiB", 3 << 29),
            ("10GB", 10_000_000_000),
            ("4096", 4096),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size("--memory", text).expect(text), bytes, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_size_is_refused_with_its_setting() {
        for text in ["", "GiB", "8gib", "-1", "99999999999TiB", "1.2.3GiB", "8 apples"] {
            let error = parse_size("--memory", text).expect_err(text).to_string();
            assert!(error.starts_with("--memory"), "{error}");
        }
    }
}
