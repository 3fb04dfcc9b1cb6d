//! Tests of the page that shows a cluster to an operator.

use larder_client::{
    Error, ErrorKind,
    admin::{ChangeEdit, ClusterChange, ClusterDataset, MemoryUse, NodeDescription},
};

use super::*;
use crate::output::{Page, Report};

fn member(id: &str) -> ClusterNode {
    let (id, control) = (id.to_owned(), format!("http://{id}:7070"));
    let mut node = ClusterNode { announced: true, ring_version: 7, since: 3, ..Default::default() };
    let member = node.member.get_or_insert_default();
    (member.id, member.control, member.weight) = (id, control, 1);
    node.set_state(NodeState::Active);
    node
}

fn cluster(nodes: Vec<ClusterNode>) -> ClusterStatus {
    let mut status = ClusterStatus {
        node_id: "a".to_owned(),
        cluster: vec![0xc1; 16].into(),
        generation: 2,
        ring_version: 7,
        installed: 7,
        nodes,
        coordinator_address: "http://a:7070".to_owned(),
        datasets: vec![ClusterDataset { bytes: 3 << 30, ..Default::default() }],
        datasets_measured: 1,
        ..ClusterStatus::default()
    };
    status.set_coordinator(CoordinatorKind::Node);
    status
}

fn seen(id: &str, ring_version: u64, ring_digest: u64) -> NodeAnswers {
    let memory = MemoryUse { resident_bytes: 2 << 30, ..MemoryUse::default() };
    let description =
        NodeDescription { ring_version, ring_digest, memory: Some(memory), ..Default::default() };
    let standing = ClusterStatus { installed: ring_version, ring_version, ..Default::default() };
    NodeAnswers { id: id.to_owned(), description: Ok(description), standing: Ok(standing) }
}

fn silent(id: &str) -> NodeAnswers {
    let error = || Error::new(ErrorKind::Unavailable, "it does not answer");
    NodeAnswers { id: id.to_owned(), description: Err(error()), standing: Err(error()) }
}

fn shown(report: &StatusReport) -> String {
    let mut page = Page::new(false, false);
    report.show(&mut page);
    page.text().to_owned()
}

#[test]
fn cluster_without_a_change_is_shown_as_one_table() {
    let mut nodes = vec![member("a"), member("b")];
    (nodes[0].owned_bytes, nodes[1].owned_bytes) = (3 << 30, 1 << 30);
    let report = report(cluster(nodes), &[seen("a", 7, 1), seen("b", 7, 1)]);
    assert!(report.agree && report.warnings().is_empty());
    let text = shown(&report);
    for words in ["UA", "75.0 %", "25.0 %", "2.0 GiB", "ring      7", "http://a:7070, generation 2"]
    {
        assert!(text.contains(words), "{words:?} is missing in\n{text}");
    }
}

#[test]
fn copies_of_stand_ins_are_shown_only_where_there_are_some() {
    let two = || cluster(vec![member("a"), member("b")]);
    let mut stand_in = seen("b", 7, 1);
    stand_in.standing.as_mut().unwrap().extra_copies = 3;
    let text = shown(&report(two(), &[seen("a", 7, 1), stand_in]));
    assert!(text.contains("extra copies  3 on b\n"), "{text}");
    let text = shown(&report(two(), &[seen("a", 7, 1), seen("b", 7, 1)]));
    assert!(!text.contains("extra"), "{text}");
}

#[test]
fn shares_follow_weights_when_no_dataset_is_open() {
    let mut joining = member("c");
    joining.set_state(NodeState::Joining);
    let mut heavy = member("b");
    heavy.member.as_mut().unwrap().weight = 3;
    let report = report(cluster(vec![member("a"), heavy, joining]), &[]);
    let owns: Vec<f64> = report.nodes.iter().map(|node| node.owns).collect();
    assert_eq!(owns, [0.25, 0.75, 0.0]);
    assert_eq!(report.nodes[2].letters, "UJ");
}

#[test]
fn absent_node_is_shown_with_the_reason() {
    let mut gone = member("b");
    gone.announced = false;
    let mut status = cluster(vec![member("a"), gone]);
    status.braked = true;
    let report = report(status, &[seen("a", 7, 1), silent("b")]);
    assert_eq!(report.nodes[1].letters, "DA");
    assert!(shown(&report).contains("no answer from b: it does not answer"));
    let warnings = report.warnings();
    assert!(warnings[0].contains("quarter") && warnings[0].contains("ring remove"), "{warnings:?}");
    assert!(report.agree, "who is silent disagrees with nobody");
}

#[test]
fn nodes_on_different_rings_cause_a_warning() {
    let two = || cluster(vec![member("a"), member("b")]);
    let behind = report(two(), &[seen("a", 7, 1), seen("b", 6, 2)]);
    assert!(!behind.agree);
    assert!(behind.warnings()[0].contains("b goes by ring 6"), "{:?}", behind.warnings());
    let differ = report(two(), &[seen("a", 7, 1), seen("b", 7, 2)]);
    assert!(differ.warnings()[0].contains("differently"), "{:?}", differ.warnings());
}

#[test]
fn change_is_shown_with_the_progress_of_each_node() {
    let mut joining = member("c");
    joining.set_state(NodeState::Joining);
    let mut status = cluster(vec![member("a"), joining]);
    status.change = Some(ClusterChange {
        number: 12,
        edits: vec![ChangeEdit { node_id: "c".to_owned(), weight: 1, weight_before: 0 }],
        moves: 40,
        bytes: 4 << 30,
        receivers: 1,
        rate: Some(512 << 20),
        asked_by: "ops@host".to_owned(),
        ..ClusterChange::default()
    });
    let mut receiver = seen("c", 7, 1);
    let progress =
        MoveProgress { shards_left: 10, shards: 40, bytes_left: 1 << 30, bytes: 4 << 30 };
    receiver.standing.as_mut().unwrap().progress = Some(progress);
    let report = report(status, &[seen("a", 7, 1), receiver]);
    let change = report.change.as_ref().unwrap();
    assert_eq!((change.bytes_left, change.eta_seconds), (1 << 30, Some(2.0)));
    let eta = |node: usize| report.nodes[node].progress.as_ref().and_then(|to| to.eta_seconds);
    assert_eq!((eta(0), eta(1)), (None, Some(2.0)));
    let text = shown(&report);
    for words in [
        "Change 12: c joins",
        "3.0 GiB of 4.0 GiB, 75 %",
        "at most 512 MiB/s",
        "2 s at that rate",
        "ops@host",
        "1.0 GiB in 10 shards",
    ] {
        assert!(text.contains(words), "{words:?} is missing in\n{text}");
    }
}

#[test]
fn unreachable_coordinator_causes_a_warning() {
    let mut status = cluster(vec![member("a")]);
    status.away = "connection refused".to_owned();
    let report = report(status, &[seen("a", 7, 1)]);
    assert!(report.warnings()[0].contains("connection refused"), "{:?}", report.warnings());
}

#[test]
fn node_without_a_record_is_a_failure_of_its_own() {
    let mut status = ClusterStatus { node_id: "a".to_owned(), ..ClusterStatus::default() };
    let failure = no_record(&status);
    assert_eq!(failure.exit, Exit::Unavailable);
    assert_eq!(failure.what, "node a has not seen the record of its cluster yet");
    assert!(failure.why.is_none() && failure.hint.is_some_and(|hint| hint.contains("--cluster")));
    status.away = "connection refused".to_owned();
    assert_eq!(no_record(&status).why.as_deref(), Some("connection refused"));
}
