//! The identity that signs requests to S3: one decision, made before the first request and shown
//! to users.
//!
//! The order is that of boto3: keys in variables, a role of the profile, web identity, the other
//! settings of the profile (`chain`), container, instance. The library decides by the same
//! variables. It passes over those that it does not know or that are incomplete, and signs as the
//! host's role. So this module refuses them.
//!
//! Thread rule: plain values; async with tokio's I/O and time. Non-goals: keys of variables, web
//! identity, containers and instances, which the library fetches and renews.

mod chain;
mod keys;
mod process;
mod renewed;
mod services;
mod sso;
mod sts;
#[cfg(test)]
mod tests;

use std::{ffi::OsString, fmt, fs, sync::Arc, time::Duration};

use super::{
    OriginError,
    profiles::{Paths, Profile, Profiles},
    settings::Settings,
};
use crate::{OriginUri, Variables};
pub(super) use chain::Library;
use chain::{Chain, Found};
pub(super) use renewed::Renewed;

/// The metadata service is one hop away and answers in milliseconds, or it does not exist.
const METADATA_TIMEOUT: Duration = Duration::from_millis(2000);
/// Profiles that an error lists.
const PROFILES_SHOWN: usize = 8;

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
enum Identity {
    Unsigned,
    Keys {
        id: String,
    },
    /// A token that a web identity provider signed.
    Web {
        role: String,
    },
    Profile {
        name: String,
        subject: Option<String>,
        way: String,
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
            Self::Profile { name, subject, way } => {
                let subject = subject.as_ref().map(|subject| format!(" as {subject}"));
                write!(f, "signs{} by profile {name} ({way})", subject.unwrap_or_default())
            }
            Self::Container { address } => {
                write!(f, "signs as the container's role by {address}")
            }
            Self::Instance { role } => write!(f, "signs as {role}, the role of this machine"),
        }
    }
}

/// How requests to S3 are made, for users.
#[derive(Debug, Clone)]
pub(super) struct Access {
    endpoint: Option<String>,
    region: Option<String>,
    identity: Identity,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoint = self.endpoint.as_deref().unwrap_or("AWS");
        let region = self.region.as_deref().unwrap_or("us-east-1 (not set)");
        write!(f, "at {endpoint}, region {region}, {}", self.identity)
    }
}

/// A decision, and the keys unless the library has them by the same variables.
pub(super) struct Decided {
    pub(super) access: Access,
    pub(super) keys: Option<Arc<Renewed>>,
}

/// Decides which of the supported ways leads to credentials. Region, endpoint and authorities that
/// the profile in use has become settings, unless variables set them.
pub(super) async fn decide(
    settings: &mut Settings,
    library: Library<'_>,
) -> Result<Decided, OriginError> {
    let paths = Paths::of(settings);
    let profiles = Profiles::read(&paths).map_err(|why| settings.refused(why))?;
    let named = settings.profile().map(str::to_owned);
    let profile = profiles.get(named.as_deref().unwrap_or("default"));
    if let (Some(named), None) = (&named, profile) {
        let why = format!("there is no profile {named} in {paths}");
        return Err(settings.no_keys(why, choose(&profiles)));
    }
    if let Some(profile) = profile {
        adopt(settings, &profiles, profile)?;
    }
    let settings = &*settings;
    let chain = Chain { settings, paths: &paths, profiles: &profiles, profile, library };
    let (identity, keys) = match by_settings(&chain)? {
        Some(decided) => decided,
        None => match instance(settings).await {
            Some(role) => (Identity::Instance { role }, None),
            None => {
                let (why, remedy) = diagnose(&chain);
                return Err(settings.no_keys(why, remedy));
            }
        },
    };
    let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
    let endpoint = endpoint.iter().find_map(|name| settings.get(name)).map(str::to_owned);
    let region = settings.region().map(str::to_owned);
    Ok(Decided { access: Access { endpoint, region, identity }, keys })
}

/// Returns the variables that decide which store an address means: all but the identity, and the
/// endpoint and the region that the profile in use names. Programs with the same target can share
/// a node.
pub fn target(variables: &Variables) -> Variables {
    let own = variables.without_identity();
    let own = own.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    Variables::of(own.chain(target_of_profile(variables)))
}

/// Returns the endpoint and the region that the profile in use names, unless variables set them.
/// Nothing if the profile can't be read: an open tells why.
fn target_of_profile(variables: &Variables) -> Vec<(OsString, OsString)> {
    let read = || {
        let any = OriginUri::parse("s3://any").ok()?;
        let mut settings = Settings::of(&any, "AWS_", variables).ok()?;
        let profiles = Profiles::read(&Paths::of(&settings)).ok()?;
        let named = settings.profile().unwrap_or("default").to_owned();
        adopt(&mut settings, &profiles, profiles.get(&named)?).ok()?;
        let targets = ["AWS_ENDPOINT_URL_S3", "AWS_REGION"];
        let is_given = |name: &&str| variables.iter().any(|(given, _)| given == *name);
        let adopted = targets.into_iter().filter(|name| !is_given(name));
        let value = |name| Some((OsString::from(name), settings.get(name)?.into()));
        Some(adopted.filter_map(value).collect())
    };
    read().unwrap_or_default()
}

/// Takes the settings of a profile that no variable sets.
fn adopt(
    settings: &mut Settings,
    profiles: &Profiles,
    profile: Profile<'_>,
) -> Result<(), OriginError> {
    let from = |key: &str| format!("{key} of profile {}", profile.name);
    if let (None, Some(region)) = (settings.region(), profile.get("region")) {
        settings.adopt("AWS_REGION", region, &from("region"))?;
    }
    if let (None, Some(path)) = (settings.get("AWS_CA_BUNDLE"), profile.get("ca_bundle")) {
        settings.adopt("AWS_CA_BUNDLE", path, &from("ca_bundle"))?;
    }
    let set = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
    if set.iter().all(|name| settings.get(name).is_none())
        && let Some(address) = profile.endpoint(profiles, "s3")
    {
        settings.adopt("AWS_ENDPOINT_URL_S3", address, &from("endpoint_url"))?;
    }
    Ok(())
}

/// An identity, and its keys unless the library has them.
type Known = (Identity, Option<Arc<Renewed>>);

/// Returns the identity that variables or the profile name, if they name one.
fn by_settings(chain: &Chain<'_>) -> Result<Option<Known>, OriginError> {
    let settings = chain.settings;
    let of_profile = |name: &str, found: Found| {
        let Found { subject, way, provider } = found;
        (Identity::Profile { name: name.to_owned(), subject, way }, Some(provider))
    };
    if settings.is_yes("AWS_SKIP_SIGNATURE") {
        return Ok(Some((Identity::Unsigned, None)));
    }
    if let Some(id) = both(settings, KEY_ID, SECRET)? {
        return Ok(Some((Identity::Keys { id: id.to_owned() }, None)));
    }
    if let Some(profile) = chain.profile.filter(Chain::is_role) {
        return Ok(Some(of_profile(profile.name, chain.role(&profile, &[])?)));
    }
    // Otherwise the variables replace values of the profile.
    let is_of_profile =
        chain.profile.is_some_and(|profile| profile.get("web_identity_token_file").is_some());
    if !is_of_profile && let Some(path) = both(settings, TOKEN_FILE, ROLE)? {
        read(settings, TOKEN_FILE, path)?;
        let role = settings.get(ROLE).unwrap_or_default().to_owned();
        return Ok(Some((Identity::Web { role }, None)));
    }
    if let Some(profile) = chain.profile
        && let Some(found) = chain.others(&profile, true)?
    {
        return Ok(Some(of_profile(profile.name, found)));
    }
    Ok(container(settings)?.map(|identity| (identity, None)))
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

/// Returns why there are no credentials, and the remedy.
fn diagnose(chain: &Chain<'_>) -> (String, String) {
    let others = "neither keys in the environment, nor a web identity, nor an instance role";
    let why = match chain.profile {
        Some(Profile { name, .. }) => {
            format!("profile {name} of {} has no keys, and there are {others}", chain.paths)
        }
        None => format!("there are {others}, and there is no profile default in {}", chain.paths),
    };
    (why, choose(chain.profiles))
}

/// Returns the remedy if a profile is missing, or has no keys.
fn choose(profiles: &Profiles) -> String {
    let names = profiles.names();
    match names.is_empty() {
        true => "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, run 'aws configure', or set \
                 AWS_SKIP_SIGNATURE=true for a public bucket"
            .to_owned(),
        false => {
            let more = if names.len() > PROFILES_SHOWN { ", ..." } else { "" };
            let names = names[..names.len().min(PROFILES_SHOWN)].join(", ");
            format!("set AWS_PROFILE to one of: {names}{more}")
        }
    }
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
