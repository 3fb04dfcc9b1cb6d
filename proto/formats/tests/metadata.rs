//! Metadata of folders with pictures: types, absent values, and mistakes with their lines.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use larder_formats::{
    Dtype,
    metadata::{Metadata, MetadataColumn, parse_csv, parse_jsonl},
};
use proptest::prelude::*;

fn csv(text: &str) -> Metadata {
    parse_csv(text.as_bytes()).unwrap()
}

fn jsonl(text: &str) -> Metadata {
    parse_jsonl(text.as_bytes()).unwrap()
}

fn fault(result: Result<Metadata, larder_formats::Fault>) -> String {
    let fault = result.unwrap_err();
    format!("{}: {}", fault.field, fault.why)
}

fn column<'a>(metadata: &'a Metadata, name: &str) -> &'a MetadataColumn {
    metadata.columns.iter().find(|column| column.name == name).unwrap()
}

fn texts(column: &MetadataColumn) -> Vec<String> {
    assert_eq!((column.dtype, column.ragged), (Dtype::U8, true));
    let text = |row| String::from_utf8(column.values.value(row).to_vec()).unwrap();
    (0..column.values.len()).map(text).collect()
}

fn words(column: &MetadataColumn, dtype: Dtype) -> Vec<[u8; 8]> {
    assert_eq!((column.dtype, column.ragged), (dtype, false));
    (0..column.values.len()).map(|row| column.values.value(row).try_into().unwrap()).collect()
}

fn integers(column: &MetadataColumn) -> Vec<i64> {
    words(column, Dtype::I64).into_iter().map(i64::from_le_bytes).collect()
}

fn floats(column: &MetadataColumn) -> Vec<f64> {
    words(column, Dtype::F64).into_iter().map(f64::from_le_bytes).collect()
}

#[test]
fn csv_columns_are_typed_by_all_values() {
    let read = csv("\u{feff}file_name,n,x,text,empty\r\n\
         a/1.png,1,1.5,\"a, \"\"b\"\"\nc\",\r\n\
         2.png,-2,3,,\r\n\
         3,,nan,true,\r\n");
    assert_eq!(read.file_names, ["a/1.png", "2.png", "3"]);
    assert_eq!(integers(column(&read, "n")), [1, -2, 0]);
    assert_eq!(column(&read, "n").absent, [2]);
    let x = floats(column(&read, "x"));
    assert_eq!(x[..2], [1.5, 3.0]);
    assert!(x[2].is_nan());
    assert_eq!(texts(column(&read, "text")), ["a, \"b\"\nc", "", "true"]);
    assert_eq!(column(&read, "text").absent, [1]);
    assert_eq!(texts(column(&read, "empty")), [""; 3]);
    assert_eq!(column(&read, "empty").absent, [0, 1, 2]);
}

#[test]
fn jsonl_columns_are_typed_by_all_values() {
    let read = jsonl(
        "\u{feff}{\"file_name\": \"1\", \"b\": true, \"n\": 1, \"mixed\": 1.10}\r\n\n\
         {\"late\": {\"k\": [1,  2]}, \"b\": null, \"file_name\": \"2\", \"mixed\": \"\\u00fc\"}\n\
         {\"file_name\": \"3\", \"b\": false, \"n\": 2.5, \"mixed\": false, \"late\": \"\"}",
    );
    assert_eq!(read.file_names, ["1", "2", "3"]);
    let b = column(&read, "b");
    assert_eq!((b.dtype, b.ragged, &b.absent[..]), (Dtype::Bool, false, &[1][..]));
    assert_eq!((0..3).map(|row| b.values.value(row)).collect::<Vec<_>>(), [[1], [0], [0]]);
    assert_eq!(floats(column(&read, "n")), [1.0, 0.0, 2.5]);
    assert_eq!(column(&read, "n").absent, [1]);
    assert_eq!(texts(column(&read, "mixed")), ["1.10", "ü", "false"]);
    assert_eq!(texts(column(&read, "late")), ["", "{\"k\": [1,  2]}", ""]);
    assert_eq!(column(&read, "late").absent, [0]);
}

#[test]
fn numbers_that_would_lose_digits_stay_text() {
    let kept = [
        ["007", "1"],
        ["+49", "1"],
        ["-01", "1"],
        ["9223372036854775808", "1"],
        ["9007199254740992", "1.5"],
        ["1e999", "1"],
        ["1 ", "2"],
    ];
    for [a, b] in kept {
        let read = csv(&format!("file_name,x\n1,{a}\n2,{b}\n"));
        assert_eq!(texts(column(&read, "x")), [a, b]);
    }
    let read = csv("file_name,x,y\n1,9223372036854775807,9007199254740991\n2,0,-1e-05\n3,-0,inf\n");
    assert_eq!(integers(column(&read, "x")), [i64::MAX, 0, 0]);
    assert_eq!(floats(column(&read, "y")), [9_007_199_254_740_991.0, -1e-5, f64::INFINITY]);
}

#[test]
fn metadata_without_rows_is_empty() {
    assert_eq!(csv("file_name,x\n"), Metadata::default());
    assert_eq!(jsonl(" \n"), Metadata::default());
}

#[test]
fn mistakes_in_csv_are_reported_with_their_line() {
    let long = "x".repeat(70_000);
    let name = "n".repeat(1025);
    for (text, told) in [
        ("", "line 1: names no column 'file_name'"),
        ("name,x\n", "line 1: names no column 'file_name'"),
        ("file_name,x,x\n", "line 1: names the column 'x' twice"),
        ("file_name,x\n\na,1\nb\n", "line 4: has 1 fields, the first line has 2"),
        ("file_name,x\n,1\n", "line 2 column 'file_name': is no text"),
        ("file_name\na\nb\n\"a\"\n", "line 4: names the file 'a', as line 2 does"),
        ("file_name\n../a\n", "line 2 column 'file_name': '../a' is not a path inside the folder"),
        ("file_name,\na,b\n", "line 2 column '': has no name, or one of more than 1024 bytes"),
        (&format!("file_name,{name}\na,b\n"), "has no name, or one of more than 1024 bytes"),
        (&format!("file_name,t\na,{long}\n"), "line 2 column 't': has 70000 bytes, over 65536"),
    ] {
        let fault = fault(parse_csv(text.as_bytes()));
        assert!(fault.contains(told), "{fault}");
    }
    let fault = fault(parse_csv(b"file_name\na\n\xFF\n"));
    assert!(fault.starts_with("line 3: is not UTF-8"), "{fault}");
}

#[test]
fn mistakes_in_jsonl_are_reported_with_their_line() {
    for (text, told) in [
        ("\n{\"file_name\": 1}", "line 2 column 'file_name': is no text"),
        ("{\"file_name\": null}", "line 1 column 'file_name': is no text"),
        ("{\"file_name\": [\"a\"]}", "line 1 column 'file_name': is no text"),
        ("{\"x\": 1}", "line 1: has no 'file_name'"),
        ("{\"file_name\": \"a\", \"x\": 1, \"x\": 2}", "line 1 column 'x': is there twice"),
        ("{\"file_name\": \"a\", \"file_name\": \"b\"}", "column 'file_name': is there twice"),
        ("{\"file_name\": \"/a\"}", "line 1 column 'file_name': '/a' is not a path"),
        ("{\"file_name\": \"a\"}\n{\"file_name\": \"a\"}", "line 2: names the file 'a', as line 1"),
        ("[1]", "line 1: is no object: invalid type: sequence"),
        ("{\"file_name\": \"a\"} x", "line 1: is no object: trailing characters"),
        ("{\"file_name\": \"\\ud800\"}", "line 1: is no object: "),
    ] {
        let fault = fault(parse_jsonl(text.as_bytes()));
        assert!(fault.contains(told), "{fault}");
    }
}

#[test]
fn columns_over_the_limit_are_a_fault() {
    let names: Vec<String> = (0..4097).map(|n| format!("c{n}")).collect();
    let header = format!("file_name,{}\na{}\n", names.join(","), ",1".repeat(4097));
    assert!(fault(parse_csv(header.as_bytes())).contains("comes after 4096 others"));
    let fields: Vec<String> = names.iter().map(|name| format!("\"{name}\": 1")).collect();
    let line = format!("{{\"file_name\": \"a\", {}}}", fields.join(", "));
    assert!(fault(parse_jsonl(line.as_bytes())).contains("more than 4096 columns"));
}

#[test]
fn commas_over_the_limit_are_a_fault() {
    assert!(fault(parse_csv(&vec![b','; (64 << 20) + 1])).contains("commas, over 67108864"));
}

proptest! {
    #[test]
    fn random_bytes_are_parsed_or_refused(
        bytes in proptest::collection::vec(
            prop::sample::select(&b"file_name,,\"\"\n\n{}:[]1-.e\\u\xFF"[..]), 0..80,
        ),
    ) {
        for parsed in [
            parse_csv(&[b"file_name,x\n", &bytes[..]].concat()),
            parse_jsonl(&[b"{\"file_name\":\"a\",", &bytes[..]].concat()),
        ] {
            let Ok(parsed) = parsed else { continue };
            for column in parsed.columns {
                prop_assert_eq!(column.values.len(), parsed.file_names.len());
            }
        }
    }

    #[test]
    fn integers_and_floats_survive_both_formats(
        values in proptest::collection::vec((any::<i64>(), any::<f64>()), 1..20),
    ) {
        let (mut table, mut lines) = ("file_name,n,x\n".to_string(), String::new());
        for (row, (n, x)) in values.iter().enumerate() {
            table += &format!("{row},{n},{x:e}\n");
            lines += &format!("{{\"file_name\":\"{row}\",\"n\":{n},\"x\":{x:e}}}\n");
        }
        let (n, x): (Vec<i64>, Vec<f64>) = values.into_iter().unzip();
        for read in [csv(&table), jsonl(&lines)] {
            prop_assert_eq!(integers(column(&read, "n")), &n[..]);
            prop_assert_eq!(floats(column(&read, "x")), &x[..]);
        }
    }
}
