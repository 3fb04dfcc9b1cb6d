//! The identity that signs requests to S3: one decision, made before the first request and shown
//! to users.
//!
//! The order is that of the AWS tools: keys, web identity, container, instance. The library decides
//! by the same variables. It passes over those that it does not know or that are incomplete, and
//! signs as the host's role. So this module refuses them.
//!
//! Thread rule: plain values; async with tokio's I/O and time. Non-goals: fetching and renewing
//! credentials, which the library does.

use std::{env, fmt, fs, path::PathBuf, time::Duration};

use super::{OriginError, settings::Settings};
use crate::OriginUri;

/// The metadata service is one hop away and answers in milliseconds, or it does not exist.
const METADATA_TIMEOUT: Duration = Duration::from_millis(2000);

const KEY_ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
const TOKEN_FILE: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
const ROLE: &str = "AWS_ROLE_ARN";
const CONTAINER: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
const CONTAINER_PATH: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
const CONTAINER_TOKEN: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN";
const CONTAINER_TOKEN_FILE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";

/// The source of an identity, and its name where that is known without a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Identity {
    Unsigned,
    Keys {
        id: String,
    },
    /// A token that a web identity provider signed.
    Web {
        role: String,
    },
    Container {
        address: String,
    },
    Instance {
        role: String,
    },
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned => write!(f, "does not sign, by AWS_SKIP_SIGNATURE"),
            Self::Keys { id } => write!(f, "signs as {id} by {KEY_ID}"),
            Self::Web { role } => write!(f, "signs as {role} by {TOKEN_FILE}"),
            Self::Container { address } => {
                write!(f, "signs as the container's role by {address}")
            }
            Self::Instance { role } => write!(f, "signs as {role}, the role of this machine"),
        }
    }
}

/// Decides which of the supported ways leads to credentials.
pub(super) async fn decide(
    origin: &OriginUri,
    settings: &Settings,
) -> Result<Identity, OriginError> {
    if let Some(identity) = named(settings)? {
        return Ok(identity);
    }
    if let Some(role) = instance(settings).await {
        return Ok(Identity::Instance { role });
    }
    let (why, remedy) = diagnose(settings.get("AWS_PROFILE"), has_config_file());
    Err(OriginError::Credentials { origin: origin.clone(), why, remedy })
}

/// Returns the identity that the variables name, if they name one.
fn named(settings: &Settings) -> Result<Option<Identity>, OriginError> {
    if settings.is_yes("AWS_SKIP_SIGNATURE") {
        return Ok(Some(Identity::Unsigned));
    }
    if let Some(id) = both(settings, KEY_ID, SECRET)? {
        return Ok(Some(Identity::Keys { id: id.to_owned() }));
    }
    if let Some(path) = both(settings, TOKEN_FILE, ROLE)? {
        read(settings, TOKEN_FILE, path)?;
        let role = settings.get(ROLE).unwrap_or_default().to_owned();
        return Ok(Some(Identity::Web { role }));
    }
    container(settings)
}

/// Returns the value of `name`, if both variables are set.
fn both<'a>(
    settings: &'a Settings,
    name: &str,
    other: &str,
) -> Result<Option<&'a str>, OriginError> {
    match (settings.get(name), settings.get(other)) {
        (Some(value), Some(_)) => Ok(Some(value)),
        (Some(_), None) => Err(settings.incomplete(name, other)),
        (None, Some(_)) => Err(settings.incomplete(other, name)),
        (None, None) => Ok(None),
    }
}

fn container(settings: &Settings) -> Result<Option<Identity>, OriginError> {
    let (path, full) = (settings.get(CONTAINER_PATH), settings.get(CONTAINER));
    if path.or(full).is_none() {
        return Ok(None);
    }
    if settings.get(CONTAINER_TOKEN).is_some() {
        let why = format!("{CONTAINER_TOKEN} is not supported: use {CONTAINER_TOKEN_FILE}");
        return Err(settings.refused(why));
    }
    if let Some(path) = path {
        if !path.starts_with('/') {
            return Err(settings.refused(format!("{CONTAINER_PATH} '{path}' must begin with '/'")));
        }
        return Ok(Some(Identity::Container { address: CONTAINER_PATH.to_owned() }));
    }
    let file = both(settings, CONTAINER_TOKEN_FILE, CONTAINER)?.unwrap_or_default();
    let token = read(settings, CONTAINER_TOKEN_FILE, file)?;
    if !token.chars().all(|c| matches!(c, ' '..='~')) {
        let why = format!(
            "the file of {CONTAINER_TOKEN_FILE} has a line break, or another character that no \
             token has: write the bare token into it"
        );
        return Err(settings.refused(why));
    }
    Ok(Some(Identity::Container { address: CONTAINER.to_owned() }))
}

/// Reads the file at `path`, which the variable `name` gives.
fn read(settings: &Settings, name: &str, path: &str) -> Result<String, OriginError> {
    fs::read_to_string(path)
        .map_err(|error| settings.refused(format!("{name} '{path}' can't be read: {error}")))
}

/// Returns the credentials the user has instead, and the command that exports them.
fn diagnose(profile: Option<&str>, config_file: bool) -> (String, String) {
    let export = |profile: &str| {
        format!(
            "run: eval \"$(aws configure export-credentials --profile {profile} --format env)\" \
             (after 'aws sso login --profile {profile}' if it is an SSO profile)"
        )
    };
    match profile {
        Some(profile) if !profile.is_empty() => (
            format!("AWS_PROFILE={profile} is set, and profiles of ~/.aws are not read by this program"),
            export(profile),
        ),
        _ if config_file => (
            "there are profiles in ~/.aws, which this program does not read, and neither keys in the \
             environment, nor a web identity, nor an instance role"
                .into(),
            export("default"),
        ),
        _ => (
            "there are neither keys in the environment, nor a web identity, nor an instance role".into(),
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public \
             bucket"
                .into(),
        ),
    }
}

fn has_config_file() -> bool {
    let named = |variable: &str| env::var_os(variable).map(PathBuf::from);
    let home = |name: &str| named("HOME").map(|home| home.join(".aws").join(name));
    [
        named("AWS_CONFIG_FILE").or_else(|| home("config")),
        named("AWS_SHARED_CREDENTIALS_FILE").or_else(|| home("credentials")),
    ]
    .into_iter()
    .flatten()
    .any(|path| path.is_file())
}

/// Returns the role that an instance metadata service knows, if there is one.
async fn instance(settings: &Settings) -> Option<String> {
    if settings.is_yes("AWS_EC2_METADATA_DISABLED") {
        return None;
    }
    let endpoint = settings.get("AWS_METADATA_ENDPOINT").unwrap_or("http://169.254.169.254");
    let fallback = settings.is_yes("AWS_IMDSV1_FALLBACK");
    let role = tokio::time::timeout(METADATA_TIMEOUT, instance_role(endpoint, fallback)).await;
    let role = role.ok().flatten()?.trim().to_owned();
    let is_name = !role.is_empty() && role.chars().all(|c| matches!(c, '!'..='~'));
    is_name.then_some(role)
}

async fn instance_role(endpoint: &str, may_fall_back: bool) -> Option<String> {
    let client = reqwest::Client::builder().no_proxy().build().ok()?;
    let token = client
        .put(format!("{endpoint}/latest/api/token"))
        .header("X-aws-ec2-metadata-token-ttl-seconds", "60")
        .send()
        .await
        .ok()?;
    let mut request = client.get(format!("{endpoint}/latest/meta-data/iam/security-credentials/"));
    if token.status().is_success() {
        request = request.header("X-aws-ec2-metadata-token", token.text().await.ok()?);
    } else if !may_fall_back {
        return None;
    }
    let roles = request.send().await.ok()?.error_for_status().ok()?;
    roles.text().await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn decided(variables: &[(&str, &str)]) -> Result<String, String> {
        let origin = OriginUri::parse("s3://bucket/x").unwrap();
        // No process listens on port 1.
        let nowhere = ("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1");
        let variables = variables.iter().chain([&nowhere]);
        let variables = variables.map(|&(name, value)| (name.into(), value.into()));
        let settings = Settings::of(&origin, "AWS_", variables).unwrap();
        let decided = decide(&origin, &settings).await;
        decided.map(|identity| identity.to_string()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn identity_that_the_variables_name_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        fs::write(&token, "token").unwrap();
        let token = token.to_str().unwrap();
        let keys = [(KEY_ID, "AKIA1"), (SECRET, "secret")];
        let web = [(ROLE, "arn:r"), (TOKEN_FILE, token)];
        let pod = [(CONTAINER, "http://127.0.0.1/c"), (CONTAINER_TOKEN_FILE, token)];
        for (variables, said) in [
            (&keys[..], "signs as AKIA1 by AWS_ACCESS_KEY_ID"),
            (&[web, keys].concat(), "signs as AKIA1 by AWS_ACCESS_KEY_ID"),
            (
                &[(KEY_ID, ""), (SECRET, ""), web[0], web[1]],
                "signs as arn:r by AWS_WEB_IDENTITY_TOKEN_FILE",
            ),
            (&pod, "signs as the container's role by AWS_CONTAINER_CREDENTIALS_FULL_URI"),
            (
                &[("AWS_SKIP_SIGNATURE", "True"), keys[0], keys[1]],
                "does not sign, by AWS_SKIP_SIGNATURE",
            ),
        ] {
            assert_eq!(decided(variables).await.as_deref(), Ok(said), "{variables:?}");
        }
    }

    #[tokio::test]
    async fn incomplete_identity_is_refused_by_the_name_of_the_variable() {
        crate::install_crypto();
        let folder = tempfile::tempdir().unwrap();
        let broken = folder.path().join("token");
        fs::write(&broken, "token\n").unwrap();
        let broken = broken.to_str().unwrap();
        let pod = (CONTAINER, "http://127.0.0.1/c");
        for (variables, why) in [
            (&[(KEY_ID, "key")][..], "AWS_SECRET_ACCESS_KEY is not"),
            (&[(SECRET, "key")], "AWS_ACCESS_KEY_ID is not"),
            (&[(ROLE, "arn:r")], "AWS_WEB_IDENTITY_TOKEN_FILE is not"),
            (&[(TOKEN_FILE, broken)], "AWS_ROLE_ARN is not"),
            (
                &[(ROLE, "arn:r"), (TOKEN_FILE, "/no/such")],
                "AWS_WEB_IDENTITY_TOKEN_FILE '/no/such'",
            ),
            (&[pod], "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE is not"),
            (&[pod, (CONTAINER_TOKEN, "t")], "AWS_CONTAINER_AUTHORIZATION_TOKEN is not supported"),
            (&[pod, (CONTAINER_TOKEN_FILE, broken)], "a line break"),
            (&[(CONTAINER_PATH, "v2")], "must begin with '/'"),
            (&[], "no credentials for s3://bucket/x"),
        ] {
            let error = decided(variables).await.unwrap_err();
            assert!(error.contains(why) && !error.contains("token\n"), "{error}");
        }
    }

    #[test]
    fn a_profile_is_answered_with_the_command_that_exports_it() {
        let (why, remedy) = diagnose(Some("research"), true);
        assert!(why.contains("AWS_PROFILE=research"), "{why}");
        assert!(
            remedy.contains(
                "eval \"$(aws configure export-credentials --profile research --format env)\""
            ),
            "{remedy}"
        );
        assert!(diagnose(None, true).1.contains("--profile default"));
        assert!(diagnose(None, false).1.contains("AWS_ACCESS_KEY_ID"));
    }
}
