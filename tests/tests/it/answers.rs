//! The JSON of the admin tool: every command with `-o json`, compared with a checked-in file.
//!
//! Scripts rely on the names and shapes. With `LARDER_BLESS=1` the file is written instead.

use std::fs;

use larder_tests::scripted::{Script, ScriptedNode};
use larder_tests::tool;
use larder_tests::write_npy;
use larder_wire::control::{ClusterDataset, Explanation, Failure, ShardState, ShardStatus};
use serde_json::{Map, Value};

use crate::operator::{TOKEN, committed, here, moving, script};

/// Compares a map of commands and their JSON with `answers/NAME.json`.
fn is_as_checked_in(name: &str, answers: Map<String, Value>) {
    let path = format!("{}/tests/it/answers/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let answers = Value::Object(answers);
    if std::env::var_os("LARDER_BLESS").is_some_and(|value| value == "1") {
        let text = serde_json::to_string_pretty(&answers).expect("JSON") + "\n";
        return fs::write(path, text).expect("the checkout can be written to");
    }
    let checked_in = fs::read(path).expect("the checked-in answers");
    let checked_in: Value = serde_json::from_slice(&checked_in).expect("JSON");
    for (command, answer) in checked_in.as_object().expect("an object") {
        assert_eq!(&answers[command], answer, "the JSON of {command}");
    }
    assert_eq!(answers, checked_in);
}

/// A value with its leaves replaced by their types, and lists by their first element.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::Bool(_) => "bool".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Array(list) => list.iter().take(1).map(shape).collect(),
        Value::Object(map) => map.iter().map(|(key, one)| (key.clone(), shape(one))).collect(),
    }
}

fn explanation() -> Explanation {
    let owners = |id: &str| vec![id.to_owned()];
    let mut filling =
        ShardStatus { age_ms: 1500, leases: 1, waiters: 2, bytes_ready: 3, ..Default::default() };
    filling.set_state(ShardState::Filling);
    Explanation {
        node_id: "a".to_owned(),
        snapshot: vec![1; 32].into(),
        uri: "s3://bucket/data".to_owned(),
        shard: 12,
        shard_id: vec![0x5a; 16].into(),
        first_sample: 12_000,
        samples: 1000,
        bytes: 64 << 20,
        place: 0x91ace,
        ring_version: 7,
        owners: owners("a"),
        ring_owners: owners("b"),
        previous_ring_version: 6,
        previous_owners: owners("b"),
        here: vec![filling],
        failure: Some(Failure { message: "the origin is away".to_owned(), ..Default::default() }),
        ..Explanation::default()
    }
}

#[test]
fn what_nodes_say_has_the_same_json_as_ever() {
    let folder = here();
    let mut status = moving();
    let dataset = ClusterDataset {
        snapshot: vec![1; 32].into(),
        uri: "s3://bucket/data".to_owned(),
        shards: 4,
        bytes: 4 << 20,
    };
    (status.datasets, status.datasets_measured) = (vec![dataset], 1);
    status.nodes[0].deadline_ms = Some(90_000);
    if let Some(change) = &mut status.change {
        change.rate = Some(1 << 20);
    }
    let scripted = Script { explanation: explanation(), ..script(vec![status]) };
    let node = ScriptedNode::start(scripted);
    let mut answers = Map::new();
    let mut ask = |words: &str| {
        let args: Vec<&str> = words.split(' ').chain(["-o", "json"]).collect();
        let output = tool::larder(&node.address(), folder.path(), Some(TOKEN), &args);
        let answer = tool::json(&output).to_string().replace(&node.address(), "http://a");
        let answer = serde_json::from_str(&answer).expect("one JSON object");
        answers.insert(words.to_owned(), answer);
    };
    ask("ring status");
    ask("ring plan --add c --rate 1MiB/s --out my.plan");
    ask("ring apply my.plan --yes");
    for command in ["pause", "resume", "abort", "rate 1MiB/s", "remove c d"] {
        ask(&format!("ring {command} --yes"));
    }
    ask("ring takeover --lost b --yes");
    ask("node ls");
    ask("node show a");
    ask("node drain b --deadline 90s --yes");
    ask("node undrain b --yes");
    ask("dataset ls");
    ask(&format!("explain {}", "5a".repeat(16)));
    ask("explain s3://bucket/data#1234");
    node.script().statuses[0].change = None;
    node.script().history = committed();
    ask("ring history");
    ask("exit-codes");
    is_as_checked_in("nodes", answers);
}

#[test]
fn what_lies_on_the_origin_has_the_same_json_as_ever() {
    let folder = here();
    let data = folder.path().join("data");
    fs::create_dir(&data).expect("a folder");
    write_npy(&data.join("x.npy"), 100);
    fs::write(data.join("readme.txt"), "left out").expect("a file");
    let uri = format!("file://{}", data.display());
    let mut answers = Map::new();
    let mut ask = |words: &str| {
        let typed = words.replace("URI", &uri);
        let args: Vec<&str> = typed.split(' ').chain(["-o", "json"]).collect();
        let output = tool::larder("none", folder.path(), None, &args);
        let said = tool::said(&output);
        let answer = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
        answers.insert(words.to_owned(), shape(&answer));
    };
    ask("dataset index URI --tag v1 --checksum");
    ask("dataset ls URI");
    ask("dataset show URI@v1");
    ask("dataset verify URI@v1");
    ask("dataset sample URI@v1 3 --out 3.npy");
    ask("bench URI@v1 --seconds 1");
    ask("doctor URI");
    ask("completions bash");
    is_as_checked_in("origin", answers);
}
