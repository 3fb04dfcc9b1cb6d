//! SSO (IAM Identity Center): the portal gives the keys of a role for the token that
//! `aws sso login` left in a file.
//!
//! A token of an `sso-session` is refreshed a quarter of an hour before it expires, and written
//! back, so that the AWS tools have it too.
//!
//! Thread rule: async with tokio's I/O and time. Non-goals: logging in.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use object_store::aws::AwsCredential;
use ring::digest;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    keys::{Fetched, now, time},
    services::Service,
};
use crate::origin::messages::Explained;

const REFRESHED_BEFORE: Duration = Duration::from_secs(15 * 60);
const TOKEN_BYTES_MAX: u64 = 1 << 20;

/// A role that a login gives.
#[derive(Debug)]
pub(super) struct Login {
    pub(super) profile: String,
    /// The name of the `sso-session`. Without one, the token can't be refreshed.
    pub(super) session: Option<String>,
    pub(super) start_url: String,
    pub(super) account: String,
    pub(super) role: String,
    /// The folder of the tokens.
    pub(super) folder: PathBuf,
    pub(super) portal: Service,
    pub(super) logins: Service,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    role_credentials: RoleCredentials,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RoleCredentials {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
    /// Milliseconds since 1970.
    expiration: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Refreshed {
    access_token: String,
    expires_in: u32,
    refresh_token: Option<String>,
}

impl Login {
    pub(super) async fn fetch(&self) -> Result<Fetched, Explained> {
        let token = self.token().await?;
        let query = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("role_name", &self.role), ("account_id", &self.account)])
            .finish();
        let request =
            http::Request::get(format!("{}/federation/credentials?{query}", self.portal.address))
                .header("x-amz-sso_bearer_token", token)
                .body(String::new().into());
        let request = request.map_err(|_| self.refused("has a token that is damaged"))?;
        let answer = self.portal.ask(request).await.map_err(|why| match why.remedy {
            Some(_) => Explained { remedy: Some(self.remedy()), ..why },
            None => why,
        })?;
        let Ok(Answer { role_credentials: given }) = serde_json::from_slice(&answer) else {
            return Err(self.portal.unreadable());
        };
        let keys = AwsCredential {
            key_id: given.access_key_id,
            secret_key: given.secret_access_key,
            token: Some(given.session_token),
        };
        let until = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(given.expiration));
        Ok(Fetched { keys, until: Some(until.ok_or_else(|| self.portal.unreadable())?) })
    }

    /// Returns the access token of the login, refreshed if it must be.
    async fn token(&self) -> Result<String, Explained> {
        let mut token = self.read()?;
        let until = text(&token, "expiresAt").and_then(time);
        let until = until.ok_or_else(|| self.refused("has a token that is damaged"))?;
        if self.session.is_some()
            && until < now() + REFRESHED_BEFORE
            && let Some(request) = self.refresh_request(&token)
        {
            match self.logins.ask(request).await.map(|body| serde_json::from_slice(&body)) {
                Ok(Ok(refreshed)) => {
                    self.keep(&mut token, refreshed);
                    return Ok(text(&token, "accessToken").unwrap_or_default().to_owned());
                }
                Ok(Err(_)) => {}
                Err(why) => tracing::warn!(%why, "the SSO login could not be refreshed"),
            }
        }
        if until <= now() {
            return Err(self.refused("has expired"));
        }
        let token = text(&token, "accessToken").map(str::to_owned);
        token.ok_or_else(|| self.refused("has a token that is damaged"))
    }

    /// The file of the token, which the AWS tools name by a hash.
    fn path(&self) -> PathBuf {
        let name = self.session.as_ref().unwrap_or(&self.start_url);
        let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, name.as_bytes());
        let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(format!("{hash}.json"))
    }

    fn read(&self) -> Result<Map<String, Value>, Explained> {
        let path = self.path();
        match fs::metadata(&path) {
            Ok(file) if file.len() > TOKEN_BYTES_MAX => {
                return Err(self.refused("has a token that is damaged"));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(self.refused("does not exist"));
            }
            _ => {}
        }
        let unreadable =
            |error| self.refused(&format!("can't be read: {}: {error}", path.display()));
        let text = fs::read(&path).map_err(unreadable)?;
        serde_json::from_slice(&text).map_err(|_| self.refused("has a token that is damaged"))
    }

    /// The request that refreshes a token. `None` if the login can't be refreshed, or no more.
    fn refresh_request(
        &self,
        token: &Map<String, Value>,
    ) -> Option<http::Request<object_store::client::HttpRequestBody>> {
        let until = time(text(token, "registrationExpiresAt")?)?;
        let body = json!({
            "grantType": "refresh_token",
            "clientId": text(token, "clientId")?,
            "clientSecret": text(token, "clientSecret")?,
            "refreshToken": text(token, "refreshToken")?,
        });
        let request = http::Request::post(format!("{}/token", self.logins.address))
            .header("content-type", "application/json")
            .body(body.to_string().into());
        request.ok().filter(|_| until > now())
    }

    /// Takes a token, and writes it back. A folder that can't be written is no fault: the next
    /// renewal refreshes again.
    fn keep(&self, token: &mut Map<String, Value>, refreshed: Refreshed) {
        let until = now() + Duration::from_secs(refreshed.expires_in.into());
        let until = chrono::DateTime::<chrono::Utc>::from(until);
        token.insert("accessToken".into(), refreshed.access_token.into());
        token.insert("expiresAt".into(), until.format("%Y-%m-%dT%H:%M:%SZ").to_string().into());
        if let Some(next) = refreshed.refresh_token {
            token.insert("refreshToken".into(), next.into());
        }
        let (path, text) = (self.path(), json!(token).to_string());
        let draft = path.with_extension(format!("larder-{}", std::process::id()));
        let mut options = OpenOptions::new();
        let written = options.write(true).create(true).truncate(true).mode(0o600).open(&draft);
        let written = written.and_then(|mut file| file.write_all(text.as_bytes()));
        if let Err(error) = written.and_then(|()| fs::rename(&draft, &path)) {
            tracing::warn!(%error, path = %path.display(), "the SSO login could not be written");
            let _ = fs::remove_file(&draft);
        }
    }

    fn refused(&self, why: &str) -> Explained {
        Explained::refusal(
            format!("the SSO login of profile {} {why}", self.profile),
            self.remedy(),
        )
    }

    fn remedy(&self) -> String {
        format!("run: aws sso login --profile {}", self.profile)
    }
}

fn text<'a>(token: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    token.get(key).and_then(Value::as_str)
}
