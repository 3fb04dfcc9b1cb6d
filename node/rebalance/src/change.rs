//! An operator's change, and the ring that it leads to.

use std::collections::HashSet;

use larder_base::{Error, ErrorKind, Member, Ring};

/// Steps to be taken together, on one version of the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The ring version that the change is for. On another version it is refused.
    pub ring_version: u64,
    /// The steps; each names another member. Without steps the change only evens placement out.
    pub steps: Vec<Step>,
    /// Owners of each shard from now on; none: as many as before.
    pub replicas: Option<u8>,
    /// Whether the change takes effect before anything moves, as when members are dead. Then
    /// shards stay where they are, and only copies that lost their owner get another.
    pub at_once: bool,
}

/// One step on the members of a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A member joins.
    Add(Member),
    /// A member leaves and hands over its shards.
    Drain {
        /// The member that leaves.
        id: String,
    },
    /// A member is gone. Shards that only it held come from the origin again.
    Remove {
        /// The member that is gone.
        id: String,
    },
    /// A member gets another weight.
    Reweight {
        /// The member.
        id: String,
        /// Its new weight.
        weight: u32,
    },
    /// A member gets another zone or host, and maybe another weight.
    Replace(Member),
}

impl Step {
    /// Returns the id of the member.
    pub fn id(&self) -> &str {
        match self {
            Self::Add(member) | Self::Replace(member) => &member.id,
            Self::Drain { id } | Self::Remove { id } | Self::Reweight { id, .. } => id,
        }
    }
}

impl Change {
    /// Returns the ring after the change, with the next version.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when the ring has another version, when a step cannot be
    /// taken on it, when two steps name one member, or when the result is no valid ring.
    pub fn apply(&self, ring: &Ring) -> Result<Ring, Error> {
        if self.ring_version != ring.version() {
            return Err(invalid(format!(
                "the change was asked for on ring version {}, and the ring is at {}: plan it anew",
                self.ring_version,
                ring.version(),
            )));
        }
        let mut named = HashSet::new();
        if let Some(step) = self.steps.iter().find(|step| !named.insert(step.id())) {
            return Err(invalid(format!("two steps of one change name '{}'", step.id())));
        }
        let mut members = ring.members().to_vec();
        for step in &self.steps {
            take(step, &mut members)?;
        }
        if members.is_empty() {
            return Err(invalid("the change leaves no member; add one in the same change"));
        }
        let next = ring.next(members)?;
        match self.replicas {
            Some(replicas) => next.with_replicas(replicas),
            None => Ok(next),
        }
    }

    /// Whether this member is gone, so that no shard can be read from it.
    pub(crate) fn is_gone(&self, id: &str) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Remove { id: gone } if gone == id))
    }
}

fn take(step: &Step, members: &mut Vec<Member>) -> Result<(), Error> {
    let known = members.iter().position(|member| member.id == step.id());
    match (step, known) {
        (Step::Add(member), None) => members.push(member.clone()),
        (Step::Add(member), Some(_)) => {
            return Err(invalid(format!("'{}' is a member already", member.id)));
        }
        (Step::Drain { .. } | Step::Remove { .. }, Some(index)) => {
            members.remove(index);
        }
        (Step::Reweight { weight, .. }, Some(index)) => members[index].weight = *weight,
        (Step::Replace(member), Some(index)) => members[index] = member.clone(),
        (_, None) => {
            let names: Vec<&str> = members.iter().map(|member| member.id.as_str()).collect();
            let (id, names) = (step.id(), names.join(", "));
            return Err(invalid(format!("'{id}' is no member; there are {names:.200}")));
        }
    }
    Ok(())
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str) -> Member {
        Member {
            id: id.to_owned(),
            weight: 1,
            control: format!("http://{id}:7070"),
            host: id.to_owned(),
            zone: String::new(),
        }
    }

    fn ring() -> Ring {
        Ring::new(7, ["a", "b", "c"].map(member).to_vec()).unwrap()
    }

    fn applied(steps: Vec<Step>) -> Result<Ring, String> {
        let change = Change { ring_version: 7, steps, replicas: None, at_once: false };
        change.apply(&ring()).map_err(|error| error.to_string())
    }

    #[test]
    fn several_steps_make_one_ring() {
        let drain = Step::Drain { id: "a".to_owned() };
        let remove = Step::Remove { id: "b".to_owned() };
        let reweight = Step::Reweight { id: "c".to_owned(), weight: 5 };
        let steps = vec![drain, remove, reweight, Step::Add(member("d"))];
        let after = applied(steps).unwrap();
        let members: Vec<_> = after.members().iter().map(|m| (m.id.as_str(), m.weight)).collect();
        assert_eq!(members, [("c", 5), ("d", 1)]);
        assert_eq!(after.version(), 8);
        let elsewhere = Member { zone: "east".to_owned(), ..member("a") };
        let after = applied(vec![Step::Replace(elsewhere.clone())]).unwrap();
        assert_eq!(after.member("a"), Some(&elsewhere));
        let change = |replicas| Change { ring_version: 7, steps: vec![], replicas, at_once: false };
        let twice = change(Some(2)).apply(&ring()).unwrap();
        assert_eq!(twice.replicas(), 2);
        let kept = Change { ring_version: 8, ..change(None) }.apply(&twice).unwrap();
        assert_eq!(kept.replicas(), 2);
        assert!(change(Some(9)).apply(&ring()).is_err());
    }

    #[test]
    fn invalid_changes_are_refused() {
        let refused = |steps| applied(steps).unwrap_err();
        let drain = |id: &str| Step::Drain { id: id.to_owned() };
        assert!(refused(vec![Step::Add(member("a"))]).contains("a member already"));
        assert!(refused(vec![drain("x")]).contains("'x' is no member; there are a, b, c"));
        assert!(refused(vec![drain("a"), drain("a")]).contains("two steps"));
        assert!(refused(vec![drain("a"), drain("b"), drain("c")]).contains("no member"));
        let weightless = Step::Reweight { id: "a".to_owned(), weight: 0 };
        assert!(refused(vec![weightless]).contains("weight 0"));
        assert!(refused(vec![Step::Replace(member("x"))]).contains("'x' is no member"));
        let stale = Change { ring_version: 6, steps: Vec::new(), replicas: None, at_once: false };
        let stale = stale.apply(&ring()).unwrap_err();
        assert!(stale.to_string().contains("the ring is at 7"));
    }
}
