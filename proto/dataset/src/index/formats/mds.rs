//! MosaicML Streaming: the shards that an `index.json` lists, in place.

use std::collections::{BTreeMap, BTreeSet};

use larder_formats::{
    Fault, Table,
    mds::{INDEX_BYTES_MAX, Index, MdsScan, ShardInfo},
};

use super::scan::{Begun, in_file, scan_all};
use crate::{
    DatasetError, ObjectInfo, Origin, OriginUri,
    index::{LeftOuts, Progress, leave_out},
};

/// The name of an index.
const INDEX: &str = "index.json";

/// Scans the shards of every index under the prefix. Indexes of outer folders come first, then by
/// their keys. An index that lists no shard of its own, because its folders have one each, adds
/// none.
pub(super) async fn tables(
    origin: &Origin,
    uri: &OriginUri,
    (rest, mut indexes): (Vec<ObjectInfo>, Vec<ObjectInfo>),
    left_out: &mut LeftOuts,
    columns: Option<&[String]>,
    progress: Progress<'_>,
) -> Result<Vec<(ObjectInfo, Table)>, DatasetError> {
    // A merged index comes before those of its folders, so its order counts.
    indexes.sort_by_key(|file| file.key.matches('/').count());
    let mut rest: BTreeMap<String, ObjectInfo> =
        rest.into_iter().map(|file| (file.key.clone(), file)).collect();
    let (mut listed, mut seen) = (Vec::<(ObjectInfo, ShardInfo)>::new(), BTreeSet::new());
    for index in indexes {
        let object = uri.join(&index.key)?;
        let (bytes, _) = origin.get(&object, INDEX_BYTES_MAX as u64).await?;
        let parsed = Index::parse(&bytes).map_err(|fault| in_file(fault, &object))?;
        let folder = index.key.strip_suffix(INDEX).unwrap_or("");
        for shard in parsed.shards() {
            let (file, compression) = (shard.zip().unwrap_or(shard.raw()), shard.compression());
            let key = format!("{folder}{}", file.basename);
            if !seen.insert(key.clone()) {
                // A merged index repeats the shards of its folders.
                continue;
            }
            if let Some(compression) = compression {
                let why = format!(
                    "is compressed with {compression}, which Larder does not read yet: write the \
                     shards without compression"
                );
                return Err(in_file(Fault::new(format!("shard '{key}'"), why), &object));
            }
            let Some(own) = rest.remove(&key) else {
                let why = "is not under the prefix: copy it there, or index again without it";
                return Err(in_file(Fault::new(format!("shard '{key}'"), why), &object));
            };
            listed.push((own, shard.clone()));
        }
    }
    leave_out(rest.into_values().collect(), "is in no index.json", left_out);
    let mut scans = Vec::with_capacity(listed.len());
    for (file, shard) in listed {
        let scan = MdsScan::new(&shard, file.size_bytes);
        let object = uri.join(&file.key)?;
        let scan = scan.map_err(|fault| in_file(fault, &object))?;
        scans.push(Begun { file, scan: Box::new(scan) });
    }
    scan_all(origin, uri, scans, columns, left_out, progress).await
}
