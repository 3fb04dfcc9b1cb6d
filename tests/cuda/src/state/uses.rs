//! The last writer and the readers since, for each byte range of one allocation.
//!
//! [`Uses`] is an interval map. A write replaces the segments in its range by one segment, and
//! a read splits segments at its borders. So copies into disjoint ranges never meet each other.
//! Thread rule: plain values under the state's mutex. Non-goals: writes by host code, which the
//! stand-in cannot see.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::mistakes;
use crate::state::clock::{Clock, Tick};

/// One use of memory by queued work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    pub(crate) tick: Tick,
    /// The driver call that queued the work.
    pub(crate) call: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// An earlier use that the new one is not ordered after.
#[derive(Debug)]
pub(crate) struct Conflict {
    pub(crate) kind: &'static str,
    pub(crate) earlier: Use,
}

#[derive(Debug, Clone)]
struct Segment {
    end: usize,
    writer: Option<Use>,
    /// The last read of each stream.
    readers: Vec<Use>,
}

impl Segment {
    fn read_by(&mut self, new: Use) {
        self.readers.retain(|reader| reader.tick.stream != new.tick.stream);
        self.readers.push(new);
    }

    fn conflict(&self, access: Access, clock: &Clock) -> Option<Conflict> {
        let after_write = match access {
            Access::Read => mistakes::READ_BEFORE_WRITE,
            Access::Write => mistakes::WRITE_BEFORE_WRITE,
        };
        let unseen = |earlier: &&Use| !clock.saw(earlier.tick);
        let writer = self.writer.as_ref().filter(unseen);
        if let Some(earlier) = writer {
            return Some(Conflict { kind: after_write, earlier: *earlier });
        }
        let reader = self.readers.iter().find(unseen).filter(|_| access == Access::Write);
        reader.map(|earlier| Conflict { kind: mistakes::WRITE_BEFORE_READ, earlier: *earlier })
    }
}

/// All uses of one allocation. The keys are the first bytes of the segments.
#[derive(Debug, Default)]
pub(crate) struct Uses(BTreeMap<usize, Segment>);

impl Uses {
    /// Notes a use of `range` and returns the first earlier use that `clock` has not seen.
    pub(crate) fn note(
        &mut self,
        range: Range<usize>,
        access: Access,
        new: Use,
        clock: &Clock,
    ) -> Option<Conflict> {
        self.split(range.start);
        self.split(range.end);
        let conflict =
            self.0.range(range.clone()).find_map(|(_, segment)| segment.conflict(access, clock));
        match access {
            Access::Write => self.write(range, new),
            Access::Read => self.read(range, new),
        }
        conflict
    }

    fn split(&mut self, at: usize) {
        if let Some((_, segment)) = self.0.range_mut(..at).next_back()
            && segment.end > at
        {
            let upper = segment.clone();
            segment.end = at;
            self.0.insert(at, upper);
        }
    }

    fn write(&mut self, range: Range<usize>, new: Use) {
        let inside: Vec<usize> = self.0.range(range.clone()).map(|(start, _)| *start).collect();
        for start in inside {
            self.0.remove(&start);
        }
        let segment = Segment { end: range.end, writer: Some(new), readers: Vec::new() };
        self.0.insert(range.start, segment);
    }

    fn read(&mut self, range: Range<usize>, new: Use) {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for (start, segment) in self.0.range_mut(range.clone()) {
            if *start > at {
                gaps.push(at..*start);
            }
            segment.read_by(new);
            at = segment.end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        for gap in gaps {
            let segment = Segment { end: gap.end, writer: None, readers: vec![new] };
            self.0.insert(gap.start, segment);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::{Access, Use, Uses};
    use crate::mistakes::{WRITE_BEFORE_READ, WRITE_BEFORE_WRITE};
    use crate::state::clock::{Clock, Tick};

    /// The kind of mistake of a use by a stream that is ordered after itself only.
    fn note(
        uses: &mut Uses,
        stream: u64,
        access: Access,
        range: Range<usize>,
    ) -> Option<&'static str> {
        let tick = Tick { stream, index: 1 };
        let mut clock = Clock::default();
        clock.see(tick);
        let new = Use { tick, call: "a call" };
        uses.note(range, access, new, &clock).map(|conflict| conflict.kind)
    }

    #[test]
    fn tracks_bytes_separately_after_a_partial_overwrite() {
        let mut uses = Uses::default();
        assert_eq!(note(&mut uses, 1, Access::Write, 0..8), None);
        assert_eq!(note(&mut uses, 2, Access::Write, 2..4), Some(WRITE_BEFORE_WRITE));
        assert_eq!(note(&mut uses, 1, Access::Write, 0..2), None);
        assert_eq!(note(&mut uses, 2, Access::Write, 7..8), Some(WRITE_BEFORE_WRITE));
        assert_eq!(note(&mut uses, 1, Access::Write, 4..7), None);
        assert_eq!(note(&mut uses, 1, Access::Write, 3..5), Some(WRITE_BEFORE_WRITE));
    }

    #[test]
    fn remembers_readers_of_bytes_between_and_beside_writes() {
        let mut uses = Uses::default();
        assert_eq!(note(&mut uses, 1, Access::Write, 4..6), None);
        assert_eq!(note(&mut uses, 1, Access::Write, 8..10), None);
        assert_eq!(note(&mut uses, 1, Access::Read, 2..12), None);
        for range in [2..3, 6..8, 10..12] {
            let kind = note(&mut uses, 2, Access::Write, range.clone());
            assert_eq!(kind, Some(WRITE_BEFORE_READ), "{range:?}");
        }
        assert_eq!(note(&mut uses, 2, Access::Write, 4..6), Some(WRITE_BEFORE_WRITE));
        assert_eq!(note(&mut uses, 2, Access::Write, 0..2), None);
        assert_eq!(note(&mut uses, 2, Access::Write, 12..14), None);
    }
}
