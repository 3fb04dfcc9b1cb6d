//! Indexes a dataset: reads the files under a prefix and writes a manifest beside them.
//!
//! It lists the prefix, reads the headers of files of known kinds by ranged requests, and finds the
//! tensors that make up the samples. Then it cuts shards, writes the manifest and points a tag to
//! it. Everything is checked before anything is published. Each object left out is listed with the
//! reason.
//!
//! Non-goals: converting data. It reads data only where that says which rows there are (offsets,
//! lines, small members of tars), or for checksums, keys and windows over documents.

mod added;
mod checksum;
mod formats;
mod group;
mod headers;
mod keys;
mod left_out;
mod npy;
mod publish;
mod ragged;
mod safetensors;
mod selection;
mod tokens;
mod windows;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    mem, slice,
};

use crate::home::{WriteHome, is_key_tag, key_tag};
use crate::{
    DatasetError, Dtype, FetchError, ManifestBuilder, ManifestLocation, ObjectInfo, Origin,
    OriginError, OriginUri, Snapshot, WritePolicy, checksums::TableWriter, origin::Target,
    uri::check_tag,
};
pub use added::{added_warning, count_added};
pub use checksum::shard_checksum;
pub(crate) use formats::format_of;
pub use formats::{Format, Missing, PlannedReads};
use group::IndexPlan;
use larder_base::{Bytes, limits};
use larder_formats::shown;
use left_out::LeftOuts;
pub use left_out::{Bad, LeftOut, LeftOutGroup, columns_left_out, left_out_by_reason};
pub(crate) use publish::read_tag;
use selection::{Include, Selection};
pub use selection::{ListedFiles, Verdict, index_warnings, verdicts};
pub use windows::WindowSpec;

/// Smallest shard size an operator can choose: a shard costs its holder a file and a map.
const SHARD_BYTES_MIN: u64 = 4096;

/// Default shard size: large enough for few requests, small enough to place evenly.
const SHARD_BYTES_DEFAULT: u64 = 64 << 20;

/// The options of indexing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexOptions {
    /// The target size of shards, in bytes: 4 KiB to 1 GiB.
    pub shard_bytes: u64,
    /// Take only files whose key under the prefix matches one of these patterns: `*` and `?` stand
    /// for characters of one segment, `**/` for any folders, `[0-9]` for one of a range, and
    /// `{000..146}` or `{a,b}` for several names. Empty for all files. The metadata of the manifest
    /// notes them as `include`.
    pub include: Vec<String>,
    /// The format of the files.
    pub format: Format,
    /// Whether each `.npy` file is one sample. Otherwise its first dimension counts samples.
    pub file_samples: bool,
    /// The columns that its shards hold. `None` is all of them. Not for `.safetensors` and `.npy`.
    pub columns: Option<Vec<String>>,
    /// The treatment of samples that lack a column.
    pub missing: Missing,
    /// The treatment of damaged files. The metadata of the manifest notes those that are left out
    /// as `damaged`.
    pub bad: Bad,
    /// Take `.bin` and one-dimensional `.npy` files as streams of tokens, and no other files.
    pub tokens: Option<TokenSpec>,
    /// Make each sample a window over the documents in a ragged column of integers.
    pub windows: Option<WindowSpec>,
    /// Read all data once and pin a checksum of each shard.
    pub checksum: bool,
    /// The folder of manifest and tags, in place of `<prefix>/.larder`.
    pub manifest: Option<OriginUri>,
    /// Whether it may write beside the data. `None`: as `LARDER_WRITE` says for this process.
    pub write: Option<WritePolicy>,
    /// The tag to point to the snapshot, `latest` if none is given.
    pub tag: Option<String>,
    /// The column by whose values samples can be found. Each is unique: an integer, or a text of at
    /// most 1,024 bytes. The column is read once.
    pub key: Option<String>,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            shard_bytes: SHARD_BYTES_DEFAULT,
            include: Vec::new(),
            format: Format::Auto,
            file_samples: false,
            columns: None,
            missing: Missing::Error,
            bad: Bad::Error,
            tokens: None,
            windows: None,
            checksum: false,
            manifest: None,
            write: None,
            tag: None,
            key: None,
        }
    }
}

impl IndexOptions {
    fn include(&self) -> Result<Option<Include>, DatasetError> {
        if self.include.is_empty() { Ok(None) } else { Include::parse(&self.include).map(Some) }
    }

    fn home(&self, prefix: &OriginUri) -> Result<WriteHome, DatasetError> {
        let policy = self.write.map_or_else(WritePolicy::of_process, Ok);
        let option = WritePolicy::VARIABLE;
        let policy = policy.map_err(|why| DatasetError::Option { option, why })?;
        WriteHome::of(prefix, self.manifest.as_ref(), policy)
    }
}

/// How a stream of tokens becomes samples: each sample is a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenSpec {
    /// The type of a token.
    pub dtype: Dtype,
    /// Tokens in a sample.
    pub window: u64,
    /// Tokens from the beginning of one sample to that of the next.
    pub stride: u64,
    /// Bytes before the first token of a `.bin` file. `None`: those of a known header, if the file
    /// begins with one.
    pub offset: Option<u64>,
}

/// The progress of indexing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexProgress {
    /// The prefix was listed.
    Listed {
        /// Objects found.
        objects: u64,
    },
    /// Headers are being read.
    Headers {
        /// Headers read.
        done: u64,
        /// Headers to read.
        total: u64,
    },
    /// Offsets of ragged rows are being read.
    Offsets {
        /// Bytes read.
        done: u64,
        /// Bytes to read.
        total: u64,
    },
    /// Data is being read for checksums.
    Checksums {
        /// Bytes read.
        done: u64,
        /// Bytes to read.
        total: u64,
    },
    /// The column of keys is being read.
    Keys {
        /// Samples read.
        done: u64,
        /// Samples to read.
        total: u64,
    },
    /// Manifest and tag are being written.
    Publishing,
}

/// The result of indexing.
#[derive(Debug, Clone)]
pub struct Indexed {
    /// The manifest, with its leaves.
    pub snapshot: Snapshot,
    /// The place where it was written.
    pub location: ManifestLocation,
    /// Objects and tensors left out, in the order of the keys.
    pub left_out: Vec<LeftOut>,
}

/// A progress callback; called from the task that indexes.
pub(crate) type Progress<'a> = &'a (dyn Fn(IndexProgress) + Send + Sync);

/// Indexes the files under `uri` and publishes the manifest.
///
/// * `.safetensors` files: the samples' tensors are those with the most common leading dimension,
///   counted by bytes in each file. Files are concatenated in the order of their keys.
/// * `.npy` files: `image.npy` beside `label.npy` are tensors of the same samples. Files that
///   differ only in a trailing number are concatenated.
/// * In both, `x` beside `x.offsets` is one tensor with rows of any length.
/// * WebDataset tars, MDS shards, Parquet, Arrow files, JSON lines and folders of pictures: see
///   [`Format`].
/// * With [`IndexOptions::tokens`] a sample is a window over a file. Tokens after the last whole
///   window of a file are in no sample. Shards never join files then, because windows overlap or
///   leave gaps.
///
/// # Errors
/// If a file is damaged or hostile: one error that names the object and the field. If two files
/// disagree: the two files. Otherwise the origin's refusal. Nothing is published then.
pub async fn index(
    origin: &Origin,
    uri: &OriginUri,
    options: &IndexOptions,
    progress: Progress<'_>,
) -> Result<Indexed, DatasetError> {
    let listed = Box::pin(ListedFiles::list(origin, uri, options, progress)).await?;
    Box::pin(index_listed(origin, uri, listed, options, progress)).await
}

/// Indexes files that were listed by these options. See [`index`].
///
/// # Errors
/// As [`index`].
pub async fn index_listed(
    origin: &Origin,
    uri: &OriginUri,
    ListedFiles(mut selection): ListedFiles,
    options: &IndexOptions,
    progress: Progress<'_>,
) -> Result<Indexed, DatasetError> {
    let tag = options.tag.as_deref().unwrap_or(crate::DatasetRef::TAG_DEFAULT);
    let (include, home) = (options.include()?, options.home(uri)?);
    selection.left_out.treat(options.bad);
    let (mut plan, mut metadata) =
        Box::pin(plan(origin, uri, &mut selection, options, progress)).await?;
    if let Some(spec) = &options.windows {
        let windows = windows::plan(origin, uri, plan, spec, &mut selection.left_out, progress);
        plan = Box::pin(windows).await?;
    }
    if let Some(include) = include {
        metadata = include.noted_in(&metadata);
    }
    metadata = selection.left_out.noted_in(metadata);
    let has = |name: &str| plan.tensors.iter().any(|tensor| tensor.name == name);
    metadata = selection.left_out.columns_noted_in(metadata, has);
    let mut left_out = selection.left_out.into_parts();
    let plan = readable_versions(origin, uri, plan).await?;
    left_out.sort();

    let builder = ManifestBuilder::new(uri.clone(), plan.tensors, options.shard_bytes);
    let mut builder = builder.with_metadata(metadata);
    plan.groups.into_iter().for_each(|group| builder.push(group));
    let build = |source| DatasetError::Build { prefix: uri.clone(), source };
    let mut snapshot = builder.build().map_err(build)?;
    drop(builder);
    if options.checksum {
        let mut tables = Box::pin(TableWriter::new(origin, &snapshot, &home)).await?;
        let sums = Box::pin(checksum::all(origin, &snapshot, &mut tables, progress)).await?;
        drop(tables);
        snapshot = snapshot.with_checksums(&sums).map_err(build)?;
    }
    let keys = match &options.key {
        Some(column) => Some(Box::pin(keys::table(origin, &snapshot, column, progress)).await?),
        None => None,
    };
    progress(IndexProgress::Publishing);
    let publish =
        |manifest, leaves, tag| Box::pin(publish::publish(origin, manifest, leaves, &home, tag));
    // Before the tag, so that a process that opens it finds them. They share the leaves.
    let keys_tag = key_tag(snapshot.manifest.snapshot());
    if let Some(keys) = &keys {
        publish(keys, &[], &keys_tag).await?;
    }
    let location = publish(&snapshot.manifest, &snapshot.leaves, tag).await?;
    Ok(Indexed { snapshot, location, left_out })
}

fn check_options(options: &IndexOptions) -> Result<(), DatasetError> {
    let refused = |option, why: String| Err(DatasetError::Option { option, why });
    let allowed = SHARD_BYTES_MIN..=limits::SHARD_BYTES_MAX;
    if !allowed.contains(&options.shard_bytes) {
        let [low, high, found] = [*allowed.start(), *allowed.end(), options.shard_bytes].map(Bytes);
        return refused("shard size", format!("{found} is not between {low} and {high}"));
    }
    if let Some(Err(why)) = options.tag.as_deref().map(check_tag) {
        return refused("tag", why.into());
    }
    if let Some(tag) = options.tag.as_deref().filter(|tag| is_key_tag(tag)) {
        return refused("tag", format!("'{tag}' is a name for Larder's own use"));
    }
    if options.windows.is_some() && (options.tokens.is_some() || options.columns.is_some()) {
        let why = "it names the documents, and goes with neither the type of tokens nor columns";
        return refused("column", why.into());
    }
    if let Some(spec) = &options.tokens {
        if spec.window == 0 || spec.stride == 0 {
            return refused("tokens", "window and stride are at least 1".into());
        }
        let bytes = spec.window.max(spec.stride).checked_mul(spec.dtype.size_bytes());
        if bytes.is_none_or(|bytes| bytes > limits::SAMPLE_BYTES_MAX) {
            let limit = limits::SAMPLE_BYTES_MAX;
            return refused("tokens", format!("window and stride may have at most {limit} bytes"));
        }
    }
    Ok(())
}

/// Plans a dataset of the selected files. Also returns a JSON document about its columns.
async fn plan(
    origin: &Origin,
    uri: &OriginUri,
    selection: &mut Selection,
    options: &IndexOptions,
    progress: Progress<'_>,
) -> Result<(IndexPlan, String), DatasetError> {
    let (data, notes) = (mem::take(&mut selection.data), mem::take(&mut selection.notes));
    let left_out = &mut selection.left_out;
    if let Some(spec) = &options.tokens {
        let plan = tokens::plan(origin, uri, data, spec, left_out, progress);
        return Ok((Box::pin(plan).await?, String::new()));
    }
    if selection.format != Format::Tensors {
        let documents = options.windows.as_ref().map(|windows| slice::from_ref(&windows.column));
        let wanted = formats::WantedSamples {
            format: selection.format,
            columns: documents.or(options.columns.as_deref()),
            missing: options.missing,
            arrays: options.file_samples,
        };
        let planned = formats::plan(origin, uri, data, notes, &wanted, left_out, progress);
        return match Box::pin(planned).await? {
            (plan, _) if plan.groups.is_empty() => Err(none_usable(uri, left_out)),
            planned => Ok(planned),
        };
    }
    if options.columns.is_some() {
        let why = "it chooses columns of tar, mds, parquet, arrow, jsonl and folder datasets, not tensors";
        return Err(DatasetError::Option { option: "columns", why: why.into() });
    }
    let plan = Box::pin(tensor_plan(origin, uri, data, left_out, progress)).await?;
    Ok((plan, String::new()))
}

/// Plans a dataset of safetensors files, or of npy files.
async fn tensor_plan(
    origin: &Origin,
    uri: &OriginUri,
    files: Vec<ObjectInfo>,
    left_out: &mut LeftOuts,
    progress: Progress<'_>,
) -> Result<IndexPlan, DatasetError> {
    let is_npy = files.first().is_some_and(|file| extension(&file.key) == "npy");
    let candidates = match is_npy {
        true => npy::candidates(origin, uri, files, left_out, progress).await?,
        false => safetensors::candidates(origin, uri, files, left_out, progress).await?,
    };
    let candidates = ragged::pair(origin, uri, candidates, left_out, progress).await?;
    if candidates.is_empty() {
        return Err(none_usable(uri, left_out));
    }
    group::plan(uri, candidates, left_out)
}

/// The reason to leave out files of no known format.
const UNKNOWN_KIND: &str = "is not of a kind that can be indexed";

/// The reason to leave out what `wds2idx` of DALI and `widsindex` write beside tars.
const INDEX_OF_TARS: &str = "is an index of tars for other readers, which Larder does not need";

/// Returns the reason to leave out a file of no known format.
fn unknown_kind(key: &str) -> String {
    match extension(key) {
        kind @ ("gz" | "tgz" | "zst" | "zstd" | "bz2" | "xz" | "lz4") => {
            format!("is compressed (.{kind}), and Larder reads files in place: decompress it")
        }
        kind @ ("h5" | "hdf5" | "tfrecord" | "zip") => {
            format!("is a .{kind} file, which Larder does not read yet")
        }
        _ => UNKNOWN_KIND.to_owned(),
    }
}

/// Most kinds of files that an error names.
const KINDS_NAMED_MAX: usize = 6;

/// The error for a prefix whose objects were all left out: counts them by kind, and gives the
/// reasons of some that Larder reads in principle.
fn none_usable(uri: &OriginUri, left_out: &[LeftOut]) -> DatasetError {
    let objects: BTreeSet<&str> = left_out.iter().map(|left| &*left.object).collect();
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for key in &objects {
        *kinds.entry(extension(key)).or_default() += 1;
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(kind, count)| (Reverse(*count), *kind));
    let more = kinds.len().saturating_sub(KINDS_NAMED_MAX);
    let named = kinds.iter().take(KINDS_NAMED_MAX).map(|(kind, count)| match *kind {
        "" => format!("{count} without an extension"),
        kind => format!("{count} .{}", shown(kind)),
    });
    let mut why = format!(
        "{} object{}, none that can be indexed: {}",
        objects.len(),
        if objects.len() == 1 { "" } else { "s" },
        named.collect::<Vec<_>>().join(", "),
    );
    if more > 0 {
        why.push_str(&format!(" and {more} more kinds"));
    }
    let reasons = left_out.iter().filter(|left| left.why != UNKNOWN_KIND);
    why.extend(reasons.take(limits::LEFT_OUT_TOLD_MAX).map(|left| format!("; {left}")));
    if kinds.iter().any(|(kind, _)| *kind == "bin") {
        why.push_str(&format!(
            "; for token files (.bin) give the type of a token and the length of a sample: larder \
             dataset index {uri} --dtype uint16 --window 2048"
        ));
    }
    DatasetError::NothingToIndex { prefix: uri.clone(), why }
}

fn leave_out(files: Vec<ObjectInfo>, why: &str, left_out: &mut LeftOuts) {
    left_out.extend(files.into_iter().map(|file| LeftOut::object(&file.key, why)));
}

fn extension(key: &str) -> &str {
    match key.rsplit_once('.') {
        Some((_, extension)) if !extension.contains('/') => extension,
        _ => "",
    }
}

/// Drops versions if the store gives some but does not let them be read (S3 has a separate
/// permission for that). The etag pins the object just as well, as long as it is not replaced.
async fn readable_versions(
    origin: &Origin,
    uri: &OriginUri,
    mut plan: IndexPlan,
) -> Result<IndexPlan, DatasetError> {
    let objects = || plan.groups.iter().flat_map(|group| &group.objects);
    let Some(object) = objects().find(|object| object.version.is_some()) else {
        return Ok(plan);
    };
    let target = Target {
        object: uri.join(&object.key)?,
        etag: object.etag.clone(),
        version: object.version.clone(),
        size_bytes: object.size_bytes,
    };
    match origin.read_header(&target, 0, 1).await {
        Ok(_) => {}
        Err(
            FetchError::Origin(OriginError::Denied { .. } | OriginError::NotFound { .. })
            | FetchError::NotAsAsked { .. },
        ) => {
            let groups = plan.groups.iter_mut().flat_map(|group| &mut group.objects);
            groups.for_each(|object| object.version = None);
        }
        Err(error) => return Err(error.into()),
    }
    Ok(plan)
}

#[cfg(test)]
mod tests;
