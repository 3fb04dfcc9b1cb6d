//! Fixtures of pyarrow and `datasets`. Every row must have the bytes that pyarrow reads back.

use std::collections::BTreeMap;

use larder_formats::{Column, Dtype, Logical, Rows, RowsWanted, Table};
use serde_json::Value;

use super::{File, fixture, scan};

fn expectations() -> BTreeMap<String, Value> {
    serde_json::from_slice(&fixture("expected.json")).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn rows_of(column: &Column, file: &[u8], rows: u64) -> Vec<Vec<u8>> {
    let row_bytes = column.shape.iter().product::<u64>() * column.dtype.size_bytes();
    let at = |offset: u64| usize::try_from(offset).unwrap();
    let cut = |begin: u64, bytes: u64| file[at(begin)..at(begin + bytes)].to_vec();
    match &column.rows {
        Rows::Strided { begin, stride } => {
            assert_eq!((*stride, column.ragged), (row_bytes, false));
            (0..rows).map(|row| cut(begin + row * stride, row_bytes)).collect()
        }
        Rows::Spans(spans) => {
            let lengths = (0..spans.len()).map(|row| spans.bytes(row));
            assert!(column.ragged || lengths.into_iter().all(|bytes| bytes == row_bytes));
            spans.iter().map(|range| cut(range.start, range.end - range.start)).collect()
        }
        Rows::Blocks(blocks) => {
            let (mut made, mut lengths) = (Vec::new(), Vec::new());
            let scalar_bytes = column.dtype.size_bytes();
            for placed in &blocks.blocks {
                let row_bytes = (!column.ragged).then_some(row_bytes);
                let wanted = RowsWanted { rows: placed.rows.into(), row_bytes, scalar_bytes };
                let stored = cut(placed.range.start, placed.range.end - placed.range.start);
                let mut put = |bytes: &[u8], rows: &[u32]| {
                    made.extend_from_slice(bytes);
                    lengths.extend_from_slice(rows);
                    Ok(())
                };
                placed.block.make(wanted, &stored, blocks.recipes.as_bytes(), &mut put).unwrap();
            }
            assert_eq!(blocks.lengths, column.ragged.then(|| lengths.clone()), "{}", column.name);
            if !column.ragged {
                lengths = vec![u32::try_from(row_bytes).unwrap(); at(rows)];
            }
            let mut rest = made.as_slice();
            let cut = |length: u32| {
                let (row, after) = rest.split_at(length as usize);
                rest = after;
                row.to_vec()
            };
            let rows = lengths.into_iter().map(cut).collect();
            assert!(rest.is_empty(), "{}", column.name);
            rows
        }
        Rows::Inline(_) => panic!("a scan of Arrow keeps no values"),
    }
}

/// Compares the mask of a column with the rows that have a value.
fn compare_mask(mask: Option<&Column>, file: &[u8], rows: u64, expected: &Value, place: &str) {
    let Some(mask) = mask else {
        assert!(expected.is_null(), "{place} has no mask");
        return;
    };
    let found: Vec<bool> = rows_of(mask, file, rows).iter().map(|row| row == &[1]).collect();
    let Rows::Blocks(blocks) = &mask.rows else { panic!("{place}: a mask is made") };
    match expected.as_array() {
        Some(valid) => {
            assert_eq!(found, valid.iter().map(|v| v == true).collect::<Vec<_>>(), "{place}");
        }
        None => assert!(found.iter().all(|&valid| valid) && blocks.is_redundant, "{place}"),
    }
}

fn compare(name: &str, file: &[u8], table: &Table, expected: &Value) {
    assert_eq!(table.rows, expected["rows"], "{name}");
    let metadata: BTreeMap<String, String> = table.metadata.iter().cloned().collect();
    assert_eq!(serde_json::to_value(metadata).unwrap(), expected["metadata"], "{name}");
    let columns = expected["columns"].as_array().unwrap();
    let is_mask = |column: &&Column| column.name.ends_with(".valid");
    let values = || table.columns.iter().filter(|column| !is_mask(column));
    let names: Vec<&str> = values().map(|column| &*column.name).collect();
    let wanted: Vec<&str> = columns.iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, wanted, "{name}: {:?}", table.left_out);
    for (column, expected) in values().zip(columns) {
        let place = format!("{name}: {}", column.name);
        let dtype = expected["dtype"].as_str().and_then(Dtype::from_safetensors_name);
        assert_eq!(Some(column.dtype), dtype, "{place}");
        assert_eq!(serde_json::to_value(&column.shape).unwrap(), expected["shape"], "{place}");
        assert_eq!(column.ragged, expected["ragged"], "{place}");
        let rows = rows_of(column, file, table.rows);
        if let Some(values) = expected["json"].as_array() {
            assert_eq!(column.logical, Logical::Json, "{place}");
            let parsed = |row: &Vec<u8>| match row.is_empty() {
                true => Value::Null,
                false => serde_json::from_slice(row).unwrap(),
            };
            assert_eq!(&rows.iter().map(parsed).collect::<Vec<Value>>(), values, "{place}");
        } else {
            let rows: Vec<String> = rows.iter().map(|row| hex(row)).collect();
            assert_eq!(serde_json::to_value(rows).unwrap(), expected["rows"], "{place}");
        }
        let mask = format!("{}.valid", column.name);
        let mask = table.columns.iter().find(|column| column.name == mask);
        compare_mask(mask, file, table.rows, &expected["valid"], &place);
    }
    let left_out: BTreeMap<&str, &str> =
        table.left_out.iter().map(|(name, why)| (&**name, &**why)).collect();
    let why_expected = expected["left_out"].as_object().unwrap();
    assert_eq!(left_out.len(), why_expected.len(), "{name}: {left_out:?}");
    for (column, why) in why_expected {
        assert!(left_out[&**column].ends_with(why.as_str().unwrap()), "{name}: {left_out:?}");
    }
    let (mut nulls, mut expected): (Vec<_>, Vec<String>) =
        (table.nulls.clone(), serde_json::from_value(expected["nulls"].clone()).unwrap());
    nulls.sort();
    expected.sort();
    assert_eq!(nulls, expected, "{name}");
}

#[test]
fn rows_equal_those_of_pyarrow() {
    let mut random = fastrand::Rng::with_seed(1);
    let expected = expectations();
    assert_eq!(expected.len(), 16);
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
        let is_made = matches!(column.rows, Rows::Blocks(_));
        assert_eq!(is_made, column.name.starts_with("some_struct"), "{}", column.name);
        assert!(is_made || is_strided != column.ragged, "{}", column.name);
    }
}

#[test]
fn left_out_columns_have_their_reasons() {
    let bytes = fixture("mixed.stream.arrow");
    let table = scan(&bytes).unwrap();
    let mut found: Vec<_> = table.left_out.iter().map(|(name, why)| (&**name, &**why)).collect();
    found.sort_unstable();
    let expected = [
        ("decimal", "holds decimals: not yet"),
        ("dense_union", "holds unions: not yet"),
        ("interval", "holds intervals: not yet"),
        ("list_view", "holds list views: not yet"),
        ("pictures", "holds lists of bytes: not yet"),
        ("run_ends", "holds run-end encoded values: not yet"),
        ("sparse_union", "holds unions: not yet"),
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
