//! Checks for S3 credentials before the first request. Without this check, a missing instance
//! metadata service would cost ten retries.

use std::{env, path::PathBuf, time::Duration};

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as Key};

use super::OriginError;
use crate::OriginUri;

/// The metadata service is one hop away and answers in milliseconds, or it does not exist.
const METADATA_TIMEOUT: Duration = Duration::from_millis(2000);

/// Checks that one of the supported ways leads to credentials.
pub(super) async fn check(
    origin: &OriginUri,
    builder: &AmazonS3Builder,
) -> Result<(), OriginError> {
    let has = |key| builder.get_config_value(&key).is_some_and(|value| !value.is_empty());
    let refused = |why: &str, remedy: String| {
        Err(OriginError::Credentials { origin: origin.clone(), why: why.into(), remedy })
    };
    match (has(Key::AccessKeyId), has(Key::SecretAccessKey)) {
        (true, true) => return Ok(()),
        (true, false) => {
            return refused(
                "AWS_SECRET_ACCESS_KEY is not set",
                "set it, or unset AWS_ACCESS_KEY_ID".into(),
            );
        }
        (false, true) => {
            return refused(
                "AWS_ACCESS_KEY_ID is not set",
                "set it, or unset AWS_SECRET_ACCESS_KEY".into(),
            );
        }
        (false, false) => {}
    }
    let unsigned =
        builder.get_config_value(&Key::SkipSignature).is_some_and(|value| value == "true");
    let web_identity = has(Key::WebIdentityTokenFile) && has(Key::RoleArn);
    let container =
        has(Key::ContainerCredentialsRelativeUri) || has(Key::ContainerCredentialsFullUri);
    if unsigned || web_identity || container {
        return Ok(());
    }
    if has_instance_role(builder).await {
        return Ok(());
    }
    let (why, remedy) = diagnose(env::var("AWS_PROFILE").ok().as_deref(), has_config_file());
    refused(&why, remedy)
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

/// Returns whether an instance metadata service exists and knows a role.
async fn has_instance_role(builder: &AmazonS3Builder) -> bool {
    let disabled = env::var("AWS_EC2_METADATA_DISABLED");
    if disabled.is_ok_and(|value| value.eq_ignore_ascii_case("true")) {
        return false;
    }
    let endpoint = builder
        .get_config_value(&Key::MetadataEndpoint)
        .unwrap_or_else(|| "http://169.254.169.254".into());
    let role = tokio::time::timeout(METADATA_TIMEOUT, instance_role(&endpoint, builder)).await;
    role.ok().flatten().is_some_and(|role| !role.trim().is_empty())
}

async fn instance_role(endpoint: &str, builder: &AmazonS3Builder) -> Option<String> {
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
    } else if builder.get_config_value(&Key::ImdsV1Fallback).as_deref() != Some("true") {
        return None;
    }
    let roles = request.send().await.ok()?.error_for_status().ok()?;
    roles.text().await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn error_names_the_missing_half_of_a_key_pair() {
        let origin = OriginUri::parse("s3://bucket/x").unwrap();
        let builder = AmazonS3Builder::new().with_access_key_id("key");
        let error = check(&origin, &builder).await.unwrap_err().to_string();
        assert!(error.contains("AWS_SECRET_ACCESS_KEY is not set"), "{error}");
    }

    #[tokio::test]
    async fn accepts_a_key_pair_or_unsigned_requests() {
        let origin = OriginUri::parse("s3://bucket/x").unwrap();
        let keys =
            AmazonS3Builder::new().with_access_key_id("key").with_secret_access_key("secret");
        check(&origin, &keys).await.unwrap();
        check(&origin, &AmazonS3Builder::new().with_skip_signature(true)).await.unwrap();
    }

    #[tokio::test]
    async fn missing_credentials_are_an_error() {
        crate::install_crypto();
        let origin = OriginUri::parse("s3://bucket/x").unwrap();
        // No process listens on port 1.
        let builder = AmazonS3Builder::new().with_metadata_endpoint("http://127.0.0.1:1");
        let error = check(&origin, &builder).await.unwrap_err();
        assert!(matches!(error, OriginError::Credentials { .. }), "{error}");
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
