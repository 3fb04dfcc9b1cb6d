//! Notices another process with this node's name. The two would overwrite each other's
//! announcements.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_base::BootId;
use larder_membership::{Announcement, Now};

/// Time between two warnings.
const WORD_INTERVAL: Duration = Duration::from_secs(60);

/// State of this node's own announcement.
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
}
