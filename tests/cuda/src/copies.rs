//! Copies: what each row reads and writes, the judgement of its order, and the bytes themselves.
//!
//! [`State::copy`] looks up both ends of each row, judges the row against earlier uses of the same
//! bytes, and queues one task. A row from page-locked or registered memory reads its source when
//! the task runs. A row from pageable memory takes the bytes at the call (`state::moves`).
//! Thread rule: under the state's mutex, but [`Move::run`] runs outside of it.
//! Non-goals: reads and writes by host code.

use std::sync::Arc;

use crate::codes::{self, Code};
use crate::memory::{PORTABLE, READ_ONLY, RangeOwner};
use crate::mistakes;
use crate::order::{Found, offset};
use crate::pages;
use crate::state::State;
use crate::state::moves::{Fill, Move, Source, Target};
use crate::state::queue::Work;
use crate::state::uses::{Access, Use};

/// One contiguous copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) to: u64,
    pub(crate) from: u64,
    pub(crate) bytes: usize,
    /// The call asks the driver to take the bytes before it returns.
    pub(crate) at_call: bool,
}

/// The ends that a call allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    ToDevice,
    ToHost,
    OnDevice,
    Any,
}

/// A call that copies.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) call: &'static str,
    pub(crate) stream: u64,
    pub(crate) way: Way,
    pub(crate) rows: Vec<Row>,
    pub(crate) kind: RequestKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// The host waits.
    Synchronous,
    Asynchronous,
    /// Asynchronous, and each row counts as a batched copy.
    Batch,
}

/// What became of a request.
#[derive(Debug)]
pub(crate) struct Queued {
    /// Some row writes pageable memory, so the call must wait even if it is asynchronous.
    pub(crate) to_pageable: bool,
    /// Every source was read at the call.
    pub(crate) all_taken: bool,
}

impl State {
    /// Queues the rows. An error names the row that caused it.
    pub(crate) fn copy(&mut self, request: &Request) -> Result<Queued, (Code, usize)> {
        let mut found = Found::default();
        let mut moves = Vec::new();
        let mut failed = None;
        for (index, row) in request.rows.iter().enumerate().filter(|(_, row)| row.bytes > 0) {
            match self.prepare(request, *row, &mut found) {
                Ok(ready) => moves.push((*row, ready)),
                Err(code) => {
                    failed = Some((code, index));
                    break;
                }
            }
        }
        if failed.is_none() {
            self.order(request.stream);
            for (row, ready) in &moves {
                self.judge(request, *row, ready, &mut found);
            }
        }
        self.note_found(found);
        if let Some(failed) = failed {
            return Err(failed);
        }
        let queued = Queued {
            to_pageable: moves.iter().any(|(row, ready)| {
                matches!(ready.to, Target::Host(_))
                    && !matches!(self.place(row.to, row.bytes), RangeOwner::Registered(_))
            }),
            all_taken: moves.iter().all(|(_, ready)| matches!(ready.from, Source::Taken(_))),
        };
        self.count(request, &moves);
        let moves = moves.into_iter().map(|(_, ready)| ready).collect();
        self.push(request.stream, Work::Copy { call: request.call, moves });
        Ok(queued)
    }

    /// Finds both ends of a row and checks that the driver would accept them.
    fn prepare(&self, request: &Request, row: Row, found: &mut Found) -> Result<Move, Code> {
        let (from, to) = (self.place(row.from, row.bytes), self.place(row.to, row.bytes));
        for (place, address) in [(from, row.from), (to, row.to)] {
            if let RangeOwner::Astray { on_device } = place {
                if !on_device {
                    found.add(mistakes::PARTLY_REGISTERED, || {
                        format!(
                            "{} copies {} bytes at {address:#x}, which lie only partly in one \
                             registration or page-locked allocation",
                            request.call, row.bytes
                        )
                    });
                }
                return Err(codes::INVALID_VALUE);
            }
        }
        let on_device = |place| matches!(place, RangeOwner::Device(_));
        let allowed = match request.way {
            Way::ToDevice => !on_device(from) && on_device(to),
            Way::ToHost => on_device(from) && !on_device(to),
            Way::OnDevice => on_device(from) && on_device(to),
            Way::Any => true,
        };
        if !allowed {
            return Err(codes::INVALID_VALUE);
        }
        let device = [to, from].into_iter().find_map(|place| self.device_at(place));
        let from = self.source(request, row, (from, device), found)?;
        let to = self.target(request, row, (to, device), found)?;
        Ok(Move { from, to, bytes: row.bytes })
    }

    /// The device whose memory a place is.
    fn device_at(&self, place: RangeOwner) -> Option<usize> {
        let RangeOwner::Device(base) = place else { return None };
        self.blocks.get(&base).map(|block| block.device)
    }

    fn source(
        &self,
        request: &Request,
        row: Row,
        (place, device): (RangeOwner, Option<usize>),
        found: &mut Found,
    ) -> Result<Source, Code> {
        let portable = self.is_portable(request, row, (place, device), found);
        let on_device = matches!(place, RangeOwner::Device(_));
        if place == RangeOwner::Pageable && request.kind != RequestKind::Synchronous {
            found.add(mistakes::NOT_PAGE_LOCKED, || {
                format!(
                    "{} copies {} bytes from pageable memory at {:#x} on {}",
                    request.call,
                    row.bytes,
                    row.from,
                    self.stream_name(request.stream)
                )
            });
        }
        if place == RangeOwner::Pageable || !portable || (row.at_call && !on_device) {
            let taken = pages::read(row.from, row.bytes).map_err(|_| codes::INVALID_VALUE)?;
            return Ok(Source::Taken(taken));
        }
        let memory = |base| {
            let block = self.blocks.get(&base).ok_or(codes::INVALID_VALUE)?;
            let (twin, offset) = (Arc::clone(&block.twin), offset(row.from, base));
            Ok(Source::Memory { twin, offset, held: !on_device })
        };
        match place {
            RangeOwner::Device(base) | RangeOwner::PageLocked(base) => memory(base),
            _ => Ok(Source::Host(row.from)),
        }
    }

    fn target(
        &self,
        request: &Request,
        row: Row,
        (place, device): (RangeOwner, Option<usize>),
        found: &mut Found,
    ) -> Result<Target, Code> {
        self.is_portable(request, row, (place, device), found);
        match place {
            RangeOwner::Device(base) | RangeOwner::PageLocked(base) => {
                let block = self.blocks.get(&base).ok_or(codes::INVALID_VALUE)?;
                let (twin, offset) = (Arc::clone(&block.twin), offset(row.to, base));
                Ok(Target::Memory { twin, offset })
            }
            RangeOwner::Registered(base) if self.registrations[&base].flags & READ_ONLY != 0 => {
                Err(codes::INVALID_VALUE)
            }
            _ => Ok(Target::Host(row.to)),
        }
    }

    /// Tells whether the device may use the pages. If not, the driver treats them as pageable.
    fn is_portable(
        &self,
        request: &Request,
        row: Row,
        (place, device): (RangeOwner, Option<usize>),
        found: &mut Found,
    ) -> bool {
        let (owner, flags) = match place {
            RangeOwner::PageLocked(base) => (self.blocks[&base].device, self.blocks[&base].flags),
            RangeOwner::Registered(base) => {
                (self.registrations[&base].device, self.registrations[&base].flags)
            }
            _ => return true,
        };
        let portable = device.is_none_or(|device| device == owner) || flags & PORTABLE != 0;
        if !portable {
            found.add(mistakes::NOT_PORTABLE, || {
                format!(
                    "{} copies {} bytes between another device and memory that was page-locked \
                     for device {owner} without PORTABLE",
                    request.call, row.bytes
                )
            });
        }
        portable
    }

    /// Judges a row against the earlier uses of its bytes, and notes its own.
    fn judge(&mut self, request: &Request, row: Row, ready: &Move, found: &mut Found) {
        let tick = self.next_tick(request.stream);
        let new = Use { tick, call: request.call };
        if !matches!(ready.from, Source::Taken(_)) {
            self.judge_use(row.from, row.bytes, Access::Read, new, found);
        }
        self.judge_use(row.to, row.bytes, Access::Write, new, found);
        if let Source::Memory { twin, held: true, .. } = &ready.from {
            twin.hold();
        }
    }

    /// Queues a fill of device memory.
    pub(crate) fn fill(
        &mut self,
        call: &'static str,
        stream: u64,
        (at, byte, bytes): (u64, u8, usize),
    ) -> Result<(), Code> {
        let RangeOwner::Device(base) = self.place(at, bytes) else {
            return Err(codes::INVALID_VALUE);
        };
        let block = self.blocks.get(&base).ok_or(codes::INVALID_VALUE)?;
        let fill = Fill { twin: Arc::clone(&block.twin), offset: offset(at, base), byte, bytes };
        self.order(stream);
        let mut found = Found::default();
        let tick = self.next_tick(stream);
        if bytes > 0 {
            self.judge_use(at, bytes, Access::Write, Use { tick, call }, &mut found);
        }
        self.note_found(found);
        self.push(stream, Work::Fill(fill));
        Ok(())
    }

    fn count(&mut self, request: &Request, moves: &[(Row, Move)]) {
        let batch = request.kind == RequestKind::Batch;
        let copies = if batch { moves.len() as u64 } else { 1 };
        self.counts.copies += copies;
        self.counts.batched_copies += if batch { copies } else { 0 };
        for (row, ready) in moves {
            let bytes = row.bytes as u64;
            self.counts.copied_bytes += bytes;
            let staged = matches!(ready.from, Source::Taken(_)) && !row.at_call;
            if matches!(self.place(row.to, row.bytes), RangeOwner::Device(_)) {
                match self.place(row.from, row.bytes) {
                    RangeOwner::PageLocked(_) | RangeOwner::Registered(_) if staged => {
                        self.counts.pageable_bytes += bytes;
                    }
                    RangeOwner::PageLocked(_) => self.counts.pinned_bytes += bytes,
                    RangeOwner::Registered(_) => self.counts.direct_bytes += bytes,
                    RangeOwner::Pageable => self.counts.pageable_bytes += bytes,
                    RangeOwner::Device(_) | RangeOwner::Astray { .. } => {}
                }
            }
        }
    }
}
