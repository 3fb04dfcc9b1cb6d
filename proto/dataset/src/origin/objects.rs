//! Requests about whole objects: list them, read a small one, write one under a condition.

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::{GetOptions, ObjectMeta, PutMode, PutOptions, UpdateVersion};

use super::{Origin, OriginError, store_path};
use crate::{OriginUri, limits};

/// What a listing or a header says about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectInfo {
    /// The key, relative to the prefix that was listed.
    pub key: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The etag, where the store has one.
    pub etag: Option<String>,
    /// The version, where the store keeps them and says so.
    pub version: Option<String>,
}

/// On what condition an object is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Put {
    /// Only if nothing is there.
    Absent,
    /// Only over the object with this etag and version.
    Over { etag: Option<String>, version: Option<String> },
    /// In any case.
    Always,
}

impl Origin {
    /// Everything under a prefix, in the order of the keys.
    ///
    /// # Errors
    /// When the store refuses, can't be reached, or has more objects than are indexed.
    pub async fn list(&self, prefix: &OriginUri) -> Result<Vec<ObjectInfo>, OriginError> {
        let failed = |error| OriginError::from_store(prefix, &error);
        let path = store_path(prefix)?;
        let mut listing = self.store.list((!prefix.path().is_empty()).then_some(&path));
        let (mut objects, mut folder) = (Vec::new(), None);
        while let Some(meta) = listing.try_next().await.map_err(failed)? {
            if objects.len() >= limits::OBJECTS_MAX as usize {
                let limit = limits::OBJECTS_MAX.into();
                return Err(OriginError::TooMany { prefix: prefix.clone(), limit });
            }
            let key = meta.location.as_ref().strip_prefix(prefix.path()).unwrap_or_default();
            let key = key.strip_prefix('/').unwrap_or(key);
            if !key.is_empty() {
                let object = prefix.join(key).ok();
                object.map_or(Ok(()), |object| self.check_listed(&object, &mut folder))?;
                objects.push(self.info(key.to_owned(), meta));
            }
        }
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(objects)
    }

    /// What the store says about one object; its key is the last segment of its path.
    ///
    /// # Errors
    /// When there is none, the store refuses or can't be reached.
    pub async fn head(&self, object: &OriginUri) -> Result<ObjectInfo, OriginError> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        self.check_kind(object).await?;
        let result = self.store.get_opts(&store_path(object)?, options).await;
        let result = result.map_err(|error| OriginError::from_store(object, &error))?;
        self.check_opened(object, &result).await?;
        let meta = result.meta;
        let key = object.path().rsplit('/').next().unwrap_or_default();
        Ok(self.info(key.to_owned(), meta))
    }

    /// A whole object of at most `limit` bytes.
    ///
    /// # Errors
    /// When there is none, it is larger, the store refuses or can't be reached.
    pub async fn get(
        &self,
        object: &OriginUri,
        limit: u64,
    ) -> Result<(Bytes, ObjectInfo), OriginError> {
        let (bytes, info, ()) = self.get_into(object, limit, |_| Ok(())).await?;
        Ok((bytes, info))
    }

    /// The same, into memory that is asked for with `take` once the size is known.
    pub(crate) async fn get_into<T>(
        &self,
        object: &OriginUri,
        limit: u64,
        take: impl FnOnce(u64) -> Result<T, String> + Send,
    ) -> Result<(Bytes, ObjectInfo, T), OriginError> {
        let failed = |error| OriginError::from_store(object, &error);
        self.check_kind(object).await?;
        let result = self
            .store
            .get_opts(&store_path(object)?, GetOptions::default())
            .await
            .map_err(failed)?;
        self.check_opened(object, &result).await?;
        let too_large = |bytes| Err(OriginError::TooLarge { object: object.clone(), bytes, limit });
        let size = result.meta.size;
        if size > limit {
            return too_large(size);
        }
        let taken = take(size).map_err(|why| OriginError::NoRoom {
            object: object.clone(),
            bytes: size,
            why,
        })?;
        let found = self.info(String::new(), result.meta.clone());
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        let mut body = result.into_stream();
        while let Some(chunk) = body.try_next().await.map_err(failed)? {
            if (bytes.len() + chunk.len()) as u64 > size {
                return too_large((bytes.len() + chunk.len()) as u64);
            }
            bytes.extend_from_slice(&chunk);
        }
        if bytes.len() as u64 != size {
            let why = format!("{} bytes came where it has {size}", bytes.len());
            return Err(OriginError::Failed { object: object.clone(), why });
        }
        Ok((bytes.into(), found, taken))
    }

    /// Writes an object if nothing is there. Says whether it did.
    ///
    /// # Errors
    /// When the store refuses or can't be reached.
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

    fn info(&self, key: String, meta: ObjectMeta) -> ObjectInfo {
        let etag = meta.e_tag.map(|etag| self.etags.in_full(etag));
        ObjectInfo { key, size_bytes: meta.size, etag, version: meta.version }
    }

    /// Writes an object on a condition; [`OriginError::Conflict`] says that it did not hold.
    pub(crate) async fn put(
        &self,
        object: &OriginUri,
        bytes: Bytes,
        put: Put,
    ) -> Result<(), OriginError> {
        let mode = match put {
            Put::Absent => PutMode::Create,
            Put::Over { etag, version } => PutMode::Update(UpdateVersion { e_tag: etag, version }),
            Put::Always => PutMode::Overwrite,
        };
        let options = PutOptions { mode, ..PutOptions::default() };
        let (place, _folder) = self.place_of(object).await?;
        let result = self.store.put_opts(&place, bytes.into(), options).await;
        result.map(|_| ()).map_err(|error| OriginError::from_store(object, &error))
    }
}
