//! Finds the root cause of an error, as text for users.

use std::error::Error;

/// Returns the text of an error's innermost cause: lower case, without a full stop or error
/// numbers. The layers above it mostly repeat it, in words for programmers.
#[must_use]
pub fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    let text = innermost.to_string().replace('\n', " ");
    let text = text.split(" (os error").next().unwrap_or_default().trim().trim_end_matches('.');
    lower_first(text)
}

/// Makes a sentence part of another one. A name in capitals stays.
fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(first), Some(second)) if first.is_uppercase() && !second.is_uppercase() => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("Generic X error")]
    struct Outer(#[source] io::Error);

    #[test]
    fn root_cause_is_the_text_of_the_innermost_error() {
        let refused = io::Error::from_raw_os_error(111);
        assert_eq!(root_cause(&Outer(refused)), "connection refused");
        let own = io::Error::other("TLS says no.");
        assert_eq!(root_cause(&Outer(own)), "TLS says no");
        assert_eq!(root_cause(&Outer(io::Error::other(""))), "");
    }
}
