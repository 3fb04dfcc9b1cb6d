//! The services of AWS that make temporary keys: where they are, and one request to them.
//!
//! Thread rule: cheap to clone; async with tokio's I/O and time.

use std::time::Duration;

use bytes::Bytes;
use object_store::{
    ClientOptions,
    aws::AmazonS3ConfigKey,
    client::{HttpClient, HttpConnector as _, HttpErrorKind, HttpRequest, ReqwestConnector},
};

use crate::origin::{
    OriginError, checked,
    messages::{self, Explained},
    profiles::{Profile, Profiles},
    settings::Settings,
};

/// Waits between the tries of a request.
const RETRY_WAITS: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_millis(800), Duration::from_secs(2)];

/// A kind of service.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Tokens,
    Portal,
    Logins,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Tokens => "the security token service (STS)",
            Self::Portal => "the SSO portal",
            Self::Logins => "the SSO login service",
        }
    }

    /// The name in `AWS_ENDPOINT_URL_NAME`, in lower case as `services` has it.
    fn id(self) -> &'static str {
        match self {
            Self::Tokens => "sts",
            Self::Portal => "sso",
            Self::Logins => "sso_oidc",
        }
    }

    fn host(self, region: &str) -> String {
        let begin = match self {
            Self::Tokens => "sts",
            Self::Portal => "portal.sso",
            Self::Logins => "oidc",
        };
        let end = if region.starts_with("cn-") { ".cn" } else { "" };
        format!("https://{begin}.{region}.amazonaws.com{end}")
    }
}

/// One service.
#[derive(Debug, Clone)]
pub(super) struct Service {
    kind: Kind,
    pub(super) address: String,
    http: HttpClient,
}

impl Service {
    /// Prepares requests to a service. The variables and the profile in use may place it elsewhere.
    ///
    /// # Errors
    /// [`OriginError::Settings`] if the settings of requests can't be used.
    pub(super) fn new(
        kind: Kind,
        region: &str,
        settings: &Settings,
        profile: Option<(&Profiles, Profile<'_>)>,
    ) -> Result<Self, OriginError> {
        let address = endpoint(kind.id(), settings, profile);
        let address = match address {
            Some((from, address)) => {
                settings.is_plain(&from, &address)?;
                address.trim_end_matches('/').to_owned()
            }
            None => kind.host(region),
        };
        let options = settings.trust()?;
        let with = |options: ClientOptions, key, value| match key {
            AmazonS3ConfigKey::Client(key) => options.with_config(key, value),
            _ => options,
        };
        let options = settings.apply(options, with)?.with_allow_http(true);
        let http = ReqwestConnector::default().connect(&options);
        let http = http.map_err(|error| settings.refused_by_library(messages::plain(&error)))?;
        Ok(Self { kind, address, http })
    }

    /// Sends a request. Tries again if the service may answer then.
    pub(super) async fn ask(&self, request: HttpRequest) -> Result<Bytes, Explained> {
        let mut waits = RETRY_WAITS.into_iter();
        loop {
            let error = match self.try_once(request.clone()).await {
                Ok(body) => return Ok(body),
                Err(error) => error,
            };
            match waits.next().filter(|_| error.kind() != HttpErrorKind::Unknown) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => {
                    let unexplained = || Explained::failure(error.to_string());
                    return Err(messages::cause(&error).cloned().unwrap_or_else(unexplained));
                }
            }
        }
    }

    async fn try_once(
        &self,
        request: HttpRequest,
    ) -> Result<Bytes, object_store::client::HttpError> {
        let response = checked::ask_service(&self.http, self.kind.name(), request).await?;
        checked::whole(response.into_body()).await
    }

    /// An answer that can't be used.
    pub(super) fn unreadable(&self) -> Explained {
        Explained::failure(format!("{} at {} gave no keys", self.kind.name(), self.address))
    }
}

/// Returns the address of a service that is set, and the setting.
pub(super) fn endpoint(
    service: &str,
    settings: &Settings,
    profile: Option<(&Profiles, Profile<'_>)>,
) -> Option<(String, String)> {
    let names = [format!("AWS_ENDPOINT_URL_{}", service.to_uppercase()), "AWS_ENDPOINT_URL".into()];
    let variable = names.into_iter().find_map(|name| {
        let address = settings.get(&name)?.to_owned();
        Some((name, address))
    });
    variable.or_else(|| {
        let (all, profile) = profile?;
        let address = profile.endpoint(all, service)?.to_owned();
        Some((format!("endpoint_url of profile {}", profile.name), address))
    })
}
