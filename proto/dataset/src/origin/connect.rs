//! Connects to an origin: turns an address and the environment into a store.

use std::{sync::Arc, time::Duration};

use object_store::{
    BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredentialProvider},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
    local::LocalFileSystem,
};

use super::{
    Etags, Origin, OriginError,
    checked::{CheckedConnector, Contact, TokenService},
    credentials,
    local::LocalCalls,
    messages,
    settings::Settings,
    ways::{Way, Ways},
};
use crate::{OriginUri, Scheme, Variables};

/// Time after which a request with retries gives up. It outlasts the usual "slow down" of a store,
/// and the restart of one.
pub(super) const RETRY_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest wait between two tries.
pub(super) const RETRY_WAIT_MAX: Duration = Duration::from_secs(5);

/// Makes `ring` the cryptography of every TLS connection of this process. May be called any number
/// of times; [`Origin::connect`] calls it.
pub fn install_crypto() {
    // An error means that a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

impl Origin {
    /// Prepares access to the bucket of `uri`. Only checks settings: an unreachable bucket shows
    /// with the first request.
    ///
    /// S3 is set up from the usual `AWS_*` variables and the profiles of `~/.aws`: keys, region,
    /// `AWS_ENDPOINT_URL` or `AWS_ENDPOINT_URL_S3`, web identity, container and instance roles. An
    /// `http://` endpoint is accepted on loopback, elsewhere only with `AWS_ALLOW_HTTP=true`.
    ///
    /// # Errors
    /// [`OriginError::Credentials`] within three seconds if there are no usable credentials, with
    /// the command that provides them. [`OriginError::Settings`] if the settings contradict each
    /// other.
    pub async fn connect(uri: &OriginUri) -> Result<Self, OriginError> {
        Self::connect_by(uri, &Variables::of_process()).await
    }

    /// As [`connect`](Self::connect), by these variables.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_by(uri: &OriginUri, variables: &Variables) -> Result<Self, OriginError> {
        install_crypto();
        let (mut access, mut keys, contact) = (None, None, Arc::default());
        let (store, strict) = match uri.scheme() {
            Scheme::File => {
                let files: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new());
                (Arc::clone(&files), files)
            }
            Scheme::S3 => {
                let mut settings = Settings::of(uri, "AWS_", variables)?;
                let decided = credentials::decide(&mut settings, &provider_of_library).await?;
                let mut builder = s3_builder(&settings, uri.bucket(), &contact)?;
                if let Some(decided) = decided.keys {
                    keys = Some(Arc::clone(&decided));
                    builder = builder.with_credentials(decided);
                }
                access = Some(decided.access);
                built(&settings, |retry| builder.clone().with_retry(retry).build())?
            }
            Scheme::Gs => {
                let (settings, builder) = gcs_builder(uri, variables)?;
                let connector = CheckedConnector::new(gcs_services(), &contact);
                let builder = builder.with_http_connector(connector);
                built(&settings, |retry| builder.clone().with_retry(retry).build())?
            }
            Scheme::Az => {
                let (settings, builder) = azure_builder(uri, variables)?;
                let connector = CheckedConnector::new(azure_services(&settings), &contact);
                let builder = builder.with_http_connector(connector);
                built(&settings, |retry| builder.clone().with_retry(retry).build())?
            }
        };
        let etags = if uri.scheme() == Scheme::File { Etags::AsIs } else { Etags::Quoted };
        let local = LocalCalls::of_process();
        let way = Way { store, strict, contact, access, keys, variables: variables.clone() };
        Ok(Self {
            root: uri.clone(),
            ways: Ways::only(Arc::new(way)),
            etags,
            fence: None,
            local,
            keeper: None,
        })
    }
}

/// A store that retries, and one that makes one attempt.
type Stores = (Arc<dyn ObjectStore>, Arc<dyn ObjectStore>);

/// Builds a store that retries by the policy of this module, and one that makes one attempt.
fn built<S: ObjectStore>(
    settings: &Settings,
    build: impl Fn(RetryConfig) -> object_store::Result<S>,
) -> Result<Stores, OriginError> {
    let refused = |error| settings.refused_by_library(messages::plain(&error));
    let backoff = BackoffConfig { max_backoff: RETRY_WAIT_MAX, ..BackoffConfig::default() };
    let retry = RetryConfig { backoff, max_retries: usize::MAX, retry_timeout: RETRY_TIMEOUT };
    let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    Ok((Arc::new(build(retry).map_err(refused)?), Arc::new(build(once).map_err(refused)?)))
}

/// Lists the services that give out credentials for S3.
fn aws_services(settings: &Settings) -> Vec<TokenService> {
    let metadata = settings.get("AWS_METADATA_ENDPOINT").unwrap_or("http://169.254.169.254");
    let container = settings.get("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    let sts = format!("https://sts.{}.amazonaws.com", settings.region().unwrap_or("us-east-1"));
    services(&[
        (settings.get("AWS_ENDPOINT_URL_STS").unwrap_or(&sts), "the security token service (STS)"),
        (metadata, "the metadata service of this machine"),
        (container.unwrap_or("http://169.254.170.2"), "the credentials service of the container"),
    ])
}

fn gcs_services() -> Vec<TokenService> {
    services(&[
        ("https://oauth2.googleapis.com", "Google's token service"),
        ("http://metadata.google.internal", "the metadata service of this machine"),
        ("http://169.254.169.254", "the metadata service of this machine"),
    ])
}

fn azure_services(settings: &Settings) -> Vec<TokenService> {
    let named = settings.get("AZURE_AUTHORITY_HOST");
    services(&[
        (named.unwrap_or("https://login.microsoftonline.com"), "Azure's token service"),
        ("http://169.254.169.254", "the metadata service of this machine"),
    ])
}

fn services(named: &[(&str, &'static str)]) -> Vec<TokenService> {
    let service = |&(address, name): &(&str, _)| {
        let uri: url::Url = address.parse().ok()?;
        let host = uri.host_str()?;
        let authority = uri.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        Some(TokenService { authority, name })
    };
    named.iter().filter_map(service).collect()
}

/// Lists the timeouts that the environment does not set (`AWS_TIMEOUT`, `AWS_READ_TIMEOUT` and so
/// on): 30 seconds of silence, and 600 seconds for a whole answer. The library's own 30 seconds for
/// the whole answer would end every one of several parts that share a slow link.
fn waits(
    settings: &Settings,
    family: &str,
) -> impl Iterator<Item = (ClientConfigKey, &'static str)> {
    let all = [(ClientConfigKey::ReadTimeout, "30s"), (ClientConfigKey::Timeout, "600s")];
    let is_said = move |key: &ClientConfigKey| {
        let name = format!("{family}_{}", key.as_ref()).to_uppercase();
        settings.get(&name).is_some()
    };
    all.into_iter().filter(move |(key, _)| !is_said(key))
}

fn s3_builder(
    settings: &Settings,
    bucket: &str,
    contact: &Arc<Contact>,
) -> Result<AmazonS3Builder, OriginError> {
    let connector = CheckedConnector::new(aws_services(settings), contact);
    let builder = AmazonS3Builder::new().with_http_connector(connector);
    let builder = builder.with_client_options(settings.trust()?);
    let mut builder =
        settings.apply(builder, AmazonS3Builder::with_config)?.with_bucket_name(bucket);
    for (key, wait) in waits(settings, "AWS") {
        builder = builder.with_config(AmazonS3ConfigKey::Client(key), wait);
    }
    if builder.get_config_value(&AmazonS3ConfigKey::Region).is_none() {
        builder = builder.with_region("us-east-1");
    }
    let named = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
    let endpoint = named.iter().find_map(|name| Some((name, settings.get(name)?)));
    if let Some((name, endpoint)) = endpoint
        && settings.is_plain(name, endpoint)?
    {
        builder = builder.with_allow_http(true);
    }
    Ok(builder)
}

/// Returns the keys that the library finds by these variables: those of a container or an instance.
fn provider_of_library(settings: &Settings) -> Result<AwsCredentialProvider, OriginError> {
    let store = s3_builder(settings, "none", &Arc::default())?.build();
    let store = store.map_err(|error| settings.refused_by_library(messages::plain(&error)))?;
    Ok(Arc::clone(store.credentials()))
}

fn gcs_builder(
    uri: &OriginUri,
    variables: &Variables,
) -> Result<(Settings, GoogleCloudStorageBuilder), OriginError> {
    let settings = Settings::of(uri, "GOOGLE_", variables)?;
    let builder = GoogleCloudStorageBuilder::new();
    let mut builder = settings.apply(builder, GoogleCloudStorageBuilder::with_config)?;
    for (key, wait) in waits(&settings, "GOOGLE") {
        builder = builder.with_config(GoogleConfigKey::Client(key), wait);
    }
    Ok((settings, builder.with_bucket_name(uri.bucket())))
}

fn azure_builder(
    uri: &OriginUri,
    variables: &Variables,
) -> Result<(Settings, MicrosoftAzureBuilder), OriginError> {
    let settings = Settings::of(uri, "AZURE_", variables)?;
    let builder = MicrosoftAzureBuilder::new();
    let mut builder = settings.apply(builder, MicrosoftAzureBuilder::with_config)?;
    for (key, wait) in waits(&settings, "AZURE") {
        builder = builder.with_config(AzureConfigKey::Client(key), wait);
    }
    Ok((settings, builder.with_container_name(uri.bucket())))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, ffi::OsString};

    use super::*;

    #[test]
    fn request_timeout_is_minutes_and_read_timeout_seconds() {
        let uri = OriginUri::parse("s3://bucket/data").unwrap();
        let settings = Settings::of(&uri, "AWS_", &Variables::default()).unwrap();
        let builder = s3_builder(&settings, "bucket", &Arc::default()).unwrap();
        let wait = |key| builder.get_config_value(&AmazonS3ConfigKey::Client(key));
        assert_eq!(wait(ClientConfigKey::Timeout).as_deref(), Some("600s"));
        assert_eq!(wait(ClientConfigKey::ReadTimeout).as_deref(), Some("30s"));
    }

    const ODD: [&str; 22] = include!("../../../../tests/src/odd_values.in");

    /// The variables of each family, without the prefix. All families also have `CLIENT`.
    const FAMILIES: [(&str, &str, &str, &str); 3] = [
        (
            "s3://bucket/data",
            "AWS_",
            "ENDPOINT_URL=http://127.0.0.1:2 ACCESS_KEY_ID=k SECRET_ACCESS_KEY=s",
            "ACCESS_KEY_ID SECRET_ACCESS_KEY SESSION_TOKEN TOKEN REGION DEFAULT_REGION ENDPOINT \
             ENDPOINT_URL ENDPOINT_URL_S3 ENDPOINT_URL_STS BUCKET VIRTUAL_HOSTED_STYLE_REQUEST \
             S3_EXPRESS IMDSV1_FALLBACK METADATA_ENDPOINT UNSIGNED_PAYLOAD CHECKSUM_ALGORITHM \
             CONTAINER_CREDENTIALS_RELATIVE_URI CONTAINER_CREDENTIALS_FULL_URI \
             CONTAINER_AUTHORIZATION_TOKEN CONTAINER_AUTHORIZATION_TOKEN_FILE \
             WEB_IDENTITY_TOKEN_FILE ROLE_ARN ROLE_SESSION_NAME SKIP_SIGNATURE COPY_IF_NOT_EXISTS \
             CONDITIONAL_PUT DISABLE_TAGGING DISABLE_BULK_DELETE REQUEST_PAYER CA_BUNDLE PROFILE \
             SERVER_SIDE_ENCRYPTION SSE_KMS_KEY_ID SSE_BUCKET_KEY_ENABLED SSE_CUSTOMER_KEY_BASE64",
        ),
        (
            "gs://bucket/data",
            "GOOGLE_",
            "BASE_URL=http://127.0.0.1:2 SKIP_SIGNATURE=true",
            "SERVICE_ACCOUNT SERVICE_ACCOUNT_KEY SERVICE_ACCOUNT_PATH BUCKET BASE_URL \
             APPLICATION_CREDENTIALS BEARER_TOKEN SKIP_SIGNATURE",
        ),
        (
            "az://container/data",
            "AZURE_",
            "STORAGE_ENDPOINT=http://127.0.0.1:2 STORAGE_ACCOUNT_NAME=a SKIP_SIGNATURE=true \
             ALLOW_HTTP=true",
            "STORAGE_ACCOUNT_KEY STORAGE_ACCOUNT_NAME CLIENT_ID CLIENT_SECRET TENANT_ID \
             AUTHORITY_HOST STORAGE_SAS_TOKEN STORAGE_TOKEN STORAGE_USE_EMULATOR STORAGE_ENDPOINT \
             MSI_ENDPOINT OBJECT_ID MSI_RESOURCE_ID FEDERATED_TOKEN_FILE USE_FABRIC_ENDPOINT \
             USE_AZURE_CLI SKIP_SIGNATURE CONTAINER_NAME DISABLE_TAGGING FABRIC_TOKEN_SERVICE_URL \
             FABRIC_WORKLOAD_HOST FABRIC_SESSION_TOKEN FABRIC_CLUSTER_IDENTIFIER CREDENTIAL_TYPE \
             STORAGE_ENCRYPTION_KEY",
        ),
    ];

    const CLIENT: &str = "ALLOW_HTTP ALLOW_INVALID_CERTIFICATES CONNECT_TIMEOUT \
        DEFAULT_CONTENT_TYPE HTTP1_ONLY HTTP2_ONLY HTTP2_KEEP_ALIVE_INTERVAL \
        HTTP2_KEEP_ALIVE_TIMEOUT HTTP2_KEEP_ALIVE_WHILE_IDLE HTTP2_MAX_FRAME_SIZE \
        POOL_IDLE_TIMEOUT POOL_MAX_IDLE_PER_HOST PROXY_URL PROXY_CA_CERTIFICATE PROXY_EXCLUDES \
        RANDOMIZE_ADDRESSES READ_TIMEOUT TIMEOUT USER_AGENT";

    fn words(names: &'static str) -> impl Iterator<Item = &'static str> {
        names.split_whitespace()
    }

    fn is_name(word: &&str) -> bool {
        !word.is_empty()
            && word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    }

    #[tokio::test]
    async fn no_value_of_a_variable_panics() {
        for (uri, family, base, names) in FAMILIES {
            let uri = OriginUri::parse(uri).unwrap();
            let base = base.split_whitespace().filter_map(|pair| pair.split_once('='));
            // The certificates of the system take long to read.
            let fast = ("DISABLE_SYSTEM_CERTIFICATES", "true");
            let alone = ("METADATA_ENDPOINT", "http://127.0.0.1:1");
            let base: Vec<_> = base.chain([fast, alone]).collect();
            let set = base.iter().map(|(name, value)| {
                (OsString::from(format!("{family}{name}")), OsString::from(value))
            });
            let plain = Origin::connect_by(&uri, &Variables::of(set)).await.unwrap();
            let plain = plain.probe(&uri).await.unwrap_err().to_string();
            assert!(plain.contains("no connection to http://127.0.0.1:2"), "{plain}");
            let listed = include_str!("../../../../docs/operating.md").split('`');
            let listed = listed.filter_map(|word| word.strip_prefix(family)).filter(is_name);
            let names: BTreeSet<_> = words(names).chain(words(CLIENT)).chain(listed).collect();
            for name in names {
                let asked = ODD.map(|value| {
                    let odd = (name, value);
                    let set = base.iter().filter(|(set, _)| *set != name).chain([&odd]);
                    let set = set.map(|(name, value)| {
                        (OsString::from(format!("{family}{name}")), OsString::from(value))
                    });
                    let (uri, set) = (uri.clone(), Variables::of(set));
                    let asked =
                        async move { Origin::connect_by(&uri, &set).await?.probe(&uri).await };
                    // A value may make the library wait for a service that is not there.
                    let asked = tokio::time::timeout(Duration::from_secs(1), asked);
                    async move { (value, asked.await) }
                });
                for (value, asked) in futures_util::future::join_all(asked).await {
                    let text = asked.map(|asked| asked.unwrap_err().to_string());
                    let text = text.unwrap_or_default();
                    assert!(!text.contains("fault of larder"), "{family}{name}={value:?}: {text}");
                }
            }
        }
    }
}
