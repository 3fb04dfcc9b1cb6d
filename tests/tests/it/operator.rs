//! The admin tool against a node that follows a script: its output for the operator, and its
//! requests to the cluster.

use std::path::Path;
use std::process::Output;

use larder_tests::scripted::{Script, ScriptedNode};
use larder_tests::tool::{self, json, said};
use larder_wire::control::{
    ChangeEdit, ClusterChange, ClusterNode, ClusterStatus, CoordinatorKind, Explanation, Member,
    MoveProgress, NodeFigures, NodeState, PastChange, PlanFigures,
    command_request::Command as Told,
};

pub(crate) const TOKEN: &str = "0123456789abcdef";

/// Runs the tool in a folder, with the token in its environment if there is one.
fn larder(node: &ScriptedNode, folder: &Path, token: Option<&str>, args: &[&str]) -> Output {
    tool::larder(&node.address(), folder, token, args)
}

pub(crate) fn here() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn node(id: &str, state: NodeState, owned_bytes: u64) -> ClusterNode {
    let member = Member {
        id: id.to_owned(),
        weight: 1,
        // No program listens there; the scripted node puts its own address in.
        control: "http://127.0.0.1:1".to_owned(),
        host: id.to_owned(),
        zone: String::new(),
    };
    let mut node = ClusterNode {
        member: Some(member),
        announced: id == "a",
        ring_version: 7,
        owned_bytes,
        ..ClusterNode::default()
    };
    node.set_state(state);
    node
}

fn at_rest() -> ClusterStatus {
    let mut status = ClusterStatus {
        node_id: "a".to_owned(),
        cluster: vec![0xc1; 16].into(),
        generation: 1,
        ring_version: 7,
        installed: 7,
        replicas: 2,
        nodes: vec![node("a", NodeState::Active, 3 << 30), node("b", NodeState::Active, 1 << 30)],
        coordinator_address: "http://127.0.0.1:2379".to_owned(),
        ..ClusterStatus::default()
    };
    status.set_coordinator(CoordinatorKind::Etcd);
    status
}

pub(crate) fn moving() -> ClusterStatus {
    let change = ClusterChange {
        number: 1,
        plan_id: vec![0xab; 16].into(),
        edits: vec![ChangeEdit { node_id: "c".to_owned(), weight: 1, weight_before: 0 }],
        moves: 40,
        bytes: 4 << 30,
        receivers: 1,
        asked_by: "ops@host".to_owned(),
        ..ClusterChange::default()
    };
    let progress =
        MoveProgress { shards_left: 10, shards: 40, bytes_left: 1 << 30, bytes: 4 << 30 };
    ClusterStatus { change: Some(change), progress: Some(progress), ..at_rest() }
}

pub(crate) fn committed() -> Vec<PastChange> {
    let words = "change 1 is committed: put c".to_owned();
    vec![PastChange {
        number: 1,
        ring_version: 8,
        committed: true,
        words,
        asked_by: "op@host".to_owned(),
        at_ms: 1_700_000_000_000,
    }]
}

fn figures() -> PlanFigures {
    PlanFigures {
        plan_id: vec![0xab; 16].into(),
        ring_version: 7,
        edits: moving().change.expect("a change").edits,
        moves: 40,
        bytes: 4 << 30,
        bytes_ideal: 4 << 30,
        nodes: vec![NodeFigures {
            node_id: "c".to_owned(),
            weight: 1,
            bytes_in: 4 << 30,
            ..Default::default()
        }],
        ..PlanFigures::default()
    }
}

pub(crate) fn script(statuses: Vec<ClusterStatus>) -> Script {
    Script {
        statuses,
        figures: figures(),
        plan: (0..=255).cycle().take(1000).collect(),
        token: TOKEN.into(),
        ..Script::default()
    }
}

#[test]
fn status_shows_silent_nodes_and_moves() {
    let folder = here();
    let node = ScriptedNode::start(script(vec![moving()]));
    let status = json(&larder(&node, folder.path(), None, &["ring", "status", "-o", "json"]));
    assert_eq!(status["coordinator"]["kind"], "etcd");
    assert_eq!(
        (&status["nodes"][0]["letters"], &status["nodes"][1]["letters"]),
        (&"UA".into(), &"DA".into())
    );
    assert_eq!(status["nodes"][0]["owns"], 0.75);
    assert_eq!(status["nodes"][0]["resident_bytes"], 3_u64 << 30);
    assert!(status["nodes"][1]["why"].is_string());
    assert_eq!((&status["agree"], &status["braked"]), (&true.into(), &false.into()));
    assert_eq!(status["change"]["bytes_left"], 1_u64 << 30);
    let output = larder(&node, folder.path(), None, &["ring", "status"]);
    assert_eq!(output.status.code(), Some(5), "b does not answer: {}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for words in
        ["etcd at", "75.0 %", "no answer from b", "Change 1: c joins", "3.0 GiB of 4.0 GiB, 75 %"]
    {
        assert!(text.contains(words), "{words:?} is missing in\n{text}");
    }
}

#[test]
fn plan_is_saved_in_a_file_and_applied_by_its_hash() {
    let folder = here();
    let node = ScriptedNode::start(script(vec![at_rest()]));
    let args =
        ["ring", "plan", "--add", "c", "--reweight", "a=3", "--rate", "1GiB/s", "-o", "json"];
    let planned = json(&larder(&node, folder.path(), None, &args));
    let hash = "ab".repeat(16);
    assert_eq!(
        (&planned["plan"], &planned["file"]),
        (&hash.clone().into(), &format!("ring-{hash}.plan").into())
    );
    assert_eq!((&planned["share_of_ideal"], &planned["eta_seconds"]), (&1.0.into(), &4.0.into()));
    let asked = node.script().planned[0].clone();
    assert_eq!((asked.add, asked.weights[0].weight), (vec!["c".to_owned()], 3));

    let args = ["ring", "apply", &hash[..10], "--rate", "500MiB/s", "--yes", "-o", "json"];
    let begun = json(&larder(&node, folder.path(), Some(TOKEN), &args));
    assert_eq!((&begun["change"], &begun["bytes"]), (&1.into(), &(4_u64 << 30).into()));
    let applied = std::mem::take(&mut node.script().applied);
    let checks: Vec<bool> = applied.iter().map(|(terms, _)| terms.check_only).collect();
    assert_eq!(checks, [true, false], "it is looked at before it is begun");
    for (terms, plan) in applied {
        assert_eq!((terms.rate, plan), (Some(500 << 20), node.script().plan.clone()));
        assert!(terms.asked_by.contains('@'));
    }

    let misnamed = folder.path().join(format!("ring-{}.plan", "cd".repeat(16)));
    std::fs::rename(folder.path().join(format!("ring-{hash}.plan")), misnamed).expect("renamed");
    let refused =
        larder(&node, folder.path(), Some(TOKEN), &["ring", "apply", "cdcdcdcd", "--yes"]);
    assert_eq!(refused.status.code(), Some(6), "{}", said(&refused));
    assert!(said(&refused).contains("another plan than its name says"));
    assert!(node.script().applied.iter().all(|(terms, _)| terms.check_only));
}

#[test]
fn commands_require_confirmation() {
    let folder = here();
    let node = ScriptedNode::start(script(vec![moving()]));
    for args in [
        &["ring", "abort"][..],
        &["node", "drain", "b"],
        &["ring", "remove", "b"],
        &["ring", "takeover", "--lost", "b"],
    ] {
        let output = larder(&node, folder.path(), Some(TOKEN), args);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains("hint: add --yes"), "{}", said(&output));
    }
    let script = node.script();
    assert!(script.commands.is_empty() && script.takeovers.is_empty());
}

#[test]
fn commands_carry_the_token_and_the_operator_name() {
    let folder = here();
    let node = ScriptedNode::start(script(vec![moving()]));
    let token = folder.path().join("token");
    std::fs::write(&token, format!("{TOKEN}\n")).expect("a file");
    let only_mine = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&token, only_mine).expect("own file");
    let token = token.to_str().expect("UTF-8");
    let tell = |args: &[&str]| {
        let args = [args, &["--yes", "--token-file", token]].concat();
        let output = larder(&node, folder.path(), None, &args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        let told = node.script().commands.pop().expect("a command");
        assert!(told.asked_by.contains('@'));
        told.command.expect("a command")
    };
    assert!(matches!(tell(&["ring", "pause"]), Told::Pause(_)));
    assert!(matches!(tell(&["ring", "resume"]), Told::Resume(_)));
    assert!(matches!(tell(&["ring", "abort"]), Told::Abort(_)));
    let Told::Rate(rate) = tell(&["ring", "rate", "2GiB/s"]) else { panic!("no rate") };
    assert_eq!(rate.rate, Some(2 << 30));
    let Told::Rate(rate) = tell(&["ring", "rate", "none"]) else { panic!("no rate") };
    assert_eq!(rate.rate, None);
    let Told::Drain(drain) = tell(&["node", "drain", "b", "--deadline", "90s"]) else {
        panic!("no drain")
    };
    assert_eq!((drain.node_id.as_str(), drain.deadline_ms), ("b", Some(90_000)));
    assert!(matches!(tell(&["node", "undrain", "b"]), Told::Undrain(node) if node.node_id == "b"));
    let Told::Remove(remove) = tell(&["ring", "remove", "b", "c"]) else { panic!("no removal") };
    assert_eq!(remove.node_ids, ["b", "c"]);
    let args = ["ring", "takeover", "--lost", "b,c", "--on", "a", "--yes", "-o", "json"];
    let taken = json(&larder(&node, folder.path(), Some(TOKEN), &args));
    assert_eq!((&taken["coordinator"], &taken["generation"]), (&"a".into(), &3.into()));
    assert_eq!(node.script().takeovers[0].lost, ["b", "c"]);
}

#[test]
fn refusal_has_a_reason_and_a_hint() {
    let folder = here();
    let node = ScriptedNode::start(script(vec![moving()]));
    let untold = larder(&node, folder.path(), None, &["ring", "pause", "--yes"]);
    assert_eq!(untold.status.code(), Some(4), "{}", said(&untold));
    assert!(said(&untold).contains("--token-file"), "{}", said(&untold));
    node.script().refuses = Some("node 'b' is down, not active: nothing to drain".to_owned());
    let refused = larder(&node, folder.path(), Some(TOKEN), &["node", "drain", "b", "--yes"]);
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(said(&refused).contains("b does not drain") && said(&refused).contains("is down"));
    assert!(!said(&refused).contains("index"), "{}", said(&refused));
    node.script().statuses.clear();
    let listed = larder(&node, folder.path(), None, &["ring", "status"]);
    assert_eq!(listed.status.code(), Some(1));
    assert!(said(&listed).contains("larder node ls"), "{}", said(&listed));
}

#[test]
fn a_change_is_followed_to_its_end() {
    let folder = here();
    let mut done = at_rest();
    done.ring_version = 8;
    // One look before it begins, some while it moves.
    let statuses = vec![at_rest(), at_rest(), at_rest(), at_rest(), moving(), moving(), done];
    let node = ScriptedNode::start(Script { history: committed(), ..script(statuses) });
    node.script().history.clear();
    let plan = folder.path().join("my.plan");
    std::fs::write(&plan, "whatever").expect("a file");
    let plan = plan.to_str().expect("UTF-8");
    let args = ["ring", "apply", plan, "--yes", "--follow", "-o", "json"];
    let following = std::thread::scope(|scope| {
        let run = scope.spawn(|| larder(&node, folder.path(), Some(TOKEN), &args));
        larder_tests::until("it is applied", || node.script().applied.len() == 2);
        node.script().history = committed();
        run.join().expect("it ends")
    });
    let outcome = json(&following);
    assert_eq!(
        (&outcome["change"], &outcome["words"]),
        (&1.into(), &"change 1 is committed: put c".into())
    );
}

#[test]
fn followed_change_that_aborts_is_a_failure() {
    let folder = here();
    let words = "change 1 is aborted, as c is gone".to_owned();
    let aborted = vec![PastChange {
        number: 1,
        ring_version: 7,
        committed: false,
        words,
        ..PastChange::default()
    }];
    let node = ScriptedNode::start(script(vec![at_rest()]));
    std::fs::write(folder.path().join("my.plan"), "whatever").expect("a file");
    let args = ["ring", "apply", "my.plan", "--yes", "--follow"];
    let followed = std::thread::scope(|scope| {
        let run = scope.spawn(|| larder(&node, folder.path(), Some(TOKEN), &args));
        larder_tests::until("it is applied", || node.script().applied.len() == 2);
        node.script().history = aborted;
        run.join().expect("it ends")
    });
    assert_eq!(followed.status.code(), Some(1));
    assert!(said(&followed).contains("c is gone"), "{}", said(&followed));
}

#[test]
fn drain_is_followed_until_the_node_has_left() {
    let folder = here();
    let mut left = at_rest();
    left.nodes.pop();
    let mut draining = at_rest();
    draining.nodes[1].set_state(NodeState::Draining);
    let node = ScriptedNode::start(script(vec![at_rest(), draining, left]));
    let args = ["node", "drain", "b", "--yes", "--follow", "-o", "json"];
    let outcome = json(&larder(&node, folder.path(), Some(TOKEN), &args));
    assert!(outcome["words"].as_str().is_some_and(|words| words.contains("b has left")));
}

#[test]
fn history_is_listed_and_a_shard_explained() {
    let folder = here();
    let node = ScriptedNode::start(Script { history: committed(), ..script(vec![at_rest()]) });
    let history = json(&larder(&node, folder.path(), None, &["ring", "history", "-o", "json"]));
    assert_eq!(history["changes"][0]["outcome"], "committed");
    let owners = |id: &str| vec![id.to_owned()];
    node.script().explanation = Explanation {
        node_id: "a".to_owned(),
        snapshot: vec![1; 32].into(),
        uri: "s3://bucket/data".to_owned(),
        shard: 12,
        shard_id: vec![0x5a; 16].into(),
        samples: 1000,
        ring_version: 7,
        owners: owners("a"),
        ring_owners: owners("b"),
        ..Explanation::default()
    };
    for what in ["5a".repeat(16).as_str(), "s3://bucket/data#1234"] {
        let explained = json(&larder(&node, folder.path(), None, &["explain", what, "-o", "json"]));
        assert_eq!((&explained["excepted"], &explained["owners"][0]), (&true.into(), &"a".into()));
        assert_eq!(explained["of"]["shard"], 12);
        assert_eq!(explained["nodes"][0]["state"], "absent");
    }
    for odd in ["nothing", "s3://bucket/data#x"] {
        assert_eq!(larder(&node, folder.path(), None, &["explain", odd]).status.code(), Some(2));
    }
}
