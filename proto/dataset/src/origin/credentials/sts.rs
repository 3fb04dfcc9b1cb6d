//! A role: the security token service gives its keys to a caller that signs, or has the token of a
//! web identity.
//!
//! Thread rule: async with tokio's I/O and time.

use std::path::PathBuf;

use object_store::{
    aws::{AwsAuthorizer, AwsCredential, AwsCredentialProvider},
    client::HttpRequest,
};

use super::{
    keys::{Fetched, time},
    services::Service,
};
use crate::origin::messages::{self, Explained};

/// A request for the keys of a role.
#[derive(Debug)]
pub(super) struct AssumeRole {
    pub(super) profile: String,
    pub(super) role: Role,
    pub(super) proof: Proof,
    pub(super) region: String,
    pub(super) service: Service,
}

/// A role, as a profile describes it.
#[derive(Debug)]
pub(super) struct Role {
    pub(super) arn: String,
    pub(super) session: String,
    pub(super) external_id: Option<String>,
    pub(super) seconds: Option<u32>,
}

/// What proves the right to a role.
#[derive(Debug)]
pub(super) enum Proof {
    Signature(AwsCredentialProvider),
    /// The path of a web identity's token.
    Token(PathBuf),
}

impl AssumeRole {
    pub(super) async fn fetch(&self) -> Result<Fetched, Explained> {
        let request = self.request().await?;
        let answer = self.service.ask(request).await.map_err(|why| self.named(why))?;
        let answer = String::from_utf8_lossy(&answer);
        let element = |name| {
            messages::element(&answer, name).map(str::to_owned).ok_or(self.service.unreadable())
        };
        let keys = AwsCredential {
            key_id: element("AccessKeyId")?,
            secret_key: element("SecretAccessKey")?,
            token: Some(element("SessionToken")?),
        };
        let until = time(&element("Expiration")?).ok_or_else(|| self.service.unreadable())?;
        Ok(Fetched { keys, until: Some(until) })
    }

    async fn request(&self) -> Result<HttpRequest, Explained> {
        let request = http::Request::post(format!("{}/", self.service.address))
            .header("content-type", "application/x-www-form-urlencoded; charset=utf-8")
            .header("accept", "text/xml")
            .body(self.form()?.into());
        let mut request = request.map_err(|error| self.refused(&error.to_string()))?;
        if let Proof::Signature(base) = &self.proof {
            let explained = |error| {
                let plain = || Explained::failure(messages::plain(&error));
                messages::cause(&error).cloned().unwrap_or_else(plain)
            };
            let base = base.get_credential().await.map_err(explained)?;
            let signer = AwsAuthorizer::new(&base, "sts", &self.region);
            signer.try_authorize(&mut request, None).map_err(explained)?;
        }
        Ok(request)
    }

    fn form(&self) -> Result<String, Explained> {
        let action = match self.proof {
            Proof::Signature(_) => "AssumeRole",
            Proof::Token(_) => "AssumeRoleWithWebIdentity",
        };
        let Role { arn, session, external_id, seconds } = &self.role;
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.extend_pairs([("Action", action), ("Version", "2011-06-15")]);
        form.extend_pairs([("RoleArn", arn), ("RoleSessionName", session)]);
        form.extend_pairs(external_id.as_ref().map(|id| ("ExternalId", id)));
        form.extend_pairs(seconds.map(|seconds| ("DurationSeconds", seconds.to_string())));
        if let Proof::Token(path) = &self.proof {
            let token = std::fs::read_to_string(path).map_err(|error| {
                self.refused(&format!("web_identity_token_file '{}': {error}", path.display()))
            })?;
            form.append_pair("WebIdentityToken", &token);
        }
        Ok(form.finish())
    }

    /// Names the profile and the role in an error of the service.
    fn named(&self, why: Explained) -> Explained {
        let Self { profile, role, .. } = self;
        Explained { why: format!("{}, for {} of profile {profile}", why.why, role.arn), ..why }
    }

    fn refused(&self, why: &str) -> Explained {
        Explained::refusal(
            format!("{why}, for {} of profile {}", self.role.arn, self.profile),
            "correct the profile".into(),
        )
    }
}
