//! The credentials that the server accepts. They may change while it runs, as temporary ones do.

use std::sync::{Arc, Mutex, PoisonError};

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
#[derive(Clone, Debug, Default)]
pub(crate) struct Valid(Arc<Mutex<Credentials>>);

impl Valid {
    pub(crate) fn set(&self, credentials: Credentials) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = credentials;
    }

    pub(crate) fn get(&self) -> Credentials {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn secret_of(&self, access_key: &str) -> S3Result<SecretKey> {
        let valid = self.get();
        if valid.access_key == access_key {
            Ok(valid.secret_key.into())
        } else {
            Err(s3_error!(InvalidAccessKeyId, "The access key id does not exist"))
        }
    }

    fn check_token(&self, request: &S3AccessContext<'_>) -> S3Result<()> {
        if request.credentials().is_none() {
            return Err(s3_error!(AccessDenied, "Signature is required"));
        }
        let token = request.headers().get("x-amz-security-token");
        if token.map(hyper::header::HeaderValue::as_bytes)
            == self.get().session_token.as_deref().map(str::as_bytes)
        {
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
        Box::pin(async move { self.secret_of(access_key) })
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
