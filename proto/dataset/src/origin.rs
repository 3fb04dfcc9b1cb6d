//! Access to an origin: an object store, or a folder that is treated as one.
//!
//! An [`Origin`] is one bucket, and the identities that sign requests to it (`ways`). Ordinary
//! requests (listing, headers, manifests, tags) retry for a minute by themselves.
//! [`Origin::read_exact_range`], which fills shards, makes one attempt and reports its error,
//! because the fill owns retries and their budget.
//!
//! Thread rule: cheap to clone and to share; methods are async and need tokio's I/O and time.
//! Non-goals: no caching; no writing of data, only of manifests, tags and checksum tables.

mod checked;
mod connect;
mod credentials;
mod listing;
mod local;
mod messages;
mod objects;
mod path_allowlist;
mod profiles;
mod read;
mod region;
mod settings;
mod walk;
mod ways;

use std::{fmt, panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use object_store::{GetOptions, GetResult, ObjectStore, client::HttpErrorKind, path::Path};

use crate::{OriginUri, Scheme, Variables};

pub use connect::install_crypto;
pub use credentials::target;
use local::LocalCalls;
use messages::Explained;
pub use objects::ObjectInfo;
pub(crate) use objects::{Listing, Put};
pub use path_allowlist::PathAllowlist;
pub use read::FetchError;
pub(crate) use read::Target;
use ways::{Tries, Ways};

/// Why a request to an origin failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// No usable credentials; the message says how to provide them.
    #[error("no credentials for {origin}: {why}; {remedy}")]
    Credentials {
        /// The origin to reach.
        origin: OriginUri,
        /// The credentials found and missing.
        why: String,
        /// The remedy.
        remedy: String,
    },
    /// Settings in the environment that cannot work.
    #[error("the settings for {origin} can't be used: {why}")]
    Settings {
        /// The origin to reach.
        origin: OriginUri,
        /// The setting, and the remedy.
        why: String,
    },
    /// There is no such object, or no such bucket.
    #[error("{object} was not found: {why}")]
    NotFound {
        /// The object.
        object: OriginUri,
        /// The answer of the store.
        why: String,
    },
    /// The store refuses the request.
    #[error("access to {object} was denied: {why}")]
    Denied {
        /// The object.
        object: OriginUri,
        /// The answer of the store.
        why: String,
        /// The remedy, if it is known.
        remedy: Option<&'static str>,
    },
    /// The object exists, or differs from the expected one, against a condition of the request.
    #[error("{object} was changed by another process: {why}")]
    Conflict {
        /// The object.
        object: OriginUri,
        /// The answer of the store.
        why: String,
    },
    /// The store does not know this kind of request.
    #[error("{object}: the store does not support this: {why}")]
    Unsupported {
        /// The object.
        object: OriginUri,
        /// The answer of the store.
        why: String,
    },
    /// The object is larger than the limit of its kind.
    #[error("{object} has {bytes} bytes where at most {limit} are read")]
    TooLarge {
        /// The object.
        object: OriginUri,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The reader has no memory for it.
    #[error("{object} has {bytes} bytes, for which there is no room: {why}")]
    NoRoom {
        /// The object.
        object: OriginUri,
        /// Its size.
        bytes: u64,
        /// The room there is, and the remedy.
        why: String,
    },
    /// More objects under a prefix than indexing takes.
    #[error("there are more than {limit} objects under {prefix}: index a smaller prefix")]
    TooMany {
        /// The prefix.
        prefix: OriginUri,
        /// The limit.
        limit: u64,
    },
    /// A link leads to a folder above it, or to itself, so that listing would never end.
    #[error(
        "the files under {prefix} can't be listed: {why}; remove that link, or use a folder without it"
    )]
    Loop {
        /// The prefix.
        prefix: OriginUri,
        /// The link.
        why: String,
    },
    /// The store asks for fewer requests, or serves a request so slowly that it was given up.
    #[error("the request for {object} failed: {why}")]
    Busy {
        /// The object.
        object: OriginUri,
        /// The answer of the store, or how slow it is.
        why: String,
    },
    /// This process has no file descriptor left for the request. The store was not asked.
    #[error("the request for {object} could not be made: {why}")]
    NoDescriptor {
        /// The object.
        object: OriginUri,
        /// The limit, and the remedy.
        why: String,
    },
    /// Any other failure: the network, the store, a name the store cannot have.
    #[error("the request for {object} failed: {why}")]
    Failed {
        /// The object.
        object: OriginUri,
        /// The answer of the store.
        why: String,
    },
}

impl OriginError {
    /// Returns the user's remedy, if it is known. The message does not contain it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Denied { remedy, .. } => remedy.map(str::to_owned),
            _ => None,
        }
    }
}

/// One bucket, container or file system.
#[derive(Clone, Debug)]
pub struct Origin {
    root: OriginUri,
    ways: Ways,
    etags: Etags,
    /// The folders that local files must lie in, if they are restricted.
    fence: Option<PathAllowlist>,
    /// Limits the calls to local files. Each of them goes through this.
    local: LocalCalls,
    /// Takes what scans of files read.
    keeper: Option<Arc<dyn ReadKeeper>>,
}

/// Takes bytes that scans of files read while they are indexed, so that no fill reads them again.
pub trait ReadKeeper: fmt::Debug + Send + Sync {
    /// Takes the bytes at `offset` of the version of an object that has this etag.
    fn keep(&self, object: &OriginUri, etag: &str, offset: u64, bytes: &[u8]);
}

/// How a store writes etags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Etags {
    /// In quotes, as in HTTP. The listings of Azure, and of some servers that speak S3 or GCS,
    /// leave the quotes out, but a condition must have them.
    Quoted,
    /// The same everywhere.
    AsIs,
}

impl Etags {
    /// Returns an etag as a condition needs it.
    fn in_full(self, etag: String) -> String {
        let full = self == Self::AsIs || etag.starts_with('"') || etag.starts_with("W/");
        if full { etag } else { format!("\"{etag}\"") }
    }
}

impl Origin {
    /// Returns why requests to the store wait now. `None` if it answers right, or was not asked.
    pub fn trouble(&self) -> Option<String> {
        self.ways.first().contact.trouble()
    }

    /// Returns whether an address lies in the same bucket.
    pub fn serves(&self, uri: &OriginUri) -> bool {
        uri.scheme() == self.root.scheme() && uri.bucket() == self.root.bucket()
    }

    /// Returns whether both are the same bucket.
    pub fn is_same_bucket(&self, other: &Self) -> bool {
        self.serves(&other.root)
    }

    /// Restricts it: no local file outside of `fence` is read or written, wherever links lead.
    #[must_use]
    pub fn within(self, fence: Option<PathAllowlist>) -> Self {
        Self { fence, ..self }
    }

    /// Gives what scans of files read to `keeper` as well.
    #[must_use]
    pub(crate) fn keeping(&self, keeper: Option<Arc<dyn ReadKeeper>>) -> Self {
        Self { keeper, ..self.clone() }
    }

    /// Gives bytes of a scan to the keeper. An object without an etag has no version to name.
    pub(crate) fn keep(&self, target: &Target, offset: u64, bytes: &[u8]) {
        if let (Some(keeper), Some(etag)) = (&self.keeper, &target.etag) {
            keeper.keep(&target.object, etag, offset, bytes);
        }
    }

    /// Connects to another address under the same restrictions.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub(crate) async fn reach(&self, uri: &OriginUri) -> Result<Self, OriginError> {
        if self.serves(uri) {
            return Ok(self.clone());
        }
        let variables = &self.ways.first().variables;
        Ok(Self::connect_by(uri, variables).await?.within(self.fence.clone()))
    }

    /// Returns whether requests can be made with the identity of these variables.
    pub fn has_way_by(&self, variables: &Variables) -> bool {
        self.needs_no_keys() || self.ways.by(variables).is_some()
    }

    /// Returns whether requests can be made the first way of another origin of the bucket.
    pub fn has_way_of(&self, other: &Self) -> bool {
        self.has_way_by(&other.ways.first().variables)
    }

    /// Returns the same bucket with the identity of these variables alone, if it has that way.
    pub fn only_by(&self, variables: &Variables) -> Option<Self> {
        let way = match self.needs_no_keys() {
            true => self.ways.first(),
            false => self.ways.by(variables)?,
        };
        Some(Self { ways: Ways::only(way), ..self.clone() })
    }

    /// Makes requests the first way of another origin of the bucket from now on, and the ways it
    /// had only where the store refuses that one. All clones do.
    pub fn also_by(&self, other: &Self) {
        self.ways.put_first(other.ways.first());
    }

    fn needs_no_keys(&self) -> bool {
        self.root.scheme() == Scheme::File
    }

    /// Runs a request to a store. A request for a local file takes its turn in `local`. A panic of
    /// the library is an error of this request alone.
    async fn ask<T: Send + 'static>(
        &self,
        object: &OriginUri,
        asking: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> object_store::Result<T> {
        match object.scheme() {
            Scheme::File => self.local.run_async(object, asking).await?,
            _ => AssertUnwindSafe(asking).catch_unwind().await.unwrap_or_else(|panic| {
                let why = panic.downcast_ref::<String>().map_or("no message", String::as_str);
                let why = format!("this is a fault of larder, please report it: {why}");
                let source = std::io::Error::other(why).into();
                Err(object_store::Error::Generic { store: "larder", source })
            }),
        }
    }

    /// Returns how requests are made, for users: "at AWS, region eu-west-1, signs as ... by ...".
    /// `None` if the library decides it.
    pub fn access(&self) -> Option<String> {
        self.ways.first().access.as_ref().map(ToString::to_string)
    }

    /// Returns the variables of this process by which requests take proxies and trust authorities:
    /// "HTTPS_PROXY is http://proxy:3128". None for local files.
    pub fn network(&self) -> Vec<String> {
        if self.needs_no_keys() { Vec::new() } else { messages::network() }
    }

    /// Requests an object, or its metadata, from a store. Where the store refuses the keys, tries
    /// them anew if they can be renewed, and then the other ways. `failed` converts the error of
    /// the first way.
    async fn request<E: From<OriginError>>(
        &self,
        tries: Tries,
        object: &OriginUri,
        options: GetOptions,
        failed: impl Fn(object_store::Error) -> E,
    ) -> Result<GetResult, E> {
        let mut refusal = None;
        for way in self.ways.all() {
            let mut answer = self.get_by(way.store(tries), object, &options).await?;
            if let (Err(error), Some(keys)) = (&answer, &way.keys)
                && messages::refuses_keys(error)
            {
                keys.forget();
                answer = self.get_by(way.store(tries), object, &options).await?;
            }
            match answer {
                Err(error) if messages::refuses_identity(&error) => {
                    self.ways.put_last(&way);
                    refusal = refusal.or(Some(error));
                }
                answer => return answer.map_err(failed),
            }
        }
        Err(failed(refusal.expect("there is one way at least")))
    }

    async fn get_by<E: From<OriginError>>(
        &self,
        store: &Arc<dyn ObjectStore>,
        object: &OriginUri,
        options: &GetOptions,
    ) -> Result<object_store::Result<GetResult>, E> {
        let (path, file) = self.found(object).await?;
        let (store, options) = (Arc::clone(store), options.clone());
        let get = async move {
            let result = store.get_opts(&path, options).await;
            drop(file);
            result
        };
        Ok(self.ask(object, get).await)
    }

    /// Uses any store in place of a bucket, for tests.
    #[cfg(test)]
    pub(crate) fn over(root: &OriginUri, store: Arc<dyn ObjectStore>) -> Self {
        let (strict, local) = (Arc::clone(&store), LocalCalls::of_process());
        let variables = Variables::default();
        let contact = Arc::default();
        let way = ways::Way { store, strict, contact, access: None, keys: None, variables };
        Self {
            root: root.clone(),
            ways: Ways::only(Arc::new(way)),
            etags: Etags::AsIs,
            fence: None,
            local,
            keeper: None,
        }
    }
}

/// Converts the path of an object to the type of `object_store`.
fn store_path(uri: &OriginUri) -> Result<Path, OriginError> {
    Path::parse(uri.path()).map_err(|error| OriginError::Failed {
        object: uri.clone(),
        why: format!("the store can't have this name: {error}"),
    })
}

impl OriginError {
    /// Sorts an error of the library by the remedy its caller has.
    fn from_store(object: &OriginUri, error: &object_store::Error) -> Self {
        use object_store::Error as E;
        let object = object.clone();
        if let Some(why) = messages::link_loop(error) {
            return Self::Loop { prefix: object, why };
        }
        if let Some(why) = messages::lacks_descriptor(error) {
            return Self::NoDescriptor { object, why };
        }
        if let Some(why) = messages::no_word_of_the_object(error) {
            return Self::Failed { object, why };
        }
        let why = messages::plain(error);
        if let Some(Explained { remedy: Some(remedy), .. }) = messages::cause(error) {
            return Self::Credentials { origin: object, why, remedy: remedy.clone() };
        }
        match error {
            E::NotFound { .. } => Self::NotFound { object, why },
            E::PermissionDenied { .. } | E::Unauthenticated { .. } => {
                Self::Denied { object, why, remedy: None }
            }
            E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. } => {
                Self::Conflict { object, why }
            }
            E::NotSupported { .. } | E::NotImplemented { .. } => Self::Unsupported { object, why },
            E::Generic { .. } => match messages::status(error) {
                Some(401 | 403) => Self::Denied { object, why, remedy: None },
                Some(400) if messages::refuses_token(error) => {
                    Self::Denied { object, why, remedy: None }
                }
                Some(404) => Self::NotFound { object, why },
                Some(429 | 503) => Self::Busy { object, why },
                _ if messages::transport(error) == Some(HttpErrorKind::Timeout) => {
                    Self::Busy { object, why }
                }
                // Old S3 servers answer a conditional write like this.
                Some(501) => Self::Unsupported { object, why },
                _ if is_unwritable(error) => Self::Denied { object, why, remedy: None },
                _ => Self::Failed { object, why },
            },
            other if is_unwritable(other) => Self::Denied { object, why, remedy: None },
            _ => Self::Failed { object, why },
        }
    }
}

/// Returns whether a local file system refused this read or write, so that a retry cannot help.
fn is_unwritable(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind::{NotADirectory, PermissionDenied, ReadOnlyFilesystem};
    let refuses = |kind| matches!(kind, NotADirectory | PermissionDenied | ReadOnlyFilesystem);
    messages::io_errors(error).any(|error| refuses(error.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_that_a_listing_shows_without_quotes_gets_them() {
        for (there, full) in
            [("0x8D", "\"0x8D\""), ("\"0x8D\"", "\"0x8D\""), ("W/\"a\"", "W/\"a\"")]
        {
            assert_eq!(Etags::Quoted.in_full(there.into()), full);
        }
        assert_eq!(Etags::AsIs.in_full("12-ab".into()), "12-ab");
    }
}
