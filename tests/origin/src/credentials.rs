//! The credentials that the server accepts. They may change while it runs, as temporary ones do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};

use crate::{ACCESS_KEY, SECRET_KEY};

/// A key pair, and the session token that temporary credentials have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// `AWS_ACCESS_KEY_ID`.
    pub access_key: String,
    /// `AWS_SECRET_ACCESS_KEY`.
    pub secret_key: String,
    /// `AWS_SESSION_TOKEN`.
    pub session_token: Option<String>,
}

impl Default for Credentials {
    fn default() -> Self {
        let (access_key, secret_key) = (ACCESS_KEY.to_owned(), SECRET_KEY.to_owned());
        Self { access_key, secret_key, session_token: None }
    }
}

/// The credentials that are valid now. Refuses all others, as S3 does.
#[derive(Clone, Debug)]
pub(crate) struct Valid(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    accepted: Vec<Credentials>,
    /// The key of the last request that was accepted.
    last: Option<String>,
}

impl Default for Valid {
    fn default() -> Self {
        let accepted = vec![Credentials::default()];
        Self(Arc::new(Mutex::new(State { accepted, last: None })))
    }
}

impl Valid {
    pub(crate) fn set(&self, credentials: Vec<Credentials>) {
        assert!(!credentials.is_empty(), "a server accepts some key");
        self.state().accepted = credentials;
    }

    /// Returns the newest.
    pub(crate) fn get(&self) -> Credentials {
        self.state().accepted.last().expect("some").clone()
    }

    pub(crate) fn last(&self) -> Option<String> {
        self.state().last.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, access_key: &str) -> S3Result<Credentials> {
        let state = self.state();
        let known = state.accepted.iter().find(|known| known.access_key == access_key);
        known
            .cloned()
            .ok_or_else(|| s3_error!(InvalidAccessKeyId, "The access key id does not exist"))
    }

    fn check_token(&self, request: &S3AccessContext<'_>) -> S3Result<()> {
        let Some(signed) = request.credentials() else {
            return Err(s3_error!(AccessDenied, "Signature is required"));
        };
        let known = self.of(&signed.access_key)?;
        let token = request.headers().get("x-amz-security-token");
        if token.map(hyper::header::HeaderValue::as_bytes)
            == known.session_token.as_deref().map(str::as_bytes)
        {
            self.state().last = Some(known.access_key);
            Ok(())
        } else {
            Err(s3_error!(InvalidToken, "The provided token is malformed or otherwise invalid"))
        }
    }
}

impl S3Auth for Valid {
    fn get_secret_key<'a, 'b, 'f>(
        &'a self,
        access_key: &'b str,
    ) -> BoxFuture<'f, S3Result<SecretKey>>
    where
        'a: 'f,
        'b: 'f,
        Self: 'f,
    {
        Box::pin(async move { Ok(self.of(access_key)?.secret_key.into()) })
    }
}

impl S3Access for Valid {
    fn check<'a, 'b, 'c, 'f>(
        &'a self,
        request: &'b mut S3AccessContext<'c>,
    ) -> BoxFuture<'f, S3Result<()>>
    where
        'a: 'f,
        'b: 'f,
        'c: 'f,
        Self: 'f,
    {
        Box::pin(async move { self.check_token(request) })
    }
}
