//! The origin: tests whether it can be reached, listed, read and written.

use std::{fs, path::Path, time::Instant};

use larder_client::admin::{self, DatasetRef, Origin, OriginError, OriginUri, Scheme};

use super::Check;
use crate::{error::Failure, output::units};

/// The content of the object that tests whether a prefix can be written.
const PROBE: &[u8] = b"larder doctor wrote this to see whether it may write here\n";

const REACH: &str = "origin";
const NETWORK: &str = "network";
const LIST: &str = "origin list";
const READ: &str = "origin read";
const INDEX: &str = "index";
const WRITE: &str = "origin write";
const REACH_WHY: &str = "everything is read from there at first";
const NETWORK_WHY: &str = "requests to the origin take these proxies and trust these authorities";
const LIST_WHY: &str =
    "indexing lists the files under a prefix; training never waits for a listing";
const READ_WHY: &str = "nodes fill shards with ranged reads";
const INDEX_WHY: &str = "a dataset has the objects that lay there when it was indexed";
const WRITE_WHY: &str =
    "the manifest is kept beside the data, under .larder, so that all hosts find it";

pub(super) async fn checks(dataset: &DatasetRef) -> Vec<Check> {
    let uri = dataset.uri();
    // Writing would make a missing folder. A mistyped folder must stay missing.
    if uri.scheme() == Scheme::File && !Path::new("/").join(uri.path()).is_dir() {
        let found = format!("{uri} is no folder");
        return vec![Check::fail(REACH, found, REACH_WHY, "check the path, or make the folder")];
    }
    let origin = match Origin::connect(uri).await {
        Ok(origin) => origin,
        Err(error) => return vec![failed(REACH, REACH_WHY, error)],
    };
    let found = origin.access().map_or_else(|| uri.to_string(), |how| format!("{uri} {how}"));
    let mut checks = vec![Check::ok(REACH, found, REACH_WHY)];
    let network = origin.network();
    if !network.is_empty() {
        checks.push(Check::ok(NETWORK, network.join(", "), NETWORK_WHY));
    }
    let begun = now();
    let mut is_empty = false;
    match origin.list(uri).await {
        Err(error) => checks.push(failed(LIST, LIST_WHY, error)),
        Ok(objects) => {
            is_empty = objects.is_empty();
            let data = objects.iter().filter(|object| !object.key.contains(".larder/"));
            let count = units::counted(data.clone().count() as u64, "object");
            let time = units::duration(begun.elapsed());
            let first = data.clone().find(|object| object.size_bytes > 0);
            checks.push(match first {
                Some(_) => Check::ok(LIST, format!("{count} in {time}"), LIST_WHY),
                None => Check::warn(
                    LIST,
                    "there is nothing under this prefix",
                    LIST_WHY,
                    "check the prefix and AWS_ENDPOINT_URL",
                ),
            });
            if let Some(object) = first {
                checks.push(read(&origin, uri, &object.key).await);
                checks.extend(index(&origin, dataset).await);
            }
        }
    }
    checks.push(match is_empty {
        // A write would make a mistyped prefix look like a real one.
        true => Check::ok(WRITE, "not tried: there is nothing under this prefix", WRITE_WHY),
        false => write(&origin, uri).await,
    });
    checks
}

async fn read(origin: &Origin, uri: &OriginUri, key: &str) -> Check {
    let begun = now();
    let asked = match uri.join(key) {
        Ok(object) => origin.head(&object).await,
        Err(error) => return Check::warn(READ, error.to_string(), READ_WHY, "rename the object"),
    };
    match asked {
        Ok(_) => {
            let time = units::duration(begun.elapsed());
            Check::ok(READ, format!("{key} may be read, first answer after {time}"), READ_WHY)
        }
        Err(error) => failed(READ, READ_WHY, error),
    }
}

/// Compares the index with the objects. No check if these can't be counted, and none without an
/// index: the first open makes it.
async fn index(origin: &Origin, dataset: &DatasetRef) -> Option<Check> {
    let found = match Box::pin(admin::find_with(origin, dataset, None)).await {
        Ok(found) => found?,
        Err(error) => {
            let hint = format!("index it again: larder dataset index {}", dataset.uri());
            return Some(Check::warn(INDEX, error.to_string(), INDEX_WHY, hint));
        }
    };
    let uri = dataset.uri();
    Some(match Box::pin(admin::count_added(origin, &found.manifest, None)).await.ok()? {
        0 => Check::ok(INDEX, "no object was added since it was made", INDEX_WHY),
        added => {
            let hint = format!("larder dataset index {uri}");
            Check::warn(INDEX, admin::added_warning(uri, added), INDEX_WHY, hint)
        }
    })
}

/// Writes the probe on condition that it does not exist, and deletes it again. The origin checks
/// rights before the condition, so a probe that an interrupted run left there does no harm.
async fn write(origin: &Origin, uri: &OriginUri) -> Check {
    let Ok(object) = uri.join(".larder/doctor") else {
        return Check::warn(WRITE, "the prefix is too long", WRITE_WHY, "use a shorter one");
    };
    match origin.put_if_absent(&object, PROBE.into()).await {
        Ok(_) => delete(origin, uri, &object).await,
        Err(OriginError::Denied { .. }) => Check::warn(
            WRITE,
            "not allowed: manifests go to this user's cache, where other hosts do not see them",
            WRITE_WHY,
            "allow s3:PutObject under .larder/, or index with --manifest s3://a-bucket/you-may-write",
        ),
        Err(OriginError::Unsupported { .. }) => Check::ok(
            WRITE,
            "allowed, though without conditions: the last writer of a tag wins",
            WRITE_WHY,
        ),
        Err(error) => failed(WRITE, WRITE_WHY, error),
    }
}

async fn delete(origin: &Origin, uri: &OriginUri, object: &OriginUri) -> Check {
    if let Err(error) = origin.delete(object).await {
        let found = format!("allowed, but {object} can't be deleted again: {error}");
        let hint = "delete it, or leave it: no other command reads it";
        return Check::warn(WRITE, found, WRITE_WHY, hint);
    }
    if uri.scheme() == Scheme::File {
        // Fails if the folder has a manifest, and must: only an empty folder goes.
        let _ = fs::remove_dir(Path::new("/").join(uri.path()).join(".larder"));
    }
    Check::ok(WRITE, format!("allowed: {object} was written and deleted"), WRITE_WHY)
}

fn failed(name: &'static str, why: &'static str, error: OriginError) -> Check {
    let right = match &error {
        OriginError::Denied { object, .. } if object.scheme() == Scheme::S3 => right(name),
        _ => None,
    };
    let failure = Failure::from(error);
    let found = match failure.why {
        Some(why) => format!("{}: {why}", failure.what),
        None => failure.what,
    };
    let hint = match (right, failure.hint) {
        (Some(right), _) => format!("allow {right}, or use other credentials"),
        (None, Some(hint)) if !hint.contains("larder doctor") => hint,
        _ => "check AWS_ENDPOINT_URL, AWS_REGION, the network and the rights of the credentials"
            .to_owned(),
    };
    Check::fail(name, found, why, hint)
}

/// The right at S3 that a check needs.
fn right(check: &str) -> Option<&'static str> {
    match check {
        LIST => Some("s3:ListBucket on the bucket"),
        READ => Some("s3:GetObject, and s3:GetObjectVersion if the bucket keeps versions"),
        _ => None,
    }
}

#[expect(clippy::disallowed_methods, reason = "a command is the outermost shell")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn refused_request_names_the_missing_right() {
        let denied = |uri: &str| OriginError::Denied {
            object: OriginUri::parse(uri).unwrap(),
            why: "the store answered 403 Forbidden".to_owned(),
            remedy: None,
        };
        let hint = |name, uri| failed(name, READ_WHY, denied(uri)).hint.unwrap();
        assert!(hint(LIST, "s3://bucket/data").contains("s3:ListBucket"));
        assert!(hint(READ, "s3://bucket/data/a").contains("s3:GetObjectVersion"));
        assert!(!hint(READ, "gs://bucket/data/a").contains("s3:"));
    }

    #[tokio::test]
    async fn missing_folder_fails_the_check_and_is_not_created() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("imagenet");
        let uri = DatasetRef::parse(&format!("file://{}", path.display())).unwrap();
        let missing = checks(&uri).await;
        assert_eq!((missing.len(), missing[0].state), (1, State::Fail));
        assert!(missing[0].found.ends_with("imagenet is no folder"), "{}", missing[0].found);
        assert!(!path.exists());
        fs::create_dir(&path).unwrap();
        let empty = checks(&uri).await;
        assert!(empty.iter().all(|check| check.state != State::Fail));
        let write = empty.last().unwrap();
        assert_eq!(write.found, "not tried: there is nothing under this prefix");
        assert!(!path.join(".larder").exists());
    }

    #[tokio::test]
    async fn probe_of_a_writable_prefix_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let dataset = DatasetRef::parse(&format!("file://{}", folder.path().display())).unwrap();
        let uri = dataset.uri();
        fs::write(folder.path().join("x.npy"), b"data").unwrap();
        let probe = folder.path().join(".larder/doctor");
        let said = format!("allowed: {uri}/.larder/doctor was written and deleted");
        for left_by_another_run in [false, true] {
            if left_by_another_run {
                fs::create_dir(folder.path().join(".larder")).unwrap();
                fs::write(&probe, b"").unwrap();
            }
            assert_eq!(checks(&dataset).await.last().unwrap().found, said);
            assert!(!probe.exists() && !folder.path().join(".larder").exists());
        }
        let manifest = folder.path().join(".larder/x.manifest");
        fs::create_dir(folder.path().join(".larder")).unwrap();
        fs::write(&manifest, b"").unwrap();
        assert_eq!(checks(&dataset).await.last().unwrap().found, said);
        assert!(manifest.exists() && !probe.exists());
    }
}
