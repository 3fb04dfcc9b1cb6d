//! Watching the cluster until it is as wanted: bounded, and ended by Ctrl-C.

use std::time::Duration;

use larder_client::admin::{ClusterStatus, NodeState, Operator, PlanChangeRequest, PlanFigures};

use super::super::signals::Interrupt;
use crate::{
    commands::operator::failed,
    context::Context,
    error::{Exit, Failure},
};

/// How long anything may take: joins wait for others, and machines are busy.
const LIMIT: Duration = Duration::from_secs(180);
const TICK: Duration = Duration::from_millis(100);

/// Somebody who waits.
pub(super) struct Watch<'a> {
    pub(super) context: &'a Context,
    pub(super) interrupt: &'a Interrupt,
    pub(super) operator: &'a Operator,
}

impl Watch<'_> {
    /// Looks again and again until `look` finds what is wanted.
    pub(super) fn until(
        &self,
        wanted: &str,
        mut look: impl FnMut() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let deadline = self.context.now() + LIMIT;
        loop {
            let why = match look() {
                Ok(true) => return Ok(()),
                Ok(false) => "everybody answers".to_owned(),
                // Who is asked may be about to leave, and the next look asks another.
                Err(failure) if failure.exit == Exit::Unavailable => failure.what,
                Err(failure) => return Err(failure),
            };
            self.interrupt.pause(TICK)?;
            if self.context.now() >= deadline {
                let what = format!("after {} s it is not so that {wanted}", LIMIT.as_secs());
                return Err(Failure::new(Exit::Failed, what).why(why));
            }
        }
    }

    /// Waits until the cluster is at rest with just these members.
    pub(super) fn until_ring(&self, names: &[&str]) -> Result<(), Failure> {
        let wanted = format!("{} are one ring", names.join(", "));
        self.until(&wanted, || Ok(is_ring(&self.status()?, names)))
    }

    /// Waits until a node wants to join.
    pub(super) fn until_waiting(&self, name: &str) -> Result<(), Failure> {
        self.until(&format!("{name} wants to join"), || {
            let status = self.status()?;
            let mut nodes = status.nodes.iter();
            Ok(nodes.any(|node| {
                node.state() == NodeState::Joining && node.announced && id(node) == Some(name)
            }))
        })
    }

    /// Waits until the cluster counts a dataset in when it plans.
    pub(super) fn until_known(&self) -> Result<(), Failure> {
        self.until("the cluster knows the dataset", || {
            let status = self.status()?;
            let known = status.datasets.len();
            Ok(known > 0 && usize::try_from(status.datasets_measured) == Ok(known))
        })
    }

    /// What a change of the members would move.
    pub(super) fn plan(&self, request: &PlanChangeRequest) -> Result<PlanFigures, Failure> {
        let planned = self.operator.plan(request);
        Ok(planned.map_err(|error| failed("nothing was planned", error))?.figures)
    }

    pub(super) fn status(&self) -> Result<ClusterStatus, Failure> {
        let status = self.operator.status();
        status.map_err(|error| failed("the cluster does not say how it stands", error))
    }
}

fn id(node: &larder_client::admin::ClusterNode) -> Option<&str> {
    node.member.as_ref().map(|member| member.id.as_str())
}

/// Whether just these are the members, nothing is being changed, and all go by the same ring.
fn is_ring(status: &ClusterStatus, names: &[&str]) -> bool {
    let mut names = names.to_vec();
    names.sort_unstable();
    let in_it = status.nodes.iter().all(|node| {
        let at_rest = node.state() == NodeState::Active && node.announced;
        at_rest && node.ring_version == status.ring_version
    });
    in_it && status.change.is_none() && status.nodes.iter().filter_map(id).eq(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_client::admin::{ClusterChange, ClusterNode};

    fn node(id: &str, state: NodeState, ring_version: u64) -> ClusterNode {
        let mut node = ClusterNode { state: state.into(), ring_version, ..Default::default() };
        node.announced = true;
        node.member.get_or_insert_default().id = id.to_owned();
        node
    }

    fn status(nodes: Vec<ClusterNode>) -> ClusterStatus {
        ClusterStatus { ring_version: 7, nodes, ..Default::default() }
    }

    #[test]
    fn a_ring_is_one_when_all_its_members_go_by_it() {
        let (a, b) = (node("a", NodeState::Active, 7), node("b", NodeState::Active, 7));
        let both = status(vec![a.clone(), b.clone()]);
        assert!(is_ring(&both, &["b", "a"]) && !is_ring(&both, &["a"]));
        assert!(!is_ring(&both, &["a", "b", "c"]));
        let late = status(vec![a.clone(), node("b", NodeState::Active, 6)]);
        let joining = status(vec![a.clone(), node("b", NodeState::Joining, 7)]);
        let silent = status(vec![a.clone(), ClusterNode { announced: false, ..b.clone() }]);
        let moving = ClusterStatus { change: Some(ClusterChange::default()), ..both };
        for other in [late, joining, silent, moving] {
            assert!(!is_ring(&other, &["a", "b"]), "{other:?}");
        }
    }
}
