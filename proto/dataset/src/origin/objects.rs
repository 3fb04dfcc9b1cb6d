//! Requests about whole objects: lists them, reads a small one, writes one under a condition,
//! deletes one.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use larder_base::limits;
use object_store::{
    GetOptions, GetResultPayload, ObjectMeta, ObjectStoreExt, PutMode, PutOptions, UpdateVersion,
};
use tokio::time;

use super::{
    Origin, OriginError,
    connect::{RETRY_TIMEOUT, RETRY_WAIT_MAX},
    listing::marked_name,
    messages, store_path,
    ways::Tries,
};
use crate::{OriginUri, Scheme};

/// Objects of a listing processed together: as many as the library looks at in one call.
const LISTED_TOGETHER: usize = 1024;

/// Timeout for the next page of a listing, with all its retries.
const PAGE_TIMEOUT: Duration = Duration::from_secs(300);

/// The wait before a write is repeated. It doubles each time.
const PUT_WAIT_MIN: Duration = Duration::from_millis(100);

/// The metadata of an object in a listing or a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectInfo {
    /// The key, relative to the listed prefix.
    pub key: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The etag, if the store has one.
    pub etag: Option<String>,
    /// The version, if the store keeps versions and names them.
    pub version: Option<String>,
}

/// The objects under a prefix.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// In the order of the keys.
    pub(crate) objects: Vec<ObjectInfo>,
    /// Names that no request can have, so that the objects can't be read.
    pub(crate) unreadable: Vec<String>,
}

/// The condition for writing an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Put {
    /// Only if the object does not exist.
    Absent,
    /// Only over the object with this etag and version.
    Over { etag: Option<String>, version: Option<String> },
    /// In any case.
    Always,
}

impl Origin {
    /// Lists everything under a prefix, in the order of the keys.
    ///
    /// # Errors
    /// If the store refuses, cannot be reached, or has more objects than are indexed.
    pub async fn list(&self, prefix: &OriginUri) -> Result<Vec<ObjectInfo>, OriginError> {
        Ok(self.list_all(prefix, limits::OBJECTS_MAX).await?.objects)
    }

    /// As [`list`](Self::list), for at most this many objects, with the names that can't be read.
    pub(crate) async fn list_all(
        &self,
        prefix: &OriginUri,
        objects_max: u32,
    ) -> Result<Listing, OriginError> {
        let path = store_path(prefix)?;
        let pages = self.ways.first().store.list((!prefix.path().is_empty()).then_some(&path));
        let mut pages = pages.ready_chunks(LISTED_TOGETHER);
        let (mut listing, mut folder) = (Listing::default(), None);
        loop {
            let next = async move { Ok((pages.next().await, pages)) };
            let next = time::timeout(PAGE_TIMEOUT, self.ask(prefix, next)).await;
            let next = next.map_err(|_| OriginError::Failed {
                object: prefix.clone(),
                why: format!("no page of the listing came for {} s", PAGE_TIMEOUT.as_secs()),
            })?;
            let (page, rest) = next.map_err(failed(prefix))?;
            let Some(page) = page else { break };
            let page = match page.into_iter().collect::<object_store::Result<Vec<_>>>() {
                Ok(found) => self.listed(prefix, found),
                Err(object_store::Error::InvalidPath { .. }) if prefix.scheme() == Scheme::File => {
                    listing = self.walk(prefix, objects_max).await?;
                    let objects = listing.objects.iter();
                    let named = objects.filter_map(|info| prefix.join(&info.key).ok()).collect();
                    self.check_listed(prefix, named, None).await?;
                    break;
                }
                Err(error) => return Err(failed(prefix)(error)),
            };
            let known = listing.objects.len() + listing.unreadable.len();
            if known + page.objects.len() > objects_max as usize {
                let limit = objects_max.into();
                return Err(OriginError::TooMany { prefix: prefix.clone(), limit });
            }
            let objects = page.objects.iter();
            let named = objects.filter_map(|info| prefix.join(&info.key).ok()).collect();
            folder = self.check_listed(prefix, named, folder).await?;
            listing.objects.extend(page.objects);
            listing.unreadable.extend(page.unreadable);
            pages = rest;
        }
        listing.objects.sort_by(|a, b| a.key.cmp(&b.key));
        let twice = listing.objects.windows(2).find(|pair| pair[0].key == pair[1].key);
        if let Some([object, _]) = twice {
            let why = format!(
                "the store lists {} twice: it, or a proxy before it, is faulty",
                object.key
            );
            return Err(OriginError::Failed { object: prefix.clone(), why });
        }
        Ok(listing)
    }

    /// Makes one request for the first keys under a prefix, to learn whether its bucket answers.
    ///
    /// # Errors
    /// If the store refuses or cannot be reached.
    pub async fn probe(&self, prefix: &OriginUri) -> Result<(), OriginError> {
        let path = store_path(prefix)?;
        let mut listing =
            self.ways.first().strict.list((!prefix.path().is_empty()).then_some(&path));
        let first = async move { listing.next().await.transpose().map(drop) };
        self.ask(prefix, first).await.map_err(failed(prefix))
    }

    /// Converts a page of a listing to keys relative to `prefix`.
    fn listed(&self, prefix: &OriginUri, found: Vec<ObjectMeta>) -> Listing {
        let mut page = Listing::default();
        for meta in found {
            let key = meta.location.as_ref().strip_prefix(prefix.path()).unwrap_or_default();
            let key = key.strip_prefix('/').unwrap_or(key).to_owned();
            match marked_name(&key) {
                Some(name) => page.unreadable.push(name),
                None if key.is_empty() => {}
                None => page.objects.push(self.info(key, meta)),
            }
        }
        page
    }

    /// Reads the metadata of one object; its key is the last segment of its path.
    ///
    /// # Errors
    /// If there is none, or the store refuses or cannot be reached.
    pub async fn head(&self, object: &OriginUri) -> Result<ObjectInfo, OriginError> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        let meta = self.request(Tries::ForAMinute, object, options, failed(object)).await?.meta;
        let key = object.path().rsplit('/').next().unwrap_or_default();
        Ok(self.info(key.to_owned(), meta))
    }

    /// Reads a whole object of at most `limit` bytes.
    ///
    /// # Errors
    /// If there is none, it is larger, or the store refuses or cannot be reached.
    pub async fn get(
        &self,
        object: &OriginUri,
        limit: u64,
    ) -> Result<(Bytes, ObjectInfo), OriginError> {
        let (bytes, info, ()) = self.get_into(object, limit, |_| Ok(())).await?;
        Ok((bytes, info))
    }

    /// Reads as [`get`](Self::get), after `take` has granted memory for the object's size.
    pub(crate) async fn get_into<T>(
        &self,
        object: &OriginUri,
        limit: u64,
        take: impl FnOnce(u64) -> Result<T, String> + Send,
    ) -> Result<(Bytes, ObjectInfo, T), OriginError> {
        let options = GetOptions::default();
        let result = self.request(Tries::ForAMinute, object, options, failed(object)).await?;
        let too_large = |bytes| OriginError::TooLarge { object: object.clone(), bytes, limit };
        let size = result.meta.size;
        if size > limit {
            return Err(too_large(size));
        }
        let taken = take(size).map_err(|why| OriginError::NoRoom {
            object: object.clone(),
            bytes: size,
            why,
        })?;
        let found = self.info(String::new(), result.meta.clone());
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        let mut take = |chunk: &[u8]| {
            if (bytes.len() + chunk.len()) as u64 > size {
                return Err(too_large((bytes.len() + chunk.len()) as u64));
            }
            bytes.extend_from_slice(chunk);
            Ok(())
        };
        match result.payload {
            GetResultPayload::File(file, _) => {
                self.read_file(object, file, 0..size, &mut take).await?;
            }
            GetResultPayload::Stream(mut body) => {
                while let Some(chunk) = body.try_next().await.map_err(failed(object))? {
                    take(&chunk)?;
                }
            }
        }
        if bytes.len() as u64 != size {
            let why = format!("{} bytes came where it has {size}", bytes.len());
            return Err(OriginError::Failed { object: object.clone(), why });
        }
        Ok((bytes.into(), found, taken))
    }

    /// Writes an object if it does not exist. Returns whether it did.
    ///
    /// # Errors
    /// If the store refuses or cannot be reached.
    pub async fn put_if_absent(
        &self,
        object: &OriginUri,
        bytes: Bytes,
    ) -> Result<bool, OriginError> {
        match self.put(object, bytes, Put::Absent).await {
            Ok(()) => Ok(true),
            Err(OriginError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object. It need not exist.
    ///
    /// # Errors
    /// If the store refuses or cannot be reached.
    pub async fn delete(&self, object: &OriginUri) -> Result<(), OriginError> {
        let (place, folder) = self.place_of(object).await?;
        let store = Arc::clone(&self.ways.first().store);
        let delete = async move {
            let result = store.delete(&place).await;
            drop(folder);
            result
        };
        match self.ask(object, delete).await.map_err(failed(object)) {
            Err(OriginError::NotFound { .. }) => Ok(()),
            done => done,
        }
    }

    fn info(&self, key: String, meta: ObjectMeta) -> ObjectInfo {
        let etag = meta.e_tag.map(|etag| self.etags.in_full(etag));
        ObjectInfo { key, size_bytes: meta.size, etag, version: meta.version }
    }

    /// Writes an object under a condition. [`OriginError::Conflict`] means that it did not hold, or
    /// that an earlier try was done whose answer was lost: the library does not repeat a write
    /// itself.
    ///
    /// Some stores answer 400 to a condition, since they do not know its header. That counts as
    /// [`OriginError::Unsupported`]: if the reason is another, a write without one fails too.
    pub(crate) async fn put(
        &self,
        object: &OriginUri,
        bytes: Bytes,
        put: Put,
    ) -> Result<(), OriginError> {
        let is_conditional = put != Put::Always;
        let mode = match put {
            Put::Absent => PutMode::Create,
            Put::Over { etag, version } => PutMode::Update(UpdateVersion { e_tag: etag, version }),
            Put::Always => PutMode::Overwrite,
        };
        let options = PutOptions { mode, ..PutOptions::default() };
        let (begun, mut wait) = (time::Instant::now(), PUT_WAIT_MIN);
        let done = loop {
            let (place, folder) = self.place_of(object).await?;
            let store = Arc::clone(&self.ways.first().store);
            let (bytes, options) = (bytes.clone(), options.clone());
            let put = async move {
                let result = store.put_opts(&place, bytes.into(), options).await;
                drop(folder);
                result.map(|_| ())
            };
            match self.ask(object, put).await {
                Err(error) if messages::is_broken(&error) && begun.elapsed() < RETRY_TIMEOUT => {
                    time::sleep(wait).await;
                    wait = RETRY_WAIT_MAX.min(wait * 2);
                }
                done => break done,
            }
        };
        done.map_err(|error| {
            let is_refused = messages::status(&error) == Some(400)
                && !messages::refuses_token(&error)
                && is_conditional;
            match is_refused {
                true => OriginError::Unsupported {
                    object: object.clone(),
                    why: messages::plain(&error),
                },
                false => failed(object)(error),
            }
        })
    }
}

fn failed(object: &OriginUri) -> impl Fn(object_store::Error) -> OriginError {
    move |error| OriginError::from_store(object, &error)
}
