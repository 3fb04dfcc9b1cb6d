//! Objects: `s3s-fs` with this crate's own reads, conditions and ETags.
//!
//! `s3s-fs` has five weaknesses:
//!
//! * It hashes a file that was put into its directory by other means on every GET.
//! * It reads that file in 4 KiB pieces, each through a thread pool.
//! * It lists objects without ETags.
//! * It answers `encoding-type=url` and encodes no key.
//! * It checks the condition of a PUT and then writes, without a lock around both.
//!
//! So this module does reads, HEAD, the ETags of lists, and conditions. `s3s-fs` does the rest.
//!
//! An ETag is the MD5 of the content for every kind of object. The file's identity is the key of
//! its cache. Overwrite an object by PUT or by renaming a file over it: a change in place reaches
//! running readers.

mod etag;
mod read;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};
use s3s_fs::FileSystem;
use tokio::sync::{Mutex, MutexGuard};

use etag::ETags;
pub(crate) use read::ObjectRead;
use read::{Opened, body, open};

/// Locks that make a condition and its write atomic. Keys share locks by hash.
const KEY_LOCKS: usize = 64;

/// The characters that `encoding-type=url` escapes.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// The S3 operations over one directory of buckets.
pub(crate) struct Objects {
    files: FileSystem,
    root: PathBuf,
    etags: Arc<ETags>,
    locks: [Mutex<()>; KEY_LOCKS],
}

impl Objects {
    /// Serves the buckets in `root`, which must exist.
    pub(crate) fn new(root: &Path) -> std::io::Result<Self> {
        let files =
            FileSystem::new(root).map_err(|error| std::io::Error::other(format!("{error:?}")))?;
        Ok(Self {
            files,
            root: root.to_owned(),
            etags: Arc::new(ETags::default()),
            locks: std::array::from_fn(|_| Mutex::new(())),
        })
    }

    /// Returns the file of an object. A key that is not a plain relative path names no object.
    fn path(&self, bucket: &str, key: &str) -> S3Result<PathBuf> {
        let relative = Path::new(key);
        let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || key.is_empty() || key.contains("//") {
            return Err(s3_error!(NoSuchKey));
        }
        Ok(self.root.join(bucket).join(relative))
    }

    async fn open(&self, bucket: &str, key: &str) -> S3Result<Opened> {
        let path = self.path(bucket, key)?;
        let (bucket, etags) = (self.root.join(bucket), Arc::clone(&self.etags));
        blocking(move || match open(&path, &etags) {
            Err(_) if !bucket.is_dir() => Err(s3_error!(NoSuchBucket)),
            opened => opened,
        })
        .await
    }

    async fn lock(&self, bucket: &str, key: &str) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        (bucket, key).hash(&mut hasher);
        let count = u64::try_from(KEY_LOCKS).expect("a small constant");
        let index = usize::try_from(hasher.finish() % count).expect("smaller than KEY_LOCKS");
        self.locks[index].lock().await
    }

    async fn get_object(
        &self,
        req: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let input = req.input;
        let opened = self.open(&input.bucket, &input.key).await?;
        check_read(&opened, input.if_match.as_ref(), input.if_none_match.as_ref())?;
        let range = match input.range {
            Some(range) => range.check(opened.bytes).map_err(|_| s3_error!(InvalidRange))?,
            None => 0..opened.bytes,
        };
        let content_range = input
            .range
            .map(|_| format!("bytes {}-{}/{}", range.start, range.end - 1, opened.bytes));
        let read = ObjectRead {
            object: format!("{}/{}", input.bucket, input.key),
            path: opened.path.clone(),
            range: range.clone(),
            total: opened.bytes,
        };
        let output = GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some(signed(range.end - range.start)?),
            content_range,
            content_type: Some("binary/octet-stream".to_owned()),
            e_tag: Some(ETag::Strong(opened.etag.clone())),
            last_modified: Some(Timestamp::from(opened.modified)),
            body: Some(blocking(move || body(opened.file, range)).await?),
            ..Default::default()
        };
        let mut response = S3Response::new(output);
        response.extensions.insert(read);
        Ok(response)
    }

    async fn head_object(
        &self,
        req: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let input = req.input;
        let opened = self.open(&input.bucket, &input.key).await?;
        check_read(&opened, input.if_match.as_ref(), input.if_none_match.as_ref())?;
        Ok(S3Response::new(HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some(signed(opened.bytes)?),
            content_type: Some("binary/octet-stream".to_owned()),
            e_tag: Some(ETag::Strong(opened.etag)),
            last_modified: Some(Timestamp::from(opened.modified)),
            ..Default::default()
        }))
    }

    async fn put_object(
        &self,
        mut req: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let (bucket, key) = (req.input.bucket.clone(), req.input.key.clone());
        let _one_writer = self.lock(&bucket, &key).await;
        let if_none_match = req.input.if_none_match.take();
        let if_match = req.input.if_match.take();
        if if_none_match.is_some() || if_match.is_some() {
            let present = match self.open(&bucket, &key).await {
                Ok(opened) => Some(opened),
                Err(error) if error.code() == &s3s::S3ErrorCode::NoSuchKey => None,
                Err(error) => return Err(error),
            };
            check_write(present.as_ref(), if_match.as_ref(), if_none_match.as_ref())?;
        }
        self.files.put_object(req).await
    }

    async fn delete_object(
        &self,
        req: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let _one_writer = self.lock(&req.input.bucket.clone(), &req.input.key.clone()).await;
        self.files.delete_object(req).await
    }

    async fn copy_object(
        &self,
        req: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        let _one_writer = self.lock(&req.input.bucket.clone(), &req.input.key.clone()).await;
        self.files.copy_object(req).await
    }

    async fn complete_multipart_upload(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let (bucket, key) = (req.input.bucket.clone(), req.input.key.clone());
        let _one_writer = self.lock(&bucket, &key).await;
        let mut response = self.files.complete_multipart_upload(req).await?;
        if let Some(completed) = response.output.future.take() {
            response.output = completed.await?;
        }
        response.output.e_tag = Some(ETag::Strong(self.open(&bucket, &key).await?.etag));
        Ok(response)
    }

    async fn list_objects_v2(
        &self,
        req: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let bucket = req.input.bucket.clone();
        let mut response = self.files.list_objects_v2(req).await?;
        for object in response.output.contents.iter_mut().flatten() {
            let key = object.key.as_deref().unwrap_or_default();
            // An object that was deleted after the listing is listed without an ETag.
            if let Ok(opened) = self.open(&bucket, key).await {
                object.e_tag = Some(ETag::Strong(opened.etag));
            }
        }
        if response.output.encoding_type.is_some() {
            let output = &mut response.output;
            encode_keys(&mut output.contents, &mut output.common_prefixes);
            encode([&mut output.prefix, &mut output.delimiter, &mut output.start_after]);
        }
        Ok(response)
    }

    async fn list_objects(
        &self,
        req: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let mut response = self.files.list_objects(req).await?;
        if response.output.encoding_type.is_some() {
            let output = &mut response.output;
            encode_keys(&mut output.contents, &mut output.common_prefixes);
            encode([&mut output.prefix, &mut output.delimiter]);
            encode([&mut output.marker, &mut output.next_marker]);
        }
        Ok(response)
    }
}

fn encode_keys(objects: &mut Option<Vec<Object>>, prefixes: &mut Option<Vec<CommonPrefix>>) {
    encode(objects.iter_mut().flatten().map(|object| &mut object.key));
    encode(prefixes.iter_mut().flatten().map(|common| &mut common.prefix));
}

/// Encodes texts of a listing as `encoding-type=url` asks.
fn encode<'a>(texts: impl IntoIterator<Item = &'a mut Option<String>>) {
    for text in texts.into_iter().flatten() {
        *text = utf8_percent_encode(text, ENCODED).to_string();
    }
}

/// Runs file work where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> S3Result<T> + Send + 'static,
) -> S3Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(s3_error!(error, InternalError)),
    }
}

fn signed(bytes: u64) -> S3Result<i64> {
    i64::try_from(bytes).map_err(|error| s3_error!(error, InternalError))
}

fn names(condition: &ETagCondition, etag: &str) -> bool {
    match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(wanted) => wanted.strong_cmp(&ETag::Strong(etag.to_owned())),
    }
}

/// Checks the conditions of a GET or HEAD: 412 or 304 when they do not hold.
fn check_read(
    opened: &Opened,
    if_match: Option<&ETagCondition>,
    if_none_match: Option<&ETagCondition>,
) -> S3Result<()> {
    if if_match.is_some_and(|condition| !names(condition, &opened.etag)) {
        return Err(s3_error!(PreconditionFailed, "the object's ETag is {}", opened.etag));
    }
    if if_none_match.is_some_and(|condition| names(condition, &opened.etag)) {
        return Err(s3_error!(NotModified));
    }
    Ok(())
}

/// Checks the conditions of a PUT as S3 does: 412 when they do not hold, 404 for `If-Match` without
/// an object.
fn check_write(
    present: Option<&Opened>,
    if_match: Option<&ETagCondition>,
    if_none_match: Option<&ETagCondition>,
) -> S3Result<()> {
    if let Some(condition) = if_match {
        let opened = present.ok_or_else(|| s3_error!(NoSuchKey))?;
        check_read(opened, Some(condition), None)?;
    }
    match (if_none_match, present) {
        (Some(condition), Some(opened)) if names(condition, &opened.etag) => {
            Err(s3_error!(PreconditionFailed, "the object exists, its ETag is {}", opened.etag))
        }
        _ => Ok(()),
    }
}

/// Writes S3 methods: `name(Input) -> Output` and the answering side.
macro_rules! methods {
    ($($method:ident($input:ident) -> $output:ident => $answerer:ident;)+) => {
        impl S3 for Objects {
            $(
                fn $method<'a, 'f>(
                    &'a self,
                    req: S3Request<$input>,
                ) -> BoxFuture<'f, S3Result<S3Response<$output>>>
                where
                    'a: 'f,
                    Self: 'f,
                {
                    methods!(@answer $answerer self req $method)
                }
            )+
        }
    };
    (@answer here $self:ident $req:ident $method:ident) => { Box::pin(Objects::$method($self, $req)) };
    (@answer files $self:ident $req:ident $method:ident) => { Box::pin(S3::$method(&$self.files, $req)) };
}

methods! {
    abort_multipart_upload(AbortMultipartUploadInput) -> AbortMultipartUploadOutput => files;
    complete_multipart_upload(CompleteMultipartUploadInput) -> CompleteMultipartUploadOutput => here;
    copy_object(CopyObjectInput) -> CopyObjectOutput => here;
    create_bucket(CreateBucketInput) -> CreateBucketOutput => files;
    create_multipart_upload(CreateMultipartUploadInput) -> CreateMultipartUploadOutput => files;
    delete_bucket(DeleteBucketInput) -> DeleteBucketOutput => files;
    delete_object(DeleteObjectInput) -> DeleteObjectOutput => here;
    delete_objects(DeleteObjectsInput) -> DeleteObjectsOutput => files;
    get_bucket_location(GetBucketLocationInput) -> GetBucketLocationOutput => files;
    get_object(GetObjectInput) -> GetObjectOutput => here;
    head_bucket(HeadBucketInput) -> HeadBucketOutput => files;
    head_object(HeadObjectInput) -> HeadObjectOutput => here;
    list_buckets(ListBucketsInput) -> ListBucketsOutput => files;
    list_objects(ListObjectsInput) -> ListObjectsOutput => here;
    list_objects_v2(ListObjectsV2Input) -> ListObjectsV2Output => here;
    list_parts(ListPartsInput) -> ListPartsOutput => files;
    put_object(PutObjectInput) -> PutObjectOutput => here;
    upload_part(UploadPartInput) -> UploadPartOutput => files;
    upload_part_copy(UploadPartCopyInput) -> UploadPartCopyOutput => files;
}
