//! Verifies the objects on the origin.

use larder_client::admin::{
    self, DatasetError, DatasetRef, FetchError, Manifest, Origin, OriginError, OriginUri,
};

use super::{Problems, VerifyReport};
use crate::{
    commands::dataset::open, context::Context, error::Failure, nodes::ReadFrom, progress::Progress,
};

pub(super) fn verify(
    context: &Context,
    reference: &DatasetRef,
    manifest: Option<&OriginUri>,
) -> Result<VerifyReport, Failure> {
    let (origin, opened) = open(context, reference, manifest)?;
    let manifest = opened.manifest;
    let begun = context.now();
    let progress = context.progress("verifying");
    progress.bytes("verifying", manifest.total_bytes());
    let checked = context.block_on(Box::pin(check(&origin, &manifest, &progress)))?;
    let (problems, checksums) = checked?;
    Ok(VerifyReport {
        uri: reference.uri().to_string(),
        tag: reference.tag().to_owned(),
        snapshot: manifest.snapshot().to_string(),
        samples: manifest.samples(),
        shards: manifest.shard_count(),
        bytes: manifest.total_bytes(),
        read_from: ReadFrom::Origin,
        against_source: false,
        checksums,
        rows_local: 0,
        rows_remote: 0,
        rows_origin: manifest.samples(),
        digest: None,
        seconds: begun.elapsed().as_secs_f64(),
        verified: problems.count == 0,
        problems,
    })
}

/// Reads every shard. Collects problems of the data; other errors end the check.
async fn check(
    origin: &Origin,
    manifest: &Manifest,
    progress: &Progress,
) -> Result<(Problems, u32), Failure> {
    let (mut problems, mut checksums) = (Problems::default(), 0);
    for number in 0..manifest.shard_count() {
        let shard = manifest.shard(number);
        let read = |bytes| progress.add(bytes);
        match Box::pin(admin::shard_checksum(origin, manifest, number, read)).await {
            Ok(found) => {
                if let Some(pinned) = shard.checksum {
                    checksums += 1;
                    if pinned != found {
                        let samples =
                            shard.first_sample..shard.first_sample + u64::from(shard.rows);
                        problems.add(format!(
                            "shard {number} (samples {samples:?}): its checksum is {found:016x} and \
                             was {pinned:016x} when it was indexed"
                        ));
                    }
                }
            }
            Err(DatasetError::Fetch(
                error @ (FetchError::Changed { .. }
                | FetchError::Origin(OriginError::NotFound { .. })),
            )) => problems.add(format!("shard {number}: {error}")),
            Err(error) => return Err(error.into()),
        }
    }
    Ok((problems, checksums))
}
