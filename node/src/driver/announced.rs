//! The announced nodes, from the coordinator's watch or from an answer, whichever is newer.

use std::collections::BTreeMap;

use larder_membership::{Announcement, agent::Alive};

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

#[cfg(test)]
mod tests {
    use larder_base::BootId;

    use super::*;

    fn alive(stamp: u64, node_id: &str) -> Alive {
        let boot = BootId::from_bytes([1; 16]);
        let word = Announcement { boot, version: 1, settled: Vec::new() };
        Alive { stamp, nodes: vec![(node_id.to_owned(), word.encode())] }
    }

    #[test]
    fn an_answer_counts_until_the_watch_is_as_new() {
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
