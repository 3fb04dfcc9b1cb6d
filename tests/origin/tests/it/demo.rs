//! The program of the demo, as the demo runs it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use larder_origin::demo_data;
use serde_json::Value;

use crate::support::{PATIENCE, talk};

#[test]
fn help_says_that_it_ends_with_its_input() {
    let help =
        Command::new(env!("CARGO_BIN_EXE_larder-demo-origin")).arg("--help").output().unwrap();
    let said = String::from_utf8(help.stdout).unwrap();
    assert!(said.contains("until standard input closes"), "{said}");
}

#[test]
fn program_prints_its_address_and_ends_with_its_input() {
    let directory = tempfile::tempdir().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_larder-demo-origin"))
        .arg("--dir")
        .arg(directory.path())
        .args(["--samples", "5", "--per-file", "3"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let started: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(started["access_key"], larder_origin::ACCESS_KEY);
    assert_eq!(started["dataset"]["uri"], "s3://demo/images");
    assert_eq!(started["dataset"]["files"], 2);

    let address = |name: &str| {
        let url = started[name].as_str().unwrap().strip_prefix("http://").unwrap();
        url.split('/').next().unwrap().to_owned()
    };
    let request =
        |target: &str| format!("GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let unsigned = talk(&address("endpoint"), request("/demo/images").as_bytes(), PATIENCE);
    assert_eq!(unsigned.status, 403);
    let counts = talk(&address("counts_endpoint"), request("/_counts").as_bytes(), PATIENCE);
    let counts: Value = serde_json::from_slice(&counts.body).unwrap();
    assert_eq!((&counts["requests"], &counts["object_reads"]), (&1.into(), &0.into()));

    let part = std::fs::read(directory.path().join("demo/images/part-00001.safetensors")).unwrap();
    let label_and_image =
        [&3_i64.to_le_bytes(), &4_i64.to_le_bytes(), demo_data::sample(3).0.as_slice()].concat();
    assert!(part.windows(label_and_image.len()).any(|bytes| bytes == label_and_image));

    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
}
