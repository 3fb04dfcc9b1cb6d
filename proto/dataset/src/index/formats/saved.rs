//! Folders that Hugging Face `datasets` saved (`save_to_disk`): a `state.json` names their Arrow
//! files, in the order of the rows. Other Arrow files there are leftovers.

use std::collections::BTreeMap;

use larder_formats::{Fault, shown};
use serde::Deserialize;

use super::scan::in_file;
use crate::{
    DatasetError, ObjectInfo, Origin, OriginUri,
    index::{LeftOut, LeftOuts},
};

/// Largest `state.json`, in bytes: it names a file in 100 bytes.
const STATE_BYTES_MAX: u64 = 16 << 20;

/// The part of a `state.json` that names files.
#[derive(Deserialize)]
struct State {
    #[serde(rename = "_data_files")]
    data: Option<Vec<NamedFile>>,
    /// Only `datasets` before version 2 wrote them.
    #[serde(rename = "_indices_data_files")]
    indices: Option<Vec<NamedFile>>,
}

#[derive(Deserialize)]
struct NamedFile {
    filename: String,
}

/// Returns the Arrow files that count, in the order of their folders and there as `states` name
/// them.
///
/// # Errors
/// A named file is not there, or a state selects rows of its files.
pub(super) async fn named_files(
    origin: &Origin,
    uri: &OriginUri,
    files: Vec<ObjectInfo>,
    states: Vec<ObjectInfo>,
    left_out: &mut LeftOuts,
) -> Result<Vec<ObjectInfo>, DatasetError> {
    let mut folders: BTreeMap<&str, Vec<ObjectInfo>> = BTreeMap::new();
    let keys: Vec<String> = files.iter().map(|file| file.key.clone()).collect();
    for (key, file) in keys.iter().zip(files) {
        folders.entry(folder_of(key)).or_default().push(file);
    }
    for state in &states {
        let object = uri.join(&state.key)?;
        let (bytes, _) = origin.get(&object, STATE_BYTES_MAX).await?;
        let State { data: Some(named), indices } = serde_json::from_slice(&bytes)
            .map_err(|error| in_file(Fault::new("state", error.to_string()), &object))?
        else {
            left_out.push(LeftOut::object(&state.key, "names no files"));
            continue;
        };
        if indices.is_some_and(|indices| !indices.is_empty()) {
            let why = "selects rows of its files: load the dataset, and save it again";
            return Err(in_file(Fault::new("_indices_data_files", why), &object));
        }
        let folder = folder_of(&state.key);
        let mut there = folders.remove(folder).unwrap_or_default();
        let mut counted = Vec::with_capacity(named.len());
        for NamedFile { filename } in named {
            let at = there.iter().position(|file| file.key[folder.len()..] == *filename);
            let Some(at) = at else {
                let why = "is not there: copy it, or save the dataset again";
                return Err(in_file(
                    Fault::new(format!("file '{}'", shown(&filename)), why),
                    &object,
                ));
            };
            counted.push(there.swap_remove(at));
        }
        let leftovers = there.iter();
        left_out.extend(
            leftovers.map(|file| LeftOut::object(&file.key, "is not named in its state.json")),
        );
        folders.insert(folder, counted);
    }
    Ok(folders.into_values().flatten().collect())
}

/// Returns the folder of a key, with its slash.
fn folder_of(key: &str) -> &str {
    key.rfind('/').map_or("", |slash| &key[..=slash])
}
