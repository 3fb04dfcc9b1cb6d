//! Operators' plans: the request for one, its figures, and its start.

use std::sync::Arc;

use larder_base::{Error, ErrorKind, Member, Ring, limits};
use larder_membership::Record;
use larder_membership::agent::Command;
use larder_membership::plan::{Edit, Figures, PlanBlobs, RingPlan, Tables, edited};
use larder_membership::record::Entry;
use larder_wire::control::{
    ApplyPlanResponse, ApplyTerms, NodeFigures, PlanChangeRequest, PlanFigures,
};

use super::command::{invalid, name, unknown};
use super::rights::Asker;
use super::{Admin, record, refused, status};
use crate::cluster::{Placements, Standing};
use crate::on_thread;
use crate::serve::control::saturated;

/// Returns the command for a requested plan.
pub(super) fn wanted(
    record: &Record,
    standing: &Standing,
    request: &PlanChangeRequest,
) -> Result<Command, Error> {
    let PlanChangeRequest { add, drain, remove, weights, replicas } = request;
    match *replicas {
        None => Ok(Command::Plan { edits: edits(record, standing, request)?, replicas: None }),
        Some(replicas) if add.len() + drain.len() + remove.len() + weights.len() == 0 => {
            let replicas = Some(self::replicas(record, replicas)?);
            Ok(Command::Plan { edits: Vec::new(), replicas })
        }
        Some(_) => Err(invalid(
            "another number of replicas is a plan by itself: plan the members' change after it",
        )),
    }
}

/// Checks the requested number of owners of each shard.
fn replicas(record: &Record, wanted: u32) -> Result<u8, Error> {
    let (now, max) = (record.scheme.replicas, limits::REPLICAS_MAX);
    let replicas =
        u8::try_from(wanted).ok().filter(|replicas| (1..=max).contains(&usize::from(*replicas)));
    let replicas = replicas
        .ok_or_else(|| invalid(format!("{wanted} replicas of each shard; it is 1 to {max}")))?;
    if replicas == now {
        return Err(refused(format!("{now} nodes own each shard already")));
    }
    Ok(replicas)
}

/// Returns the edits of the members that a request asks for, sorted by id.
fn edits(
    record: &Record,
    standing: &Standing,
    request: &PlanChangeRequest,
) -> Result<Vec<Edit>, Error> {
    let PlanChangeRequest { add, drain, remove, weights, .. } = request;
    let named = add.len() + drain.len() + remove.len() + weights.len();
    let max = limits::RING_MEMBERS_MAX;
    if named == 0 || named > max {
        return Err(invalid(format!("{named} nodes to change; name 1 to {max}")));
    }
    let find = |id: &String| {
        let id = name(id.clone())?;
        record.entry(&id).ok_or_else(|| unknown(record, &id))
    };
    let lives = |entry: &Entry| standing.alive.contains_key(&entry.member.id);
    let mut edits = Vec::with_capacity(named);
    for id in add {
        edits.push(added(find(id)?, lives)?);
    }
    for id in drain {
        let entry = in_ring(find(id)?)?;
        if !lives(entry) {
            return Err(refused(format!(
                "node '{id}' is silent, nothing can be taken from it: plan to remove it"
            )));
        }
        edits.push(Edit::Remove(id.clone()));
    }
    for id in remove {
        let entry = in_ring(find(id)?)?;
        if lives(entry) {
            return Err(refused(format!("node '{id}' lives: plan to drain it")));
        }
        edits.push(Edit::Remove(id.clone()));
    }
    for node in weights {
        let entry = in_ring(find(&node.node_id)?)?;
        edits.push(weighted(&entry.member, node.weight)?);
    }
    edits.sort_by(|a, b| a.id().cmp(b.id()));
    match edits.windows(2).find(|pair| pair[0].id() == pair[1].id()) {
        Some(pair) => Err(invalid(format!("node '{}' is named twice", pair[0].id()))),
        None => Ok(edits),
    }
}

fn added(entry: &Entry, lives: impl Fn(&Entry) -> bool) -> Result<Edit, Error> {
    let id = &entry.member.id;
    if entry.state.in_ring() {
        return Err(refused(format!("node '{id}' is in the ring already")));
    }
    if !lives(entry) {
        return Err(refused(format!("node '{id}' is silent: start it first")));
    }
    Ok(Edit::Put(entry.member.clone()))
}

fn in_ring(entry: &Entry) -> Result<&Entry, Error> {
    if entry.state.in_ring() {
        return Ok(entry);
    }
    let (id, state) = (&entry.member.id, entry.state.name());
    Err(refused(format!("node '{id}' is {state}, not in the ring: it owns nothing")))
}

fn weighted(member: &Member, weight: u32) -> Result<Edit, Error> {
    let (id, max) = (&member.id, limits::RING_WEIGHT_MAX);
    if !(1..=max).contains(&weight) {
        return Err(invalid(format!("a weight of {weight} for '{id}'; it is 1 to {max}")));
    }
    if weight == member.weight {
        return Err(refused(format!("node '{id}' has weight {weight} already")));
    }
    Ok(Edit::Put(Member { weight, ..member.clone() }))
}

/// Computes the figures of a plan on a blocking thread.
pub(super) async fn figures(
    admin: &Admin,
    standing: Arc<Standing>,
    planned: PlanBlobs,
) -> Result<(PlanFigures, PlanBlobs), Error> {
    let (owned, context) = (Arc::clone(&admin.owned), Arc::clone(&admin.context));
    let count = move || {
        let plan = RingPlan::decode(&planned.plan).map_err(|why| invalid(why.to_string()))?;
        let record = record(&standing)?;
        let owned = owned.now(&context.shared, record);
        let lives = |id: &str| standing.alive.contains_key(id);
        let mut figures = Figures::of(&plan, &record.ring_members(), &owned.bytes, lives);
        let replicas = plan.scheme.replicas;
        let replicas = (replicas != record.scheme.replicas).then_some(replicas);
        // A plan for another ring is refused soon after.
        if replicas.is_some() && plan.base == record.version {
            let placements = led_to(record, &plan, planned.placement.as_deref())?;
            figures.owned_after(&owned.by(&context.shared, &placements));
        }
        let known = |dataset: &&larder_membership::record::DatasetRecord| {
            owned.snapshots.binary_search(&dataset.snapshot).is_ok()
        };
        let measured = record.datasets.iter().filter(known).count();
        let message = PlanFigures {
            plan_id: status::id(planned.id()),
            ring_version: plan.base,
            edits: status::edits(record, &plan.edits),
            moves: figures.moves,
            bytes: figures.bytes,
            bytes_from_origin: figures.bytes_from_origin,
            bytes_ideal: figures.bytes_ideal,
            nodes: figures.nodes.into_iter().map(node).collect(),
            datasets: saturated(record.datasets.len()),
            datasets_measured: saturated(measured),
            replicas: replicas.map(u32::from),
        };
        Ok((message, planned))
    };
    on_thread(count).await
}

/// Returns the placements that a plan leads to.
fn led_to(record: &Record, plan: &RingPlan, tables: Option<&[u8]>) -> Result<Placements, Error> {
    let members = edited(&record.ring_members(), &plan.edits);
    let ring = Ring::with_scheme(plan.base + 1, members, plan.scheme)?;
    let tables = tables.map_or(Ok(Tables::default()), Tables::decode);
    let tables = tables.map_err(|why| invalid(why.to_string()))?;
    Placements::new(Arc::new(ring), tables.iter().cloned().collect(), None)
}

fn node(figures: larder_membership::plan::NodeFigures) -> NodeFigures {
    NodeFigures {
        node_id: figures.id,
        weight_before: figures.weight_before,
        weight: figures.weight,
        owned_bytes_before: figures.owned_before,
        owned_bytes: figures.owned,
        bytes_in: figures.bytes_in,
        bytes_out: figures.bytes_out,
    }
}

/// Starts a change by the plan in these bytes, or only checks it.
pub(super) async fn apply(
    admin: &Admin,
    asker: &Asker,
    terms: &ApplyTerms,
    bytes: Vec<u8>,
) -> Result<ApplyPlanResponse, Error> {
    let read = PlanBlobs::decode(&bytes).map_err(|why| invalid(why.to_string()));
    drop(bytes);
    let (planned, plan) = asker.heard(read, "a plan")?;
    let words = format!("apply plan {}", planned.id());
    let applied = apply_read(admin, asker, terms, planned, &plan).await;
    if !terms.check_only {
        asker.audit(&words, applied.as_ref().map(drop));
    }
    applied
}

async fn apply_read(
    admin: &Admin,
    asker: &Asker,
    terms: &ApplyTerms,
    planned: PlanBlobs,
    plan: &RingPlan,
) -> Result<ApplyPlanResponse, Error> {
    if terms.rate == Some(0) {
        return Err(invalid("a rate of 0 never ends; begin the change, then pause it"));
    }
    let standing = admin.cluster()?.standing();
    let id = planned.id();
    if terms.check_only {
        let staged = record(&standing)?.staged(plan, id, asker.name(), terms.rate);
        staged.map_err(|why| refused(why.to_string()))?;
    }
    let (figures, planned) = figures(admin, standing, planned).await?;
    let mut change = 0;
    if !terms.check_only {
        let (rate, asked_by) = (terms.rate, asker.name().to_owned());
        admin.done(Command::Apply { planned, rate, asked_by }).await?;
        let standing = admin.cluster()?.standing();
        let begun = standing.record.as_ref().and_then(|record| record.change.as_ref());
        change = begun.filter(|change| change.plan == id).map_or(0, |change| change.number);
    }
    Ok(ApplyPlanResponse { figures: Some(figures), change })
}

pub(super) fn too_many() -> Error {
    let max = super::PLANS_AT_ONCE_MAX;
    let message = format!("{max} plans are under way on this node, which is the limit; try again");
    Error::new(ErrorKind::ResourceExhausted, message)
}

pub(super) fn too_many_of_anybody() -> Error {
    let max = super::PLANS_OF_ANYBODY_MAX;
    let message = format!(
        "{max} plan is under way on this node for callers without the cluster's token, which is the limit; \
         show it (--token-file), or try again"
    );
    Error::new(ErrorKind::ResourceExhausted, message)
}
