//! How a profile leads to keys: what each of its settings means, in the order of boto3.
//!
//! A role comes first, then a web identity, SSO, keys of the credentials file,
//! `credential_process`, and keys of the config file. The profile that a role names as its source
//! is read in the same order, but its own keys come before its role.
//!
//! Thread rule: plain values. Non-goals: fetching keys, which the sources of `renewed` do.

use std::{fmt::Display, path::PathBuf, sync::Arc};

use object_store::aws::AwsCredentialProvider;

use super::{
    CONTAINER, CONTAINER_PATH, CONTAINER_TOKEN, CONTAINER_TOKEN_FILE, KEY_ID, ROLE, SECRET,
    TOKEN_FILE,
    process::{self, Process},
    renewed::{FileKeys, Renewed, Source},
    services::{Kind, Service},
    sso::Login,
    sts::{AssumeRole, Proof, Role},
};
use crate::origin::{
    OriginError,
    profiles::{KeysOf, Paths, Profile, Profiles},
    settings::Settings,
};

/// The name by which a role's session is recorded, unless the profile sets one.
const SESSION: &str = "larder";
/// The command that turns a profile into variables.
const EXPORT: &str = "eval \"$(aws configure export-credentials --format env --profile";

/// A profile that leads to keys.
pub(super) struct Found {
    /// The identity that signs, if it is known without a request.
    pub(super) subject: Option<String>,
    /// How the profile leads to the keys.
    pub(super) way: String,
    pub(super) provider: Arc<Renewed>,
}

impl Found {
    fn new(subject: Option<String>, way: String, source: Source) -> Self {
        Self { subject, way, provider: Arc::new(Renewed::new(source)) }
    }
}

/// Makes the library's own provider for some variables.
pub(in crate::origin) type Library<'a> =
    &'a (dyn Fn(&Settings) -> Result<AwsCredentialProvider, OriginError> + Sync);

/// What a decision is made by.
#[derive(Clone, Copy)]
pub(super) struct Chain<'a> {
    pub(super) settings: &'a Settings,
    pub(super) paths: &'a Paths,
    pub(super) profiles: &'a Profiles,
    /// The profile in use, if one of the files has it.
    pub(super) profile: Option<Profile<'a>>,
    pub(super) library: Library<'a>,
}

impl<'a> Chain<'a> {
    /// Returns whether a profile is a role that another identity takes on.
    pub(super) fn is_role(profile: &Profile<'_>) -> bool {
        profile.get("role_arn").is_some() && profile.get("web_identity_token_file").is_none()
    }

    /// Follows a role to the profile or the service that it names as its source.
    pub(super) fn role(&self, profile: &Profile<'a>, seen: &[&str]) -> Result<Found, OriginError> {
        let name = profile.name;
        if profile.get("mfa_serial").is_some() {
            return Err(self.settings.no_keys(
                format!("profile {name} has an mfa_serial, and this program asks for no codes"),
                format!("run: {EXPORT} {name})\""),
            ));
        }
        let (way, base) = match (profile.get("source_profile"), profile.get("credential_source")) {
            (Some(source), None) => {
                let base = self.source(profile, source, &[seen, &[name]].concat())?;
                let provider: AwsCredentialProvider = base.provider;
                (format!("source_profile {source}: {}", base.way), provider)
            }
            (None, Some(source)) => {
                (format!("credential_source {source}"), self.named(profile, source)?)
            }
            (Some(_), Some(_)) => {
                return Err(self.wrong(profile, "has both source_profile and credential_source"));
            }
            (None, None) => {
                let why = "has a role_arn, but neither source_profile nor credential_source";
                return Err(self.wrong(profile, why));
            }
        };
        let role = self.role_of(profile, false)?;
        self.assume(profile, role, Proof::Signature(base), way)
    }

    /// Follows all other settings of a profile.
    pub(super) fn others(
        &self,
        profile: &Profile<'a>,
        with_variables: bool,
    ) -> Result<Option<Found>, OriginError> {
        let variable = |name| self.settings.get(name).filter(|_| with_variables);
        let token = variable(TOKEN_FILE).or_else(|| profile.get("web_identity_token_file"));
        if let Some(token) = token {
            let role = self.role_of(profile, with_variables)?;
            let proof = Proof::Token(PathBuf::from(token));
            return self.assume(profile, role, proof, "web identity".into()).map(Some);
        }
        if ["sso_account_id", "sso_role_name"].iter().any(|key| profile.get(key).is_some()) {
            return self.login(profile).map(Some);
        }
        if let Some(found) = self.keys(profile, KeysOf::Credentials)? {
            return Ok(Some(found));
        }
        if profile.get("login_session").is_some() {
            return Err(self.settings.no_keys(
                format!("profile {} is one of 'aws login', which is not read", profile.name),
                format!("run: {EXPORT} {})\"", profile.name),
            ));
        }
        if let Some(line) = profile.get("credential_process") {
            let words = process::split(line).filter(|words| !words.is_empty());
            let words = words.ok_or_else(|| {
                self.wrong(
                    profile,
                    "has a credential_process that is empty, or a quote in it does not end",
                )
            })?;
            let way = format!("credential_process {}", words[0]);
            let variables = self.settings.variables().clone();
            let process = Process { profile: profile.name.to_owned(), words, variables };
            return Ok(Some(Found::new(None, way, Source::Process(process))));
        }
        self.keys(profile, KeysOf::Config)
    }

    /// Follows the source of a role.
    fn source(
        &self,
        profile: &Profile<'a>,
        source: &'a str,
        seen: &[&str],
    ) -> Result<Found, OriginError> {
        let Some(base) = self.profiles.get(source) else {
            return Err(self.wrong(
                profile,
                format!("names the source_profile {source}, which does not exist"),
            ));
        };
        let has_keys = ["aws_access_key_id", "aws_secret_access_key"]
            .iter()
            .any(|key| base.get(key).is_some());
        if seen.contains(&source) && !(source == profile.name && has_keys) {
            let round = [seen, &[source]].concat().join(" > ");
            return Err(self.wrong(profile, format!("has itself as its source: {round}")));
        }
        let found = match Self::is_role(&base) && !has_keys {
            true => Some(self.role(&base, seen)?),
            false => self.others(&base, false)?,
        };
        found.ok_or_else(|| {
            self.wrong(&base, format!("is the source of {}, and has no keys", profile.name))
        })
    }

    /// Returns the keys of a service that a profile names as its source.
    fn named(
        &self,
        profile: &Profile<'_>,
        source: &str,
    ) -> Result<AwsCredentialProvider, OriginError> {
        let keys = [KEY_ID, SECRET, "AWS_SESSION_TOKEN", TOKEN_FILE, ROLE];
        let container = [CONTAINER, CONTAINER_PATH, CONTAINER_TOKEN, CONTAINER_TOKEN_FILE];
        let dropped = match source {
            "EcsContainer"
                if container[..2].iter().any(|name| self.settings.get(name).is_some()) =>
            {
                keys.to_vec()
            }
            "Ec2InstanceMetadata" => [&keys[..], &container].concat(),
            "Environment" | "EcsContainer" => {
                let why =
                    format!("has the credential_source {source}, whose variables are not set");
                return Err(self.wrong(profile, why));
            }
            _ => {
                let why = format!(
                    "has the credential_source {source}, which does not exist: use \
                     Environment, EcsContainer or Ec2InstanceMetadata"
                );
                return Err(self.wrong(profile, why));
            }
        };
        (self.library)(&self.settings.without(&dropped))
    }

    fn role_of(&self, profile: &Profile<'_>, with_variables: bool) -> Result<Role, OriginError> {
        let variable = |name| self.settings.get(name).filter(|_| with_variables);
        let Some(arn) = variable(ROLE).or_else(|| profile.get("role_arn")) else {
            return Err(self.wrong(profile, "has a web_identity_token_file, but no role_arn"));
        };
        let session =
            variable("AWS_ROLE_SESSION_NAME").or_else(|| profile.get("role_session_name"));
        let seconds = profile.get("duration_seconds").map(|text| {
            text.parse().map_err(|_| self.wrong(profile, "has duration_seconds that are no number"))
        });
        Ok(Role {
            arn: arn.to_owned(),
            session: session.unwrap_or(SESSION).to_owned(),
            external_id: profile.get("external_id").map(str::to_owned),
            seconds: seconds.transpose()?,
        })
    }

    fn assume(
        &self,
        profile: &Profile<'_>,
        role: Role,
        proof: Proof,
        way: String,
    ) -> Result<Found, OriginError> {
        let region = self.settings.region().unwrap_or("us-east-1").to_owned();
        let service = self.service(Kind::Tokens, &region)?;
        let (profile, arn) = (profile.name.to_owned(), role.arn.clone());
        let source = AssumeRole { profile, role, proof, region, service };
        Ok(Found::new(Some(arn), way, Source::Role(Box::new(source))))
    }

    fn login(&self, profile: &Profile<'_>) -> Result<Found, OriginError> {
        let session = profile.get("sso_session");
        if let Some(session) = session.filter(|name| !self.profiles.has_session(name)) {
            let why = format!("names the sso_session {session}, which does not exist");
            return Err(self.wrong(profile, why));
        }
        let value = |key| {
            let of_session = session.and_then(|name| self.profiles.session(name, key));
            let value = of_session.or_else(|| profile.get(key));
            value.ok_or_else(|| self.wrong(profile, format!("is one of SSO, but has no {key}")))
        };
        let (account, role) = (value("sso_account_id")?, value("sso_role_name")?);
        let (start_url, region) = (value("sso_start_url")?, value("sso_region")?);
        let subject = format!("{role} of account {account}");
        let Some(folder) = &self.paths.logins else {
            return Err(self.wrong(profile, "is one of SSO, and HOME is not set"));
        };
        let login = Login {
            profile: profile.name.to_owned(),
            session: session.map(str::to_owned),
            start_url: start_url.to_owned(),
            account: account.to_owned(),
            role: role.to_owned(),
            folder: folder.clone(),
            portal: self.service(Kind::Portal, region)?,
            logins: self.service(Kind::Logins, region)?,
        };
        Ok(Found::new(Some(subject), "SSO".into(), Source::Login(login)))
    }

    fn keys(&self, profile: &Profile<'_>, of: KeysOf) -> Result<Option<Found>, OriginError> {
        let keys = profile.keys(of).map_err(|why| self.settings.refused(why))?;
        Ok(keys.map(|keys| {
            let way = format!("keys of {}", keys.file.display());
            let (subject, profile) = (Some(keys.id.to_owned()), profile.name.to_owned());
            let source = FileKeys { profile, of, paths: self.paths.clone() };
            Found::new(subject, way, Source::File(source))
        }))
    }

    fn service(&self, kind: Kind, region: &str) -> Result<Service, OriginError> {
        let profile = self.profile.map(|profile| (self.profiles, profile));
        Service::new(kind, region, self.settings, profile)
    }

    fn wrong(&self, profile: &Profile<'_>, why: impl Display) -> OriginError {
        self.settings.refused(format!("profile {} {why}", profile.name))
    }
}
