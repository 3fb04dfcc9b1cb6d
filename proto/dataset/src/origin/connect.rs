//! Connects to an origin: turns an address and the environment into a store.

use std::{sync::Arc, time::Duration};

use object_store::{
    ClientConfigKey, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
    local::LocalFileSystem,
};

use super::{
    Etags, Origin, OriginError, credentials, listing::Listings, local::LocalCalls, messages,
};
use crate::{OriginUri, Scheme};

/// Time after which a request with retries gives up.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);
const RETRIES: usize = 4;

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
    /// S3 is set up from the usual `AWS_*` variables: keys, region, `AWS_ENDPOINT_URL` or
    /// `AWS_ENDPOINT_URL_S3`, web identity, container and instance roles. An `http://` endpoint is
    /// accepted on loopback, elsewhere only with `AWS_ALLOW_HTTP=true`.
    ///
    /// # Errors
    /// [`OriginError::Credentials`] within three seconds if there are no usable credentials, with
    /// the command that provides them. [`OriginError::Settings`] if the settings contradict each
    /// other.
    pub async fn connect(uri: &OriginUri) -> Result<Self, OriginError> {
        install_crypto();
        let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let some = RetryConfig {
            max_retries: RETRIES,
            retry_timeout: RETRY_TIMEOUT,
            ..RetryConfig::default()
        };
        let (store, strict) = match uri.scheme() {
            Scheme::File => {
                let files: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new());
                (Arc::clone(&files), files)
            }
            Scheme::S3 => {
                let builder = s3_builder(uri)?;
                credentials::check(uri, &builder).await?;
                (s3(uri, &builder, some)?, s3(uri, &builder, once)?)
            }
            Scheme::Gs => (gcs(uri, some)?, gcs(uri, once)?),
            Scheme::Az => (azure(uri, some)?, azure(uri, once)?),
        };
        let etags = if uri.scheme() == Scheme::File { Etags::AsIs } else { Etags::Quoted };
        let local = LocalCalls::of_process();
        Ok(Self { root: uri.clone(), store, strict, etags, fence: None, local })
    }
}

fn settings(uri: &OriginUri, why: String) -> OriginError {
    OriginError::Settings { origin: uri.clone(), why }
}

fn built<S: ObjectStore>(
    uri: &OriginUri,
    store: object_store::Result<S>,
) -> Result<Arc<dyn ObjectStore>, OriginError> {
    match store {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(settings(uri, messages::plain(&error))),
    }
}

/// Lists the timeouts that the environment does not set (`AWS_TIMEOUT`, `AWS_READ_TIMEOUT` and so
/// on): 30 seconds of silence, and 600 seconds for a whole answer. The library's own 30 seconds for
/// the whole answer would end every one of several parts that share a slow link.
fn waits(prefix: &str) -> impl Iterator<Item = (ClientConfigKey, &'static str)> {
    let all = [(ClientConfigKey::ReadTimeout, "30s"), (ClientConfigKey::Timeout, "600s")];
    let prefix = prefix.to_owned();
    let is_said = move |key: &ClientConfigKey| {
        let name = format!("{prefix}_{}", key.as_ref()).to_uppercase();
        std::env::var_os(name).is_some()
    };
    all.into_iter().filter(move |(key, _)| !is_said(key))
}

fn s3_builder(uri: &OriginUri) -> Result<AmazonS3Builder, OriginError> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(uri.bucket());
    for (key, wait) in waits("AWS") {
        builder = builder.with_config(AmazonS3ConfigKey::Client(key), wait);
    }
    if builder.get_config_value(&AmazonS3ConfigKey::Region).is_none() {
        builder = builder.with_region("us-east-1");
    }
    let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint]
        .iter()
        .find_map(|key| builder.get_config_value(key));
    if let Some(endpoint) = endpoint {
        let parsed = url::Url::parse(&endpoint).map_err(|error| {
            settings(uri, format!("AWS_ENDPOINT_URL '{endpoint}' is no URL: {error}"))
        })?;
        if parsed.scheme() == "http" {
            let allow = AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp);
            let allowed = builder.get_config_value(&allow).is_some_and(|value| value == "true");
            if !allowed && !is_loopback(&parsed) {
                return Err(settings(
                    uri,
                    format!(
                        "AWS_ENDPOINT_URL '{endpoint}' is not encrypted and not on this machine: use \
                         https://, or set AWS_ALLOW_HTTP=true if the network is trusted"
                    ),
                ));
            }
            builder = builder.with_allow_http(true);
        }
    }
    Ok(builder)
}

fn is_loopback(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn s3(
    uri: &OriginUri,
    builder: &AmazonS3Builder,
    retry: RetryConfig,
) -> Result<Arc<dyn ObjectStore>, OriginError> {
    built(uri, builder.clone().with_retry(retry).with_http_connector(Listings).build())
}

fn gcs(uri: &OriginUri, retry: RetryConfig) -> Result<Arc<dyn ObjectStore>, OriginError> {
    let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(uri.bucket());
    for (key, wait) in waits("GOOGLE") {
        builder = builder.with_config(GoogleConfigKey::Client(key), wait);
    }
    built(uri, builder.with_retry(retry).with_http_connector(Listings).build())
}

fn azure(uri: &OriginUri, retry: RetryConfig) -> Result<Arc<dyn ObjectStore>, OriginError> {
    let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(uri.bucket());
    for (key, wait) in waits("AZURE") {
        builder = builder.with_config(AzureConfigKey::Client(key), wait);
    }
    built(uri, builder.with_retry(retry).build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_timeout_is_minutes_and_read_timeout_seconds() {
        let uri = OriginUri::parse("s3://bucket/data").unwrap();
        let builder = s3_builder(&uri).unwrap();
        let wait = |key| builder.get_config_value(&AmazonS3ConfigKey::Client(key));
        assert_eq!(wait(ClientConfigKey::Timeout).as_deref(), Some("600s"));
        assert_eq!(wait(ClientConfigKey::ReadTimeout).as_deref(), Some("30s"));
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
}
