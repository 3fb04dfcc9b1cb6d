//! `larder explain`.

use std::time::Duration;

use clap::Args;
use larder_client::{
    Cluster, DatasetName, ErrorKind, WritePolicy,
    admin::{
        ExplainWhat, Explanation, MemberAnswer, NodeDescription, Operator, OriginUri, ShardId,
        ShardState, ShardStatus, SnapshotId,
    },
};
use serde::Serialize;

use super::{dataset::parse_reference, operator::onlooker};
use crate::{
    context::Context,
    error::{Exit, Failure},
    output::{Page, Report, TextTable, units},
};

/// Shows which nodes own a shard, which nodes have it, and why the others do not.
///
/// Name a shard by its id, 32 hex digits (see larder ring status and the nodes' logs), or by one of
/// its samples: s3://bucket/prefix@v3#1234.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The id of a shard, or a dataset, '#' and the number of a sample
    #[arg(value_name = "SHARD|DATASET#SAMPLE")]
    what: String,
}

#[derive(Debug, Serialize)]
struct ExplainReport {
    shard_id: String,
    /// The hash of the shard, its position on the ring.
    place: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<Facts>,
    ring_version: u64,
    /// The primary owner comes first.
    owners: Vec<String>,
    /// The owners by the ring alone, without exceptions.
    ring_owners: Vec<String>,
    /// Whether a plan gave it other owners than the ring.
    excepted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<Previous>,
    nodes: Vec<ShardOnNode>,
}

/// The shard in its dataset.
#[derive(Debug, Serialize)]
struct Facts {
    uri: String,
    snapshot: String,
    shard: u32,
    first_sample: u64,
    samples: u32,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Previous {
    ring_version: u64,
    owners: Vec<String>,
}

/// The state of the shard on one node.
#[derive(Debug, Default, Serialize)]
struct ShardOnNode {
    node: String,
    /// Whether the node is one of `owners`.
    owner: bool,
    /// `resident`, `filling`, `queued`, `orphaned`, `absent` or `unknown`.
    state: &'static str,
    /// The time in that state.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<f64>,
    leases: u32,
    waiters: u32,
    /// While it fills.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_ready: Option<u64>,
    /// Why it is not resident, if there is a reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let operator = onlooker(context)?;
    let progress = context.progress("asking the nodes");
    let (sample, answers) = match arguments.what.rsplit_once('#') {
        Some((dataset, sample)) => of_sample(&operator, dataset, sample)?,
        None => (None, of_shard(&operator, &arguments.what)?),
    };
    drop(progress);
    context.output.print(&report(sample, answers)?)
}

type Answers = Vec<MemberAnswer<Explanation>>;

fn of_shard(operator: &Operator, id: &str) -> Result<Answers, Failure> {
    let id: ShardId = id.parse().map_err(|_| {
        Failure::new(Exit::Usage, format!("'{id}' names no shard")).hint(
            "give a shard's id (32 hex digits), or DATASET#SAMPLE like s3://bucket/prefix#1234",
        )
    })?;
    let what = ExplainWhat::ShardId(id.as_bytes().to_vec().into());
    let answers = operator.explain(None, &what);
    // Only a node that has the dataset open knows the snapshot of the shard, and so its exceptions.
    let known = answers.iter().filter_map(|one| one.answer.as_ref().ok());
    let snapshot = known.map(|said| &said.snapshot).find(|snapshot| !snapshot.is_empty());
    match snapshot.and_then(|snapshot| snapshot_id(snapshot)) {
        Some(snapshot) => Ok(operator.explain(Some(snapshot), &what)),
        None => Ok(answers),
    }
}

fn of_sample(
    operator: &Operator,
    dataset: &str,
    sample: &str,
) -> Result<(Option<u64>, Answers), Failure> {
    let number: u64 = sample.parse().map_err(|_| {
        Failure::new(Exit::Usage, format!("'{sample}' is no number of a sample"))
            .hint("samples are counted from 0: s3://bucket/prefix#1234")
    })?;
    let wrong = |why| Failure::new(Exit::Usage, format!("{}: {why}", WritePolicy::VARIABLE));
    let (reference, write) = (parse_reference(dataset)?, WritePolicy::of_process().map_err(wrong)?);
    let name = DatasetName { reference, manifest: None, write };
    let cluster = operator.cluster();
    let opened = cluster.open_dataset(&name);
    let opened = opened.map_err(|error| not_opened(cluster, name.reference.uri(), error))?;
    let snapshot = opened.snapshot;
    let mut first = None;
    for one in operator.explain(Some(snapshot), &ExplainWhat::Sample(number)) {
        match one.answer {
            Ok(said) => {
                // Other nodes may not have the dataset open. The shard is the same for all.
                let what = ExplainWhat::ShardId(said.shard_id);
                return Ok((Some(number), operator.explain(Some(snapshot), &what)));
            }
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(no_answer(first))
}

/// Why no node explained anything.
fn no_answer(first: Option<larder_client::Error>) -> Failure {
    let silent = || Failure::new(Exit::Unavailable, "no node of the cluster answers");
    first.map_or_else(silent, Failure::from)
}

/// Why the nodes did not open a dataset. The node of this host reads only the prefixes that its
/// processes have opened.
fn not_opened(cluster: &Cluster, uri: &OriginUri, error: larder_client::Error) -> Failure {
    let refused = error.kind() == ErrorKind::PermissionDenied && cluster.host().is_some();
    if !refused || may_read(&cluster.describe(), uri) {
        return error.into();
    }
    Failure::new(Exit::Denied, format!("the node of this host was never told to read {uri}"))
        .why("it reads what processes of this host have opened through it")
        .hint(
            "open it first, with larder.open in Python or with larder dataset sample; or name other nodes: \
             --cluster http://host:port",
        )
}

/// Whether one of the nodes may read this prefix.
fn may_read(nodes: &[MemberAnswer<NodeDescription>], uri: &OriginUri) -> bool {
    let origins = nodes.iter().flat_map(|one| &one.answer).flat_map(|node| &node.origins);
    origins
        .filter_map(|origin| OriginUri::parse(origin).ok())
        .any(|origin| uri.starts_with(&origin))
}

fn snapshot_id(bytes: &[u8]) -> Option<SnapshotId> {
    bytes.try_into().ok().map(SnapshotId::from_bytes)
}

fn report(sample: Option<u64>, answers: Answers) -> Result<ExplainReport, Failure> {
    let said: Vec<&Explanation> =
        answers.iter().filter_map(|one| one.answer.as_ref().ok()).collect();
    let newest = said.iter().max_by_key(|said| said.ring_version).copied().cloned();
    let facts = said.iter().find(|said| !said.uri.is_empty()).map(|said| facts(said));
    let Some(newest) = newest else {
        return Err(no_answer(answers.into_iter().find_map(|one| one.answer.err())));
    };
    let node = |one: &MemberAnswer<Explanation>| node(one, &newest);
    let nodes = answers.iter().map(node).collect();
    Ok(ExplainReport {
        shard_id: format!("{:x}", newest.shard_id),
        place: format!("{:016x}", newest.place),
        sample,
        of: facts,
        ring_version: newest.ring_version,
        excepted: newest.owners != newest.ring_owners,
        previous: (newest.previous_ring_version > 0).then(|| Previous {
            ring_version: newest.previous_ring_version,
            owners: newest.previous_owners.clone(),
        }),
        owners: newest.owners,
        ring_owners: newest.ring_owners,
        nodes,
    })
}

fn facts(said: &Explanation) -> Facts {
    Facts {
        uri: said.uri.clone(),
        snapshot: format!("{:x}", said.snapshot),
        shard: said.shard,
        first_sample: said.first_sample,
        samples: said.samples,
        bytes: said.bytes,
    }
}

fn node(one: &MemberAnswer<Explanation>, newest: &Explanation) -> ShardOnNode {
    let id = one.member.id.clone();
    let owner = newest.owners.contains(&id);
    let said = match &one.answer {
        Ok(said) => said,
        Err(error) => {
            let why = Some(error.to_string());
            return ShardOnNode {
                node: id,
                owner,
                state: "unknown",
                why,
                ..ShardOnNode::default()
            };
        }
    };
    // A resident, filling or queued shard says more than an orphaned one.
    let here = said.here.iter().min_by_key(|one| one.state() == ShardState::Orphaned);
    let state = here.map_or("absent", |here| word(here.state()));
    let filling = here.filter(|here| here.state() == ShardState::Filling);
    ShardOnNode {
        node: id,
        owner,
        state,
        age_seconds: here.map(|here| Duration::from_millis(here.age_ms).as_secs_f64()),
        leases: here.map_or(0, |here| here.leases),
        waiters: here.map_or(0, |here| here.waiters),
        bytes_ready: filling.map(|here| here.bytes_ready),
        why: why(said, here, owner, newest),
    }
}

fn word(state: ShardState) -> &'static str {
    match state {
        ShardState::Queued => "queued",
        ShardState::Filling => "filling",
        ShardState::Resident => "resident",
        ShardState::Orphaned => "orphaned",
        ShardState::Unspecified => "unknown",
    }
}

/// Why a node that should have the shard does not serve it from memory.
fn why(
    said: &Explanation,
    here: Option<&ShardStatus>,
    owner: bool,
    newest: &Explanation,
) -> Option<String> {
    if here.is_some_and(|here| here.state() == ShardState::Resident) {
        return (!owner).then(|| "a copy that it need not keep".to_owned());
    }
    if let Some(failure) = &said.failure {
        return Some(format!("its fill gave up: {}", failure.message));
    }
    if here.is_some_and(|here| here.state() == ShardState::Orphaned) {
        return Some("evicted, but some process still maps it".to_owned());
    }
    if here.is_some() || !owner || newest.snapshot.is_empty() {
        return None;
    }
    if said.ring_version < newest.ring_version {
        return Some(format!("it goes by ring {} yet", said.ring_version));
    }
    Some(match said.evicted_shards {
        0 => "nobody asked for it since the node's start".to_owned(),
        evicted => format!(
            "nobody asked for it, or it is one of {evicted} shards evicted since the node's start"
        ),
    })
}

impl Report for ExplainReport {
    fn show(&self, page: &mut Page) {
        let mut fields = Vec::new();
        if let Some(sample) = self.sample {
            fields.push(("asked", format!("sample {}", units::count(sample))));
        }
        match &self.of {
            Some(facts) => fields.push(("shard", described(facts))),
            None => fields
                .push(("shard", "of no dataset that is open on a node that answers".to_owned())),
        }
        fields.push(("id", self.shard_id.clone()));
        fields.push(("place", self.place.clone()));
        let owners = format!("{}, by ring {}", self.owners.join(", "), self.ring_version);
        let planned = if self.excepted {
            format!("; a plan decided so, the walk says {}", self.ring_owners.join(", "))
        } else {
            String::new()
        };
        fields.push(("owned by", owners + &planned));
        if let Some(previous) = &self.previous {
            let owners = previous.owners.join(", ");
            fields.push(("before", format!("{owners}, by ring {}", previous.ring_version)));
        }
        page.fields(&fields);
        page.line("");
        page.table(&table(&self.nodes));
    }
}

fn described(facts: &Facts) -> String {
    let last = facts.first_sample + u64::from(facts.samples.max(1)) - 1;
    format!(
        "shard {} of {} ({}): samples {} to {}, {}",
        facts.shard,
        facts.uri,
        &facts.snapshot[..12.min(facts.snapshot.len())],
        units::count(facts.first_sample),
        units::count(last),
        units::bytes(facts.bytes)
    )
}

fn table(nodes: &[ShardOnNode]) -> TextTable {
    let mut table = TextTable::new("NODE | OWNS IT | HERE | >FOR | >LEASES | WHY");
    for node in nodes {
        let age = node.age_seconds.map(units::seconds);
        let state = match node.bytes_ready {
            Some(bytes) => format!("{}, {} in", node.state, units::bytes(bytes)),
            None => node.state.to_owned(),
        };
        table.row([
            node.node.clone(),
            if node.owner { "yes" } else { "" }.to_owned(),
            state,
            age.unwrap_or_else(|| "-".to_owned()),
            node.leases.to_string(),
            node.why.clone().unwrap_or_default(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use larder_client::{Error, MemberState, admin::FillFailure};

    use super::*;

    fn said(id: &str, here: Vec<ShardStatus>) -> MemberAnswer<Explanation> {
        let [owners, ring_owners] = [["b"], ["a"]].map(|ids| ids.map(str::to_owned).to_vec());
        let explanation = Explanation {
            node_id: id.to_owned(),
            shard_id: vec![0x5a; 16].into(),
            snapshot: vec![1; 32].into(),
            uri: "s3://bucket/data".to_owned(),
            shard: 12,
            first_sample: 12_000,
            samples: 1_000,
            bytes: 64 << 20,
            ring_version: 8,
            previous_ring_version: 7,
            previous_owners: ring_owners.clone(),
            owners,
            ring_owners,
            here,
            ..Explanation::default()
        };
        MemberAnswer { member: member(id), answer: Ok(explanation) }
    }

    fn member(id: &str) -> MemberState {
        MemberState { id: id.to_owned(), control: format!("http://{id}:1"), up: true }
    }

    fn status(state: ShardState) -> ShardStatus {
        let mut status = ShardStatus { age_ms: 120_000, leases: 3, ..ShardStatus::default() };
        status.set_state(state);
        status
    }

    #[test]
    fn a_miss_is_explained_node_by_node() {
        let mut owner = said("b", Vec::new());
        let failure =
            FillFailure { message: "the origin is away".to_owned(), ..Default::default() };
        owner.answer.as_mut().unwrap().failure = Some(failure);
        let error = Error::new(ErrorKind::Unavailable, "it does not answer");
        let silent = MemberAnswer { member: member("c"), answer: Err(error) };
        let answers = vec![said("a", vec![status(ShardState::Resident)]), owner, silent];
        let report = report(Some(12_345), answers).unwrap();
        assert!(report.excepted);
        let states: Vec<_> = report.nodes.iter().map(|node| (node.state, node.owner)).collect();
        assert_eq!(states, [("resident", false), ("absent", true), ("unknown", false)]);
        let mut page = Page::new(false, false);
        report.show(&mut page);
        let text = page.text();
        for words in [
            "sample 12,345",
            "shard 12 of s3://bucket/data",
            "b, by ring 8",
            "the walk says a",
            "a, by ring 7",
            "its fill gave up: the origin is away",
            "it does not answer",
            "a copy that it need not keep",
        ] {
            assert!(text.contains(words), "{words:?} is missing in\n{text}");
        }
    }

    #[test]
    fn explain_reports_owner_without_any_request() {
        let report = report(None, vec![said("b", Vec::new())]).unwrap();
        assert!(report.nodes[0].why.as_ref().unwrap().contains("nobody asked"));
    }

    #[test]
    fn explain_fails_when_no_node_answers() {
        let error = Error::new(ErrorKind::Unavailable, "it does not answer");
        let answers = vec![MemberAnswer { member: member("a"), answer: Err(error) }];
        assert_eq!(report(None, answers).unwrap_err().exit, Exit::Unavailable);
    }
}
