//! MosaicML Streaming: the shards that an `index.json` lists, in place or compressed.

use std::collections::{BTreeMap, BTreeSet};

use larder_formats::{
    Fault, Scan, Table,
    mds::{CompressedScan, FileInfo, INDEX_BYTES_MAX, Index, MdsScan, ShardInfo},
};

use super::scan::{BegunScan, in_file, scan_all};
use crate::{
    DatasetError, ObjectInfo, Origin, OriginUri,
    index::{LeftOuts, Progress, leave_out},
};

/// The name of an index.
const INDEX: &str = "index.json";

/// A shard that an index lists, and the file of it.
struct ListedShard {
    file: ObjectInfo,
    shard: ShardInfo,
    is_compressed: bool,
}

/// Scans the shards of every index under the prefix. Indexes of outer folders come first, then by
/// their keys. An index that lists no shard of its own, because its folders have one each, adds
/// none.
pub(super) async fn tables(
    origin: &Origin,
    uri: &OriginUri,
    rest: Vec<ObjectInfo>,
    indexes: Vec<ObjectInfo>,
    left_out: &mut LeftOuts,
    columns: Option<&[String]>,
    progress: Progress<'_>,
) -> Result<Vec<(ObjectInfo, Table)>, DatasetError> {
    let scans = Box::pin(begin(origin, uri, rest, indexes, left_out)).await?;
    scan_all(origin, uri, scans, columns, left_out, progress).await
}

/// Begins the scans of these shards.
pub(super) async fn begin(
    origin: &Origin,
    uri: &OriginUri,
    rest: Vec<ObjectInfo>,
    mut indexes: Vec<ObjectInfo>,
    left_out: &mut LeftOuts,
) -> Result<Vec<BegunScan>, DatasetError> {
    // A merged index comes before those of its folders, so its order counts.
    indexes.sort_by_key(|file| file.key.matches('/').count());
    let mut rest: BTreeMap<String, ObjectInfo> =
        rest.into_iter().map(|file| (file.key.clone(), file)).collect();
    let (mut listed, mut seen) = (Vec::<ListedShard>::new(), BTreeSet::new());
    for index in indexes {
        let object = uri.join(&index.key)?;
        let (bytes, _) = origin.get(&object, INDEX_BYTES_MAX as u64).await?;
        let parsed = Index::parse(&bytes).map_err(|fault| in_file(fault, &object))?;
        let folder = index.key.strip_suffix(INDEX).unwrap_or("");
        for shard in parsed.shards() {
            let key = |file: &FileInfo| format!("{folder}{}", file.basename);
            if !seen.insert(key(shard.raw())) {
                // A merged index repeats the shards of its folders.
                continue;
            }
            // A reader that downloaded a compressed shard may have put the other beside it.
            let raw = rest.remove(&key(shard.raw()));
            let zip = shard.zip().and_then(|zip| rest.remove(&key(zip)));
            let is_compressed = raw.is_none();
            let Some(file) = raw.or(zip) else {
                let key = key(shard.zip().unwrap_or(shard.raw()));
                let why = "is not under the prefix: copy it there, or index again without it";
                return Err(in_file(Fault::new(format!("shard '{key}'"), why), &object));
            };
            listed.push(ListedShard { file, shard: shard.clone(), is_compressed });
        }
    }
    leave_out(rest.into_values().collect(), "is in no index.json", left_out);
    // Rows must be made in all files, or in none.
    let are_made = listed.iter().any(|listed| listed.is_compressed);
    let mut scans = Vec::with_capacity(listed.len());
    for ListedShard { file, shard, is_compressed } in listed {
        let bytes = file.size_bytes;
        let scan: Result<Box<dyn Scan + Send>, Fault> = match are_made {
            true => {
                CompressedScan::new(&shard, is_compressed, bytes).map(|scan| Box::new(scan) as _)
            }
            false => MdsScan::new(&shard, bytes).map(|scan| Box::new(scan) as _),
        };
        let object = uri.join(&file.key)?;
        scans.push(BegunScan { file, scan: scan.map_err(|fault| in_file(fault, &object))? });
    }
    Ok(scans)
}
