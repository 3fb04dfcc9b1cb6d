//! Memory that the stand-in allocated, memory that the program registered, and the copies that use
//! them.

use std::sync::Arc;

use super::clock::{Clock, Tick};
use super::uses::Uses;
use crate::pages::Twin;

/// Copies that use some memory and that the host may not have waited for.
#[derive(Debug, Default)]
pub(crate) struct Unfinished(Vec<Tick>);

impl Unfinished {
    /// Adds a copy and forgets copies that the host has waited for.
    pub(crate) fn add(&mut self, tick: Tick, host: &Clock) {
        if self.0.len() == self.0.capacity() {
            self.0.retain(|tick| !host.saw(*tick));
        }
        self.0.push(tick);
    }

    pub(crate) fn count(&self, host: &Clock) -> usize {
        self.0.iter().filter(|tick| !host.saw(**tick)).count()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Device,
    PageLocked,
}

/// Memory that the stand-in allocated.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) kind: Kind,
    /// The device that holds the memory, or that of the current context.
    pub(crate) device: usize,
    pub(crate) flags: u32,
    pub(crate) twin: Arc<Twin>,
    pub(crate) uses: Uses,
    pub(crate) unfinished: Unfinished,
}

/// Memory of the program that is registered.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) device: usize,
    pub(crate) flags: u32,
    pub(crate) bytes: usize,
    pub(crate) unfinished: Unfinished,
}
