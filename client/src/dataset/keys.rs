//! Samples by key: looks keys up in the key table beside the manifest.
//!
//! The table is part of a manifest of its own, under a tag that names the snapshot. So a node holds
//! it as an extent that all processes of the host map, and other clients fetch it, like any
//! manifest. A lookup makes no request.
//!
//! Thread rule: any thread. Non-goals: making the table, which indexing does.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use larder_dataset::{Key, Manifest, key_tag};

use super::{Dataset, open};
use crate::{Error, ErrorKind, progress::Reporter};

/// The manifest with the keys of a snapshot, read at the first lookup.
pub(super) type KeyManifest = ArcSwapOption<Manifest>;

impl Dataset {
    /// Reads keys that a user wrote, for [`find`](Self::find).
    ///
    /// # Errors
    /// `InvalidArgument` if the keys are integers and a text is none. Otherwise as
    /// [`find`](Self::find).
    pub fn read_keys<'a>(
        &self,
        texts: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<Key<'a>>, Error> {
        let manifest = self.key_manifest()?;
        let table = manifest.key_table().ok_or_else(|| self.no_keys())?;
        let read = |text| {
            table.read(text).ok_or_else(|| {
                let column = manifest.key_tensor().map_or("", |tensor| tensor.name());
                let what = format!("'{text}' is no key: the values of '{column}' are integers");
                Error::new(ErrorKind::InvalidArgument, what)
            })
        };
        texts.into_iter().map(read).collect()
    }

    /// Finds the samples with these keys, as they are counted in the view. `None` for a key that no
    /// sample of the view has.
    ///
    /// # Errors
    /// `NotFound` if the snapshot was indexed without keys. Otherwise as [`Dataset::open`].
    pub fn find<'a>(
        &self,
        keys: impl IntoIterator<Item = Key<'a>>,
    ) -> Result<Vec<Option<u64>>, Error> {
        let manifest = self.key_manifest()?;
        let table = manifest.key_table().ok_or_else(|| self.no_keys())?;
        let view = self.view();
        let find = |key| table.find(key).and_then(|sample| view.index_of(sample));
        Ok(keys.into_iter().map(find).collect())
    }

    /// Whether the key table is open. The first [`find`](Self::find) opens it, which takes time.
    pub fn has_keys_open(&self) -> bool {
        self.keys.load().is_some()
    }

    /// The error for keys without a sample: names the first and counts the others. `None` if all
    /// were found.
    pub fn missing<'a>(
        &self,
        keys: impl IntoIterator<Item = Key<'a>>,
        found: &[Option<u64>],
    ) -> Option<Error> {
        let missing = found.iter().filter(|found| found.is_none()).count();
        let first = keys.into_iter().zip(found).find(|(_, found)| found.is_none())?.0;
        let manifest = self.key_manifest().ok()?;
        let column = manifest.key_tensor()?.name();
        let others = match missing - 1 {
            0 => String::new(),
            others => format!(", nor for {others} more of {} keys", found.len()),
        };
        let what = format!("there is no sample whose '{column}' is {first}{others}");
        let samples = self.samples();
        let hint = format!("the dataset has {samples} samples, each with another '{column}'");
        Some(Error::new(ErrorKind::NotFound, what).hint(hint))
    }

    fn key_manifest(&self) -> Result<Arc<Manifest>, Error> {
        if let Some(manifest) = self.keys.load_full() {
            return Ok(manifest);
        }
        let name = self.name().tagged(&key_tag(self.snapshot()));
        let (cluster, silent) = (self.cluster().map(|it| &**it), Reporter::default());
        let read = open::read(&name, cluster, self.local(), &silent);
        let (open::OpenedSnapshot { manifest, .. }, _) =
            read.map_err(|error| match error.kind() {
                ErrorKind::NotFound => self.no_keys(),
                _ => error,
            })?;
        if manifest.key_of() != Some(self.snapshot()) {
            return Err(self.no_keys());
        }
        let manifest = Arc::new(manifest);
        self.keys.store(Some(Arc::clone(&manifest)));
        Ok(manifest)
    }

    fn no_keys(&self) -> Error {
        let uri = self.name().reference.uri();
        Error::new(ErrorKind::NotFound, "samples can't be found by key")
            .because(format!("snapshot {} of {uri} has no key table", self.snapshot()))
            .hint(format!(
                "index it again with the column of the keys: larder dataset index {uri} --key COLUMN"
            ))
    }
}
