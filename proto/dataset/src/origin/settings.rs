//! The environment variables that set up a store, read once and checked before the library sees
//! them.
//!
//! Spaces and line breaks around a value are dropped, as files and secrets end in them. A value
//! that is set but empty counts as not set. The library would take both as they are, and panic at
//! a line break in a header or an endpoint without a scheme.
//!
//! Thread rule: plain values. Non-goals: files that variables name; the library reads them, and
//! `profiles` those of profiles.

use std::{fmt, fs, str::FromStr};

use object_store::{Certificate, ClientOptions};

use super::OriginError;
use crate::{OriginUri, Variables};

/// Words that mean yes, as the library has them.
const YES: [&str; 5] = ["1", "true", "on", "yes", "y"];

/// Variables of other names that count too: that of Azure's own services, an old one for Google
/// Cloud, and the folder above `.aws`. Those of the family take precedence.
const OTHER_NAMES: [(&str, &str); 3] =
    [("AZURE_", "IDENTITY_ENDPOINT"), ("GOOGLE_", "SERVICE_ACCOUNT"), ("AWS_", "HOME")];

/// The variables of one family.
#[derive(Debug)]
pub(super) struct Settings {
    origin: OriginUri,
    /// Names and values. A later one takes precedence.
    values: Vec<(String, String)>,
    /// All variables, of the other families too.
    given: Variables,
}

impl Settings {
    /// Picks the variables that begin with `family`.
    pub(super) fn of(
        origin: &OriginUri,
        family: &str,
        variables: &Variables,
    ) -> Result<Self, OriginError> {
        let given = variables.clone();
        let mut settings = Self { origin: origin.clone(), values: Vec::new(), given };
        for (name, value) in variables.iter() {
            let is_ours =
                |name: &&str| name.starts_with(family) || OTHER_NAMES.contains(&(family, *name));
            let Some(name) = name.to_str().filter(is_ours) else { continue };
            let Some(value) = value.to_str() else {
                return Err(settings.refused(format!("{name} is not UTF-8: set it again")));
            };
            if !value.trim().is_empty() {
                settings.values.push((name.to_owned(), value.trim().to_owned()));
            }
        }
        settings.values.sort_by_key(|(name, _)| (name.starts_with(family), name.clone()));
        Ok(settings)
    }

    /// Returns a variable that is set.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut values = self.values.iter();
        values.find(|(set, _)| set == name).map(|(_, value)| value.as_str())
    }

    /// Sets a variable that is not set, by a value of a profile.
    ///
    /// # Errors
    /// [`OriginError::Settings`] if it can't have the value. `from` says where that stands.
    pub(super) fn adopt(&mut self, name: &str, value: &str, from: &str) -> Result<(), OriginError> {
        if let Some(why) = fault(name, value) {
            return Err(self.refused(format!("{from}: {why}")));
        }
        self.values.push((name.to_owned(), value.to_owned()));
        Ok(())
    }

    /// Returns the variables that they were made by.
    pub(super) fn variables(&self) -> &Variables {
        &self.given
    }

    /// Returns the profile of AWS that is set.
    pub(super) fn profile(&self) -> Option<&str> {
        self.get("AWS_DEFAULT_PROFILE").or_else(|| self.get("AWS_PROFILE"))
    }

    /// Returns the region of S3 that is set.
    pub(super) fn region(&self) -> Option<&str> {
        self.get("AWS_REGION").or_else(|| self.get("AWS_DEFAULT_REGION"))
    }

    /// Returns the settings without some variables.
    pub(super) fn without(&self, names: &[&str]) -> Self {
        let values = self.values.iter().filter(|(name, _)| !names.contains(&&**name));
        let (origin, given) = (self.origin.clone(), self.given.clone());
        Self { origin, values: values.cloned().collect(), given }
    }

    /// Returns the options of requests: the authorities of `AWS_CA_BUNDLE` are trusted too, as the
    /// AWS tools do.
    pub(super) fn trust(&self) -> Result<ClientOptions, OriginError> {
        let Some(path) = self.get("AWS_CA_BUNDLE") else { return Ok(ClientOptions::new()) };
        let refused = |why: &dyn fmt::Display| {
            self.refused(format!("AWS_CA_BUNDLE '{path}' can't be used: {why}"))
        };
        let bundle = fs::read(path).map_err(|error| refused(&error))?;
        let certificates =
            Certificate::from_pem_bundle(&bundle).map_err(|error| refused(&error))?;
        if certificates.is_empty() {
            return Err(refused(&"it has no certificate in the PEM form"));
        }
        let options = ClientOptions::new();
        Ok(certificates.into_iter().fold(options, ClientOptions::with_root_certificate))
    }

    /// Returns whether a variable says yes.
    pub(super) fn is_yes(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| YES.contains(&value.to_ascii_lowercase().as_str()))
    }

    /// Hands each variable that the library knows to its builder.
    ///
    /// # Errors
    /// [`OriginError::Settings`] with the name of the variable.
    pub(super) fn apply<B, K: FromStr>(
        &self,
        builder: B,
        with: impl Fn(B, K, String) -> B,
    ) -> Result<B, OriginError> {
        let mut builder = builder;
        for (name, value) in &self.values {
            if let Ok(key) = name.to_ascii_lowercase().parse() {
                if let Some(why) = fault(name, value) {
                    return Err(self.refused(format!("{name} {why}")));
                }
                builder = with(builder, key, value.clone());
            }
        }
        Ok(builder)
    }

    /// Returns whether requests to this address go without encryption. On this machine they may.
    ///
    /// # Errors
    /// [`OriginError::Settings`] for other machines, unless `AWS_ALLOW_HTTP` says that they may.
    pub(super) fn is_plain(&self, from: &str, address: &str) -> Result<bool, OriginError> {
        let plain = url::Url::parse(address).ok().filter(|url| url.scheme() == "http");
        if plain.as_ref().is_some_and(|url| !is_loopback(url)) && !self.is_yes("AWS_ALLOW_HTTP") {
            return Err(self.refused(format!(
                "{from} '{address}' is not encrypted and not on this machine: use https://, or set \
                 AWS_ALLOW_HTTP=true if the network is trusted"
            )));
        }
        Ok(plain.is_some())
    }

    /// Makes the error for a setting that can't be used.
    pub(super) fn refused(&self, why: String) -> OriginError {
        OriginError::Settings { origin: self.origin.clone(), why }
    }

    /// Makes the error for credentials of which a part is missing.
    pub(super) fn incomplete(&self, set: &str, unset: &str) -> OriginError {
        self.no_keys(format!("{unset} is not set, and {set} is"), "set both, or none".into())
    }

    /// Makes the error for credentials that can't be had by these settings.
    pub(super) fn no_keys(&self, why: String, remedy: String) -> OriginError {
        OriginError::Credentials { origin: self.origin.clone(), why, remedy }
    }

    /// As [`refused`](Self::refused), for an error of the library. It repeats the value and does
    /// not name the variable.
    pub(super) fn refused_by_library(&self, why: String) -> OriginError {
        let is_quoted = |(_, value): &&(String, String)| why.contains(&format!("\"{value}\""));
        match self.values.iter().find(is_quoted) {
            Some((name, _)) => self.refused(format!("{name}: {why}")),
            None => self.refused(why),
        }
    }
}

fn is_loopback(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Returns why a value can't be used. Never shows the value, unless it is an address.
fn fault(name: &str, value: &str) -> Option<String> {
    if is_text_of_a_file(name) {
        return None;
    }
    if !value.chars().all(|c| matches!(c, ' '..='~')) {
        return Some("has a line break or another character that no request can have".into());
    }
    if name.ends_with("_REGION") && !value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return Some(format!("'{value}' is no region: use a name such as eu-central-1"));
    }
    if is_address(name) {
        return not_an_address(value);
    }
    None
}

/// Returns whether a variable has a path or the content of a file.
fn is_text_of_a_file(name: &str) -> bool {
    ["_FILE", "_CERTIFICATE", "_CREDENTIALS"].iter().any(|end| name.ends_with(end))
        || name.contains("SERVICE_ACCOUNT")
}

fn is_address(name: &str) -> bool {
    let ends = ["_FULL_URI", "_BASE_URL", "_SERVICE_URL", "_AUTHORITY_HOST"];
    (name.contains("ENDPOINT") && !name.contains("_USE_"))
        || ends.iter().any(|end| name.ends_with(end))
}

fn not_an_address(value: &str) -> Option<String> {
    let without_scheme =
        || format!("'{value}' has no scheme: write https://{value} or http://{value}");
    let url = match url::Url::parse(value) {
        Ok(url) => url,
        Err(url::ParseError::RelativeUrlWithoutBase) => return Some(without_scheme()),
        Err(error) => return Some(format!("'{value}' is no URL: {error}")),
    };
    if !matches!(url.scheme(), "http" | "https") {
        return Some(match value.contains("://") {
            true => format!("'{value}' is neither https:// nor http://"),
            false => without_scheme(),
        });
    }
    let whole = url.query().is_none() && url.fragment().is_none() && !value.contains([' ', '\\']);
    (!whole).then(|| format!("'{value}' has more than a host and a path"))
}

#[cfg(test)]
mod tests {
    use object_store::{
        aws::{AmazonS3Builder, AmazonS3ConfigKey},
        gcp::GoogleConfigKey,
    };

    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<AmazonS3Builder, OriginError> {
        let origin = OriginUri::parse("s3://bucket/x").unwrap();
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let settings = Settings::of(&origin, "AWS_", &Variables::of(variables))?;
        settings.apply(AmazonS3Builder::new(), AmazonS3Builder::with_config)
    }

    #[test]
    fn only_this_machine_counts_as_loopback() {
        for (url, expected) in [
            ("http://127.0.0.1:9000", true),
            ("http://localhost:9000", true),
            ("http://[::1]:9000", true),
            ("http://10.0.0.1:9000", false),
            ("http://localhost.example.org", false),
        ] {
            assert_eq!(is_loopback(&url::Url::parse(url).unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn values_are_trimmed_and_empty_ones_are_not_set() {
        let builder = of(&[
            ("AWS_ACCESS_KEY_ID", " key\n"),
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:9000\r\n"),
            ("AWS_SESSION_TOKEN", " \n"),
            ("AWS_SECRET_ACCESS_KEY", ""),
            ("OTHER", "\n"),
        ]);
        let builder = builder.unwrap();
        let value = |key| builder.get_config_value(&key);
        assert_eq!(value(AmazonS3ConfigKey::AccessKeyId).as_deref(), Some("key"));
        assert_eq!(value(AmazonS3ConfigKey::Endpoint).as_deref(), Some("http://127.0.0.1:9000"));
        assert_eq!(value(AmazonS3ConfigKey::Token), None);
        assert_eq!(value(AmazonS3ConfigKey::SecretAccessKey), None);
    }

    #[test]
    fn variables_of_other_names_are_read_and_give_way_to_the_family() {
        let origin = OriginUri::parse("gs://bucket/x").unwrap();
        let path = |variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
            let settings = Settings::of(&origin, "GOOGLE_", &Variables::of(variables)).unwrap();
            let apply = |_, key: GoogleConfigKey, value| Some((key, value));
            settings.apply(None, apply).unwrap().map(|(_, value)| value)
        };
        let other = ("SERVICE_ACCOUNT", "/other");
        assert_eq!(path(&[other]).as_deref(), Some("/other"));
        assert_eq!(path(&[("GOOGLE_SERVICE_ACCOUNT", "/own"), other]).as_deref(), Some("/own"));
        assert_eq!(path(&[("IDENTITY_ENDPOINT", "http://h")]), None);
    }

    #[test]
    fn a_value_that_no_request_can_have_is_refused_by_its_name() {
        for (name, value, why) in [
            ("AWS_ACCESS_KEY_ID", "a\nb", "line break"),
            ("AWS_SECRET_ACCESS_KEY", "se\u{e9}cret", "character"),
            ("AWS_REGION", "us east", "no region"),
            ("AWS_ENDPOINT_URL", "localhost:9000", "write https://localhost:9000 or http://"),
            ("AWS_ENDPOINT_URL", "s3.example.com", "no scheme"),
            ("AWS_ENDPOINT_URL_S3", "ftp://host", "neither"),
            ("AWS_ENDPOINT_URL", "http://", "no URL"),
            ("AWS_ENDPOINT_URL", "http://host/?a=b", "more than"),
        ] {
            let error = of(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(why), "{error}");
            assert!(!error.contains("cret"), "{error}");
        }
    }
}
