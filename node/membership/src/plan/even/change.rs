//! The rings before and after a task, and the names that its moves use.

use std::sync::Arc;

use larder_base::Ring;

use crate::plan::{Edit, Task, edited};

/// The change of the members that a task asks for.
pub(super) struct MemberChange {
    pub(super) present: Arc<Ring>,
    pub(super) next: Arc<Ring>,
    /// The ids of all members before and after, sorted.
    pub(super) names: Vec<String>,
    /// By index in the present ring: the index among the names, and whether the member is gone.
    before: Vec<(u16, bool)>,
    /// By index in the next ring: the index among the names.
    after: Vec<u16>,
}

impl MemberChange {
    /// Reads a task.
    ///
    /// # Errors
    /// A sentence that says why the edits lead to no ring.
    pub(super) fn of(task: &Task) -> Result<Self, String> {
        let present = Ring::with_scheme(task.base, task.members.clone(), task.scheme);
        let present = Arc::new(present.map_err(|why| why.to_string())?);
        let next = Arc::new(next_ring(task, &present)?);
        let members = present.members().iter().chain(next.members());
        let mut names: Vec<String> = members.map(|member| member.id.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let index = |id: &String| {
            let index = names.binary_search(id).expect("names are those of all members");
            u16::try_from(index).expect("at most twice 1,024")
        };
        let is_gone = |id: &str| task.urgent && next.member(id).is_none();
        let before = present.members().iter().map(|one| (index(&one.id), is_gone(&one.id)));
        let (before, after) = (before.collect(), next.members().iter().map(|one| index(&one.id)));
        let after = after.collect();
        Ok(Self { present, next, before, after, names })
    }

    /// Returns whether no shard can be read from this member of the present ring.
    pub(super) fn is_gone(&self, member: u16) -> bool {
        self.before[usize::from(member)].1
    }

    /// Returns whether shards get more owners.
    pub(super) fn adds_replicas(&self) -> bool {
        self.next.replicas() > self.present.replicas()
    }

    /// Returns the name of a member of the present ring, as an index.
    pub(super) fn name_before(&self, member: u16) -> u16 {
        self.before[usize::from(member)].0
    }

    /// Returns the name of a member of the next ring, as an index.
    pub(super) fn name_after(&self, member: u16) -> u16 {
        self.after[usize::from(member)]
    }
}

fn next_ring(task: &Task, present: &Ring) -> Result<Ring, String> {
    for edit in &task.edits {
        if let Edit::Remove(id) = edit
            && present.member(id).is_none()
        {
            let names: Vec<&str> = task.members.iter().map(|member| member.id.as_str()).collect();
            return Err(format!("'{id}' is no member; there are {:.200}", names.join(", ")));
        }
    }
    let members = edited(&task.members, &task.edits);
    if members.is_empty() {
        return Err("the change leaves no member; add one in the same change".to_owned());
    }
    let next = present.next(members);
    let next = match task.replicas == task.scheme.replicas {
        true => next,
        false => next.and_then(|next| next.with_replicas(task.replicas)),
    };
    next.map_err(|why| why.to_string())
}
