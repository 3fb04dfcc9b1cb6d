//! The announcements of the cluster's nodes: the newest set, and a check for another process with
//! this node's name.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_base::BootId;
use larder_membership::agent::Alive;
use larder_membership::{Announcement, Now};

/// Time between two warnings.
const WORD_INTERVAL: Duration = Duration::from_secs(60);

/// The newest set of announcements.
#[derive(Debug, Default)]
pub(super) struct Announced {
    stamp: Option<u64>,
    nodes: BTreeMap<String, Announcement>,
}

impl Announced {
    /// Takes a set, unless a newer one was taken before. Returns true if it was taken.
    pub(super) fn take(&mut self, alive: &Alive) -> bool {
        if self.stamp.is_some_and(|stamp| alive.stamp < stamp) {
            return false;
        }
        let said = alive.nodes.iter().filter_map(|(node_id, word)| {
            Some((node_id.clone(), Announcement::decode(word).ok()?))
        });
        (self.stamp, self.nodes) = (Some(alive.stamp), said.collect());
        true
    }

    /// Accepts the next set with any stamp, because the coordinator was away.
    pub(super) fn begin_anew(&mut self) {
        self.stamp = None;
    }

    /// Returns the announcements, by node id.
    pub(super) fn nodes(&self) -> &BTreeMap<String, Announcement> {
        &self.nodes
    }
}

/// Notices another process with this node's name. The two would overwrite each other's
/// announcements.
#[derive(Debug)]
pub(super) struct DuplicateNodeDetector {
    id: String,
    boot: BootId,
    /// Set once this process was announced. From then on an announcement of another boot is no
    /// leftover.
    announced: bool,
    told: Option<Now>,
}

impl DuplicateNodeDetector {
    pub(super) fn new(id: String, boot: BootId) -> Self {
        Self { id, boot, announced: false, told: None }
    }

    /// Checks the announcements. Returns a warning, if there is one.
    pub(super) fn notice(
        &mut self,
        alive: &BTreeMap<String, Announcement>,
        now: Now,
    ) -> Option<String> {
        let word = alive.get(&self.id)?;
        if word.boot == self.boot {
            self.announced = true;
            return None;
        }
        let told = self.told.is_some_and(|told| now < told + WORD_INTERVAL);
        if !self.announced || told {
            return None;
        }
        self.told = Some(now);
        Some(format!(
            "another process has this node's name, {}: the cluster takes the two for one; end one of them, or give it \
             a --node-id of its own",
            self.id
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced_by(boot: u8) -> BTreeMap<String, Announcement> {
        let boot = BootId::from_bytes([boot; 16]);
        BTreeMap::from([("a".to_owned(), Announcement { boot, version: 1, settled: Vec::new() })])
    }

    #[test]
    fn announcement_of_an_earlier_start_is_no_duplicate() {
        let mut duplicate = DuplicateNodeDetector::new("a".to_owned(), BootId::from_bytes([1; 16]));
        assert_eq!(duplicate.notice(&announced_by(9), Now::ZERO), None);
        assert_eq!(duplicate.notice(&announced_by(1), Now::ZERO), None);
    }

    #[test]
    fn duplicate_node_is_reported_once_a_minute() {
        let mut duplicate = DuplicateNodeDetector::new("a".to_owned(), BootId::from_bytes([1; 16]));
        let second = Duration::from_secs(1);
        assert_eq!(duplicate.notice(&announced_by(1), Now::ZERO), None);
        let told = duplicate.notice(&announced_by(2), second).expect("it is told");
        assert!(told.contains("name, a:"), "{told}");
        assert_eq!(duplicate.notice(&announced_by(2), 2 * second), None);
        assert_eq!(duplicate.notice(&announced_by(1), 3 * second), None);
        assert!(duplicate.notice(&announced_by(2), 62 * second).is_some());
    }

    fn alive(stamp: u64, node_id: &str) -> Alive {
        let boot = BootId::from_bytes([1; 16]);
        let word = Announcement { boot, version: 1, settled: Vec::new() };
        Alive { stamp, nodes: vec![(node_id.to_owned(), word.encode())] }
    }

    #[test]
    fn newer_answer_counts_until_the_watch_catches_up() {
        let mut announced = Announced::default();
        assert!(announced.take(&alive(3, "a")));
        assert!(announced.take(&alive(5, "b")));
        assert!(!announced.take(&alive(4, "c")), "the watch is behind");
        assert!(announced.nodes().contains_key("b"));
        announced.begin_anew();
        assert!(announced.take(&alive(4, "c")));
        assert!(announced.nodes().contains_key("c"));
    }
}
