//! Keys that are fetched, kept, and renewed before they expire.
//!
//! One request renews at a time. While the old keys are valid, the others go on with them, and a
//! renewal that fails is tried again. Keys of a file never expire by themselves: the file is read
//! again each minute, as tools write new keys into it.
//!
//! Thread rule: shared by all requests to a bucket. No lock is held across an await but the turn of
//! the renewal.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use object_store::{CredentialProvider, aws::AwsCredential};
use tokio::sync::Mutex as Turn;

use super::{
    keys::{Fetched, now},
    process::Process,
    sso::Login,
    sts::AssumeRole,
};
use crate::origin::{
    messages::Explained,
    profiles::{KeysOf, Paths, Profiles},
};

/// Keys are renewed this long before they expire, or when a quarter of their time is left.
const RENEWED_BEFORE: Duration = Duration::from_secs(300);
/// How often a file of keys is read.
const FILE_READ_EACH: Duration = Duration::from_secs(60);
/// The wait after a renewal that failed while the old keys are valid.
const RETRY_WAIT: Duration = Duration::from_secs(5);
/// How long requests share a failure, so that a crowd of them does not ask one after another.
const FAILURE_SHARED: Duration = Duration::from_secs(1);

/// Where keys come from.
#[derive(Debug)]
pub(super) enum Source {
    File(FileKeys),
    Process(Process),
    Login(Login),
    Role(Box<AssumeRole>),
}

/// Provides the keys of a source.
#[derive(Debug)]
pub(in crate::origin) struct Renewed {
    source: Source,
    state: Mutex<State>,
    turn: Turn<()>,
}

#[derive(Debug, Default)]
struct State {
    held: Option<Held>,
    failure: Option<(SystemTime, Explained)>,
}

#[derive(Debug)]
struct Held {
    keys: Arc<AwsCredential>,
    fetched_at: SystemTime,
    until: Option<SystemTime>,
    /// `None`: never.
    renew_at: Option<SystemTime>,
}

impl Held {
    fn new(fetched: Fetched, is_of_file: bool, now: SystemTime) -> Self {
        let renew_at = match fetched.until {
            Some(until) => {
                let left = until.duration_since(now).unwrap_or_default();
                Some(until - RENEWED_BEFORE.min(left / 4))
            }
            None => is_of_file.then(|| now + FILE_READ_EACH),
        };
        let (keys, until) = (Arc::new(fetched.keys), fetched.until);
        Self { keys, fetched_at: now, until, renew_at }
    }

    fn is_fresh(&self, now: SystemTime) -> bool {
        self.renew_at.is_none_or(|at| now < at)
    }

    fn is_valid(&self, now: SystemTime) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl Renewed {
    pub(super) fn new(source: Source) -> Self {
        Self { source, state: Mutex::default(), turn: Turn::default() }
    }

    /// Forgets keys that a store refused, so that the next request fetches them. A crowd of
    /// requests shares those of the last second, unless they stand in a file: it is soon read.
    pub(in crate::origin) fn forget(&self) {
        let is_of_file = matches!(self.source, Source::File(_));
        let may_be_old = |held: &Held| is_of_file || held.fetched_at + FAILURE_SHARED <= now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.held.as_ref().is_some_and(may_be_old) {
            state.held = None;
        }
    }

    async fn get(&self) -> Result<Arc<AwsCredential>, Explained> {
        if let Some(keys) = self.held(Held::is_fresh) {
            return Ok(keys);
        }
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(_) => match self.held(Held::is_valid) {
                Some(keys) => return Ok(keys),
                None => self.turn.lock().await,
            },
        };
        // Another request may have fetched them, or failed to, before this one had its turn.
        if let Some(keys) = self.held(Held::is_fresh) {
            return Ok(keys);
        }
        if let Some(failure) = self.shared_failure() {
            return Err(failure);
        }
        let fetched = self.source.fetch().await;
        self.note(fetched, now())
    }

    fn note(
        &self,
        fetched: Result<Fetched, Explained>,
        now: SystemTime,
    ) -> Result<Arc<AwsCredential>, Explained> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match fetched {
            Ok(fetched) => {
                let held = Held::new(fetched, matches!(self.source, Source::File(_)), now);
                let keys = Arc::clone(&held.keys);
                *state = State { held: Some(held), failure: None };
                Ok(keys)
            }
            Err(failure) => match state.held.as_mut().filter(|held| held.is_valid(now)) {
                Some(held) => {
                    tracing::warn!(%failure, "the keys could not be renewed yet");
                    held.renew_at = Some(now + RETRY_WAIT);
                    Ok(Arc::clone(&held.keys))
                }
                None => {
                    state.failure = Some((now, failure.clone()));
                    Err(failure)
                }
            },
        }
    }

    fn held(&self, is_usable: fn(&Held, SystemTime) -> bool) -> Option<Arc<AwsCredential>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let held = state.held.as_ref().filter(|held| is_usable(held, now()))?;
        Some(Arc::clone(&held.keys))
    }

    fn shared_failure(&self) -> Option<Explained> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, failure) = state.failure.as_ref()?;
        (now() < *at + FAILURE_SHARED).then(|| failure.clone())
    }
}

impl CredentialProvider for Renewed {
    type Credential = AwsCredential;

    fn get_credential<'s, 'f>(
        &'s self,
    ) -> Pin<Box<dyn Future<Output = object_store::Result<Arc<AwsCredential>>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let failed = |why| object_store::Error::Generic { store: "S3", source: Box::new(why) };
            self.get().await.map_err(failed)
        })
    }
}

impl Source {
    async fn fetch(&self) -> Result<Fetched, Explained> {
        let fetched = match self {
            Self::File(file) => file.fetch(),
            Self::Process(process) => process.fetch().await,
            Self::Login(login) => login.fetch().await,
            Self::Role(role) => role.fetch().await,
        }?;
        if fetched.until.is_some_and(|until| until <= now()) {
            return Err(Explained::refusal(
                format!("{self} gave keys that have expired already"),
                "check the clock of this machine, and the tool that makes the keys".into(),
            ));
        }
        let is_text = |text: &str| text.chars().all(|c| matches!(c, '!'..='~'));
        let AwsCredential { key_id, secret_key, token } = &fetched.keys;
        if [key_id, secret_key].into_iter().chain(token).all(|text| is_text(text)) {
            return Ok(fetched);
        }
        let why = format!("{self} gave keys with a character that no key has, such as a space");
        Err(Explained::refusal(why, "make the keys anew".into()))
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(file) => write!(f, "profile {}", file.profile),
            Self::Process(process) => {
                write!(f, "the credential_process of profile {}", process.profile)
            }
            Self::Login(login) => write!(f, "the SSO login of profile {}", login.profile),
            Self::Role(role) => write!(f, "the security token service, for {},", role.role.arn),
        }
    }
}

/// Keys that stand in a file.
#[derive(Debug)]
pub(super) struct FileKeys {
    pub(super) profile: String,
    pub(super) of: KeysOf,
    pub(super) paths: Paths,
}

impl FileKeys {
    fn fetch(&self) -> Result<Fetched, Explained> {
        let refused = |why| Explained::refusal(why, "correct the file".into());
        let profiles = Profiles::read(&self.paths).map_err(refused)?;
        let keys = profiles.get(&self.profile).map(|profile| profile.keys(self.of)).transpose();
        let keys = keys.map_err(refused)?.flatten().ok_or_else(|| {
            refused(format!("profile {} has no keys any more in its file", self.profile))
        })?;
        let keys = AwsCredential {
            key_id: keys.id.to_owned(),
            secret_key: keys.secret.to_owned(),
            token: keys.token.map(str::to_owned),
        };
        Ok(Fetched { keys, until: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Variables;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn at(seconds: u64) -> SystemTime {
        NOW + Duration::from_secs(seconds)
    }

    fn fetched(until: Option<SystemTime>) -> Fetched {
        let (key_id, secret_key) = ("K".to_owned(), "S".to_owned());
        Fetched { keys: AwsCredential { key_id, secret_key, token: None }, until }
    }

    #[test]
    fn keys_are_renewed_before_they_expire() {
        let renew_at = |until, is_of_file| Held::new(fetched(until), is_of_file, NOW).renew_at;
        assert_eq!(renew_at(Some(at(3600)), false), Some(at(3300)));
        assert_eq!(renew_at(Some(at(60)), false), Some(at(45)));
        assert_eq!(renew_at(None, true), Some(at(60)));
        assert_eq!(renew_at(None, false), None);
    }

    #[test]
    fn failed_renewal_keeps_keys_until_they_expire() {
        let (profile, words) = ("p".to_owned(), vec!["none".to_owned()]);
        let variables = Variables::default();
        let keys = Renewed::new(Source::Process(Process { profile, words, variables }));
        let fail = |now| keys.note(Err(Explained::failure("no".into())), now).is_err();
        assert!(fail(NOW), "there are no keys yet");
        assert!(keys.note(Ok(fetched(Some(at(60)))), NOW).is_ok());
        assert!(!fail(at(45)) && !fail(at(59)));
        assert_eq!(keys.state.lock().unwrap().held.as_ref().unwrap().renew_at, Some(at(64)));
        assert!(fail(at(60)));
    }
}
