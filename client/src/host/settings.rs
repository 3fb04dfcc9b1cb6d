//! The environment variables that two processes must have in common to share a node.
//!
//! The node reads an origin with the environment of the process that started it. Another endpoint
//! means another bucket under the same address, and another key or profile means another account.
//! So the node must not serve a process with other values. Secrets are left out, because they
//! change together with the name of their account.

use std::{env, fmt::Write as _};

use xxhash_rust::xxh3::xxh3_64;

const FAMILIES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// Whether a variable selects an endpoint or an account.
fn counts(name: &str) -> bool {
    let ours = FAMILIES.iter().any(|family| name.starts_with(family));
    let names_something = ["_ID", "_FILE", "_PATH", "_URI", "_URL"].iter();
    let secret = ["SECRET", "TOKEN", "PASSWORD", "SAS", "_KEY"].iter();
    ours && (names_something.clone().any(|end| name.ends_with(end))
        || !secret.clone().any(|part| name.contains(part)))
}

/// Eight hex digits. Processes with equal digits may share a node.
pub(super) fn fingerprint() -> String {
    of(env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        counts(&name).then(|| (name, value.to_string_lossy().into_owned()))
    }))
}

fn of(variables: impl Iterator<Item = (String, String)>) -> String {
    let mut variables: Vec<_> = variables.collect();
    variables.sort();
    let mut text = String::new();
    for (name, value) in variables {
        let _ = write!(text, "{name}={value}\0");
    }
    format!("{:08x}", xxh3_64(text.as_bytes()) >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_covers_endpoints_and_identities_but_no_secrets() {
        for name in ["AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ROLE_ARN"] {
            assert!(counts(name), "{name}");
        }
        assert!(counts("AWS_WEB_IDENTITY_TOKEN_FILE") && counts("GOOGLE_APPLICATION_CREDENTIALS"));
        for name in ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_ACCOUNT_KEY"] {
            assert!(!counts(name), "{name}");
        }
        assert!(!counts("PATH") && !counts("RANK"));
    }

    #[test]
    fn digest_depends_on_all_values_but_not_on_their_order() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let (a, b) = (pair("AWS_PROFILE", "x"), pair("AWS_REGION", "y"));
        let both = of([a.clone(), b.clone()].into_iter());
        assert_eq!(both, of([b, a.clone()].into_iter()));
        assert_ne!(both, of([a, pair("AWS_REGION", "z")].into_iter()));
        assert_eq!(both.len(), 8);
    }
}
