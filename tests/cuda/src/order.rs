//! Order: judges each use of memory against the earlier uses of the same bytes.
//!
//! A stream's clock holds the work that is ordered before the stream's next task. A use that
//! conflicts with an earlier use outside of that clock is a mistake, even if the bytes come out
//! right. Thread rule: under the state's mutex. Non-goals: uses by host code.

use std::ops::Range;

use crate::memory::RangeOwner;
use crate::mistakes;
use crate::state::State;
use crate::state::uses::{Access, Conflict, Use};

/// Mistakes of one call: the first of each kind.
#[derive(Debug, Default)]
pub(crate) struct Found(Vec<(&'static str, String)>);

impl Found {
    pub(crate) fn add(&mut self, kind: &'static str, detail: impl FnOnce() -> String) {
        if !self.0.iter().any(|(known, _)| *known == kind) {
            self.0.push((kind, detail()));
        }
    }
}

impl State {
    /// Notes the mistakes of one call.
    pub(crate) fn note_found(&mut self, found: Found) {
        for (kind, detail) in found.0 {
            self.mistake(kind, detail);
        }
    }

    /// Judges a use by the next task of a stream, and keeps it for later judgements.
    pub(crate) fn judge_use(
        &mut self,
        at: u64,
        bytes: usize,
        access: Access,
        new: Use,
        found: &mut Found,
    ) {
        let place = self.place(at, bytes);
        let Some(clock) = self.streams.get(&new.tick.stream).map(|stream| &stream.clock) else {
            return;
        };
        let conflict = match place {
            RangeOwner::Device(base) | RangeOwner::PageLocked(base) => {
                let Some(block) = self.blocks.get_mut(&base) else { return };
                block.unfinished.add(new.tick, &self.host);
                block.uses.note(range(at, base, bytes), access, new, clock)
            }
            RangeOwner::Registered(base) => {
                let Some(registration) = self.registrations.get_mut(&base) else { return };
                registration.unfinished.add(new.tick, &self.host);
                None
            }
            RangeOwner::Pageable | RangeOwner::Astray { .. } => None,
        };
        if let Some(conflict) = conflict {
            let detail = || self.described(&conflict, new, bytes, at);
            found.add(conflict.kind, detail);
        }
    }

    fn described(&self, conflict: &Conflict, new: Use, bytes: usize, at: u64) -> String {
        let (does, earlier) = match conflict.kind {
            mistakes::READ_BEFORE_WRITE => ("reads", "the write"),
            mistakes::WRITE_BEFORE_READ => ("writes", "the read"),
            _ => ("writes", "the write"),
        };
        format!(
            "{} on {} {does} {bytes} bytes at {at:#x}, and nothing orders it after {earlier} by {} \
             on {}",
            new.call,
            self.stream_name(new.tick.stream),
            conflict.earlier.call,
            self.stream_name(conflict.earlier.tick.stream)
        )
    }
}

fn range(at: u64, base: u64, bytes: usize) -> Range<usize> {
    let start = offset(at, base);
    start..start + bytes
}

/// Bytes from the start of an allocation. Addresses fit: the crate is for 64-bit Linux.
#[expect(clippy::cast_possible_truncation, reason = "addresses have 64 bits on every target")]
pub(crate) fn offset(at: u64, base: u64) -> usize {
    (at - base) as usize
}
