//! Formats numbers for people. JSON does not use this: it has plain bytes and seconds.

use std::time::Duration;

use larder_client::admin::Bytes;

/// `1.4 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// `1,234,567`.
pub(crate) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 shard`, `2 shards`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

/// `1.2 ms`, `3.4 s`, `2 min 5 s`, `3 h 10 min`, `2 d 4 h`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if duration.as_millis() < 1 => format!("{} µs", duration.as_micros()),
        0 => format!("{:.1} ms", duration.as_secs_f64() * 1e3),
        1..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}

/// The same of a number of seconds.
pub(crate) fn seconds(seconds: f64) -> String {
    duration(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// The remaining time in words: at least a second.
pub(crate) fn time_left(seconds: f64) -> String {
    match Duration::try_from_secs_f64(seconds.ceil().max(1.0)) {
        Ok(left) if left.as_secs() < 60 => format!("{} s", left.as_secs()),
        Ok(left) => duration(left),
        Err(_) => "no end to be seen".to_owned(),
    }
}

/// Units a second, 0 where no time passed.
pub(crate) fn per_second(amount: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { amount as f64 / seconds } else { 0.0 }
}

/// Bytes a second as GiB/s.
pub(crate) fn gib_per_second(bytes: u64, time: Duration) -> f64 {
    per_second(bytes, time) / f64::from(1 << 30)
}

/// `12,345` a second.
pub(crate) fn rate(amount: u64, time: Duration) -> String {
    let rate = per_second(amount, time).round();
    #[expect(clippy::cast_possible_truncation, reason = "a rate to be read, saturating")]
    let whole = rate as u64;
    count(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!((counted(1, "row"), counted(0, "row")), ("1 row".into(), "0 rows".into()));
    }
    #[test]
    fn remaining_time_is_shown_in_whole_seconds() {
        let told = [0.0, 0.78, 8.01, 90.0, f64::INFINITY].map(time_left);
        assert_eq!(told, ["1 s", "1 s", "9 s", "1 min 30 s", "no end to be seen"]);
    }
}
