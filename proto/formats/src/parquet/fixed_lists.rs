//! Lists that all have one length. Parquet has no such type. The schema of Arrow, which writers add
//! to the footer, tells them.

use std::collections::HashMap;

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::arrow;

/// Returns the lengths of such lists, by the name of their column. A file without the schema, or
/// with one that can't be read, has none: its lists are of any length.
pub(super) fn lengths(metadata: &[(String, String)]) -> HashMap<String, u64> {
    let schema = metadata.iter().find(|(key, _)| key == "ARROW:schema");
    let decoded = schema.and_then(|(_, text)| STANDARD.decode(text).ok());
    let known = decoded.map(|bytes| arrow::fixed_lists(&bytes));
    known.and_then(Result::ok).unwrap_or_default()
}
