//! Prefixes without samples, though files of known formats lie there.

use crate::{DatasetError, ObjectInfo, OriginUri, index::extension};

/// Refuses a table whose log says which of its files count. Deleted rows lie in the others.
pub(super) fn check_table(uri: &OriginUri, objects: &[ObjectInfo]) -> Result<(), DatasetError> {
    let Some((kind, root)) = objects.iter().find_map(|object| table_of_log(&object.key)) else {
        return Ok(());
    };
    let is_data =
        |object: &ObjectInfo| extension(&object.key) == "parquet" && object.key.starts_with(root);
    if !objects.iter().any(is_data) {
        return Ok(());
    }
    let place = if root.is_empty() { "it".to_owned() } else { format!("'{root}'") };
    Err(DatasetError::NothingToIndex {
        prefix: uri.clone(),
        why: format!(
            "{place} is a {kind} table, and only its log says which of its files count: export a \
             snapshot as Parquet files, or name the files with --include"
        ),
    })
}

/// Returns the kind of table that this object is a log of, and the folder of the table.
fn table_of_log(key: &str) -> Option<(&'static str, &str)> {
    let (mut begins, mut above) = (0, "");
    for segment in key.split('/') {
        let root = &key[..begins];
        begins += segment.len() + 1;
        let is_name = begins > key.len();
        match segment {
            "_delta_log" if !is_name => return Some(("Delta Lake", root)),
            ".hoodie" if !is_name => return Some(("Hudi", root)),
            _ if is_name && above.ends_with("metadata/") && segment.ends_with(".metadata.json") => {
                let root = above.strip_suffix("metadata/").unwrap_or_default();
                return (root.is_empty() || root.ends_with('/')).then_some(("Iceberg", root));
            }
            _ => above = &key[..begins.min(key.len())],
        }
    }
    None
}

/// Refuses the weights of a model: a safetensors file with an index of its shards, or a model with
/// its configuration, as Hugging Face libraries write them.
pub(super) fn check_weights(uri: &OriginUri, files: &[ObjectInfo]) -> Result<(), DatasetError> {
    let has = |key: &str| files.binary_search_by(|file| (*file.key).cmp(key)).is_ok();
    let is_weights = |file: &&ObjectInfo| {
        let (folder, name) = match file.key.rfind('/') {
            Some(slash) => file.key.split_at(slash + 1),
            None => ("", &*file.key),
        };
        match name {
            "model.safetensors" => has(&format!("{folder}config.json")),
            "adapter_model.safetensors" => has(&format!("{folder}adapter_config.json")),
            _ => name.ends_with(".safetensors.index.json"),
        }
    };
    let Some(file) = files.iter().find(is_weights) else { return Ok(()) };
    let why = format!(
        "'{}' belongs to the weights of a model, which are not samples: index a prefix without a \
         model, or name the files with samples by --include",
        file.key
    );
    Err(DatasetError::NothingToIndex { prefix: uri.clone(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_tables_are_told_from_other_files() {
        for (key, table) in [
            ("_delta_log/00.json", Some(("Delta Lake", ""))),
            ("a/b/_delta_log/x/00.json", Some(("Delta Lake", "a/b/"))),
            ("a/.hoodie/hoodie.properties", Some(("Hudi", "a/"))),
            ("metadata/v1.metadata.json", Some(("Iceberg", ""))),
            ("t/metadata/0-1.metadata.json", Some(("Iceberg", "t/"))),
            ("t/my-metadata/0-1.metadata.json", None),
            ("metadata/x.json", None),
            ("metadata/x/v1.metadata.json", None),
            ("x/_delta_log", None),
            ("metadata.jsonl", None),
        ] {
            assert_eq!(table_of_log(key), table, "{key}");
        }
    }
}
