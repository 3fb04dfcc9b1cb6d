//! What files say about their columns, such as the names of classes, as one JSON document.

use std::collections::HashMap;

use larder_formats::{Logical, Table, shown};
use serde_json::{Map, Value};

use crate::{DatasetError, ObjectInfo, OriginUri};

/// The key under which Hugging Face `datasets` describes columns.
const HUGGINGFACE: &str = "huggingface";

/// Returns the document of the first file, without what other files say otherwise. Empty if files
/// say nothing.
///
/// # Errors
/// Two files describe a wanted column differently, such as its classes.
pub(super) fn of(
    uri: &OriginUri,
    tables: &[(ObjectInfo, Table)],
    columns: Option<&[String]>,
) -> Result<String, DatasetError> {
    let Some(((first, table), others)) = tables.split_first() else {
        return Ok(String::new());
    };
    let mut agreed = document(table);
    for (file, other) in others.iter().filter(|(_, other)| other.metadata != table.metadata) {
        let other = document(other);
        if let Some(name) = differing(&agreed, &other, columns) {
            let why = format!(
                "'{}' and '{}' describe the column '{}' differently, such as its classes: index \
                 them under prefixes of their own, or leave it out with --columns",
                first.key,
                file.key,
                shown(name),
            );
            return Err(DatasetError::Inconsistent { prefix: uri.clone(), why });
        }
        agreed.retain(|key, value| key == HUGGINGFACE || other.get(key) == Some(value));
    }
    let is_empty = agreed.is_empty();
    Ok(if is_empty { String::new() } else { Value::Object(agreed).to_string() })
}

/// Gives the bytes of pictures and sounds their meaning, where the features of Hugging Face say so:
/// the column `image.bytes` of a feature `image` of type `Image`.
pub(super) fn name_media(document: &str, tables: &mut [(ObjectInfo, Table)]) {
    let document = serde_json::from_str(document).unwrap_or_default();
    let Some(features) = features(&document) else { return };
    let media = features.iter().filter_map(|(name, feature)| {
        let logical = match feature.get("_type")?.as_str()? {
            "Image" => Logical::Image,
            "Audio" => Logical::Sound,
            _ => return None,
        };
        Some((format!("{name}.bytes"), logical))
    });
    let media: HashMap<String, Logical> = media.collect();
    for column in tables.iter_mut().flat_map(|(_, table)| &mut table.columns) {
        if let (Logical::Bytes, Some(&logical)) = (column.logical, media.get(&column.name)) {
            column.logical = logical;
        }
    }
}

/// Returns what one file says. A value that is no JSON is a text.
fn document(table: &Table) -> Map<String, Value> {
    let value =
        |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    table.metadata.iter().map(|(key, text)| (key.clone(), value(text))).collect()
}

/// Returns the first wanted column whose features differ in two documents.
fn differing<'a>(
    one: &'a Map<String, Value>,
    other: &Map<String, Value>,
    columns: Option<&[String]>,
) -> Option<&'a str> {
    let (one, other) = (features(one)?, features(other)?);
    let wanted = |name: &str| {
        let of = |column: &String| column.split('.').next() == Some(name);
        columns.is_none_or(|columns| columns.iter().any(of))
    };
    let differs = |(name, feature): &(&String, &Value)| {
        wanted(name) && other.get(*name).is_some_and(|found| found != *feature)
    };
    one.iter().find(differs).map(|(name, _)| name.as_str())
}

fn features(document: &Map<String, Value>) -> Option<&Map<String, Value>> {
    document.get(HUGGINGFACE)?.get("info")?.get("features")?.as_object()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(key: &str, classes: &str, note: &str) -> (ObjectInfo, Table) {
        let features = format!(r#"{{"label": {{"names": [{classes}]}}, "text": {{}}}}"#);
        let info = format!(r#"{{"info": {{"features": {features}}}, "fingerprint": "{key}"}}"#);
        let metadata = vec![(HUGGINGFACE.into(), info), ("note".into(), note.into())];
        let info = ObjectInfo { key: key.into(), size_bytes: 1, etag: None, version: None };
        (info, Table { metadata, ..Table::default() })
    }

    #[test]
    fn files_must_agree_on_the_classes_of_wanted_columns() {
        let uri: OriginUri = "s3://bucket/data".parse().expect("valid");
        let alike = [file("x", r#""cat", "dog""#, "one"), file("y", r#""cat", "dog""#, "two")];
        let document: Value =
            serde_json::from_str(&of(&uri, &alike, None).expect("alike")).expect("a JSON document");
        assert_eq!(document[HUGGINGFACE]["info"]["features"]["label"]["names"][1], "dog");
        assert_eq!(document.get("note"), None, "the files say different things");
        let others = [file("x", r#""cat", "dog""#, ""), file("y", r#""dog", "cat""#, "")];
        let why = of(&uri, &others, None).expect_err("other classes").to_string();
        assert!(why.contains("'x' and 'y' describe the column 'label' differently"), "{why}");
        assert!(of(&uri, &others, Some(&["text".into()])).is_ok());
    }

    #[test]
    fn features_say_which_bytes_are_pictures() {
        let column = |name: &str| larder_formats::Column {
            name: name.into(),
            dtype: crate::Dtype::U8,
            logical: Logical::Bytes,
            shape: Vec::new(),
            ragged: true,
            rows: larder_formats::Rows::Spans(larder_formats::Spans::default()),
            absent: Vec::new(),
        };
        let (info, mut table) = file("x", "", "");
        table.columns = vec![column("photo.bytes"), column("other.bytes")];
        let mut tables = [(info, table)];
        let features = r#"{"photo": {"_type": "Image"}, "x": {"_type": "Value"}}"#;
        let document = format!(r#"{{"huggingface": {{"info": {{"features": {features}}}}}}}"#);
        name_media(&document, &mut tables);
        let found: Vec<_> = tables[0].1.columns.iter().map(|column| column.logical).collect();
        assert_eq!(found, [Logical::Image, Logical::Bytes]);
    }
}
