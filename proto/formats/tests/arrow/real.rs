//! Fixtures of pyarrow and `datasets`. Every row must have the bytes that pyarrow reads back.

use std::collections::BTreeMap;

use larder_formats::{Column, Dtype, Rows, Table};
use serde_json::Value;

use super::{File, fixture, scan};

fn expectations() -> BTreeMap<String, Value> {
    serde_json::from_slice(&fixture("expected.json")).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn rows_of(column: &Column, file: &[u8], rows: u64) -> Vec<String> {
    let row_bytes = column.shape.iter().product::<u64>() * column.dtype.size_bytes();
    let at = |begin: u64, bytes: u64| {
        let at = |offset: u64| usize::try_from(offset).unwrap();
        hex(&file[at(begin)..at(begin + bytes)])
    };
    match &column.rows {
        Rows::Strided { begin, stride } => {
            assert_eq!((*stride, column.ragged), (row_bytes, false));
            (0..rows).map(|row| at(begin + row * stride, row_bytes)).collect()
        }
        Rows::Spans(spans) => {
            let lengths = (0..spans.len()).map(|row| spans.bytes(row));
            assert!(column.ragged || lengths.into_iter().all(|bytes| bytes == row_bytes));
            spans.iter().map(|range| at(range.start, range.end - range.start)).collect()
        }
        Rows::Inline(_) | Rows::Blocks(_) => panic!("a scan of Arrow only finds values"),
    }
}

fn compare(name: &str, file: &[u8], table: &Table, expected: &Value) {
    assert_eq!(table.rows, expected["rows"], "{name}");
    let metadata: BTreeMap<String, String> = table.metadata.iter().cloned().collect();
    assert_eq!(serde_json::to_value(metadata).unwrap(), expected["metadata"], "{name}");
    let columns = expected["columns"].as_array().unwrap();
    let names: Vec<&str> = table.columns.iter().map(|column| &*column.name).collect();
    assert_eq!(names, columns.iter().map(|c| c["name"].as_str().unwrap()).collect::<Vec<_>>());
    for (column, expected) in table.columns.iter().zip(columns) {
        let place = format!("{name}: {}", column.name);
        let dtype = expected["dtype"].as_str().and_then(Dtype::from_safetensors_name);
        assert_eq!(Some(column.dtype), dtype, "{place}");
        assert_eq!(serde_json::to_value(&column.shape).unwrap(), expected["shape"], "{place}");
        assert_eq!(column.ragged, expected["ragged"], "{place}");
        let rows = serde_json::to_value(rows_of(column, file, table.rows)).unwrap();
        assert_eq!(rows, expected["rows"], "{place}");
    }
    let told = table.left_out.iter().map(|(name, why)| (&**name, &**why));
    let nulls = table.nulls.iter().map(|name| (&**name, "is all null"));
    let left_out: BTreeMap<&str, &str> = told.chain(nulls).collect();
    let expected = expected["left_out"].as_object().unwrap();
    assert_eq!(left_out.len(), expected.len(), "{name}: {left_out:?}");
    for (column, why) in expected {
        assert!(left_out[&**column].ends_with(why.as_str().unwrap()), "{name}: {left_out:?}");
    }
}

#[test]
fn rows_equal_those_of_pyarrow() {
    let mut random = fastrand::Rng::with_seed(1);
    let expected = expectations();
    assert_eq!(expected.len(), 10);
    for (name, expected) in expected {
        let bytes = fixture(&name);
        for _ in 0..20 {
            let table = File::of(&bytes).scan(&mut random).unwrap();
            compare(&name, &bytes, &table, &expected);
        }
    }
}

#[test]
fn fixed_rows_of_a_single_batch_are_strided() {
    let bytes = fixture("kinds.file.arrow");
    let table = scan(&bytes).unwrap();
    for column in &table.columns {
        let is_strided = matches!(column.rows, Rows::Strided { .. });
        assert_eq!(is_strided, !column.ragged, "{}", column.name);
    }
}

#[test]
fn left_out_columns_have_their_reasons() {
    let bytes = fixture("mixed.stream.arrow");
    let table = scan(&bytes).unwrap();
    let mut found: Vec<_> = table.left_out.iter().map(|(name, why)| (&**name, &**why)).collect();
    found.sort_unstable();
    let expected = [
        ("binary_view", "holds string views: not yet"),
        ("bool", "holds bit-packed booleans: not yet"),
        ("decimal", "holds decimals: not yet"),
        ("dense_union", "holds unions: not yet"),
        ("dictionary", "holds dictionary indices: not yet"),
        ("flags", "holds fixed lists of bit-packed booleans: not yet"),
        ("interval", "holds intervals: not yet"),
        ("late_null", "has nulls: not yet"),
        ("list_of_structs", "holds lists of structs: not yet"),
        ("list_view", "holds list views: not yet"),
        ("map", "holds maps: not yet"),
        ("nested", "holds lists of lists: not yet"),
        ("null_inside", "has nulls: not yet"),
        ("null_pair", "has nulls: not yet"),
        ("null_words", "has nulls: not yet"),
        ("run_ends", "holds run-end encoded values: not yet"),
        ("some_nulls", "has nulls: not yet"),
        ("sparse_union", "holds unions: not yet"),
        ("utf8_view", "holds string views: not yet"),
        ("words", "holds lists of strings or bytes: not yet"),
    ];
    assert_eq!(found, expected);
    assert_eq!(table.nulls, ["null", "all_null"]);
}

#[test]
fn features_of_datasets_are_in_the_metadata() {
    let bytes = fixture("saved.stream.arrow");
    let table = scan(&bytes).unwrap();
    let (_, json) = table.metadata.iter().find(|(key, _)| key == "huggingface").unwrap();
    let json: Value = serde_json::from_str(json).unwrap();
    assert_eq!(json["info"]["features"]["label"]["names"], serde_json::json!(["cat", "dog"]));
    let names: Vec<&str> = table.columns.iter().map(|column| &*column.name).collect();
    assert_eq!(names, ["image.bytes", "label", "caption", "boxes", "point"]);
    assert_eq!((table.left_out, table.nulls), (Vec::new(), vec!["image.path".to_owned()]));
}
