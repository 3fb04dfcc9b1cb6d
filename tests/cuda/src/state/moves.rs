//! The bytes of queued copies and fills.
//!
//! A [`Move`] keeps the memory of the stand-in alive until it has run. Thread rule: stream threads
//! run moves outside of the state's mutex. Non-goals: order.

use std::io;
use std::sync::Arc;

use crate::pages::{self, Twin};

#[derive(Debug)]
pub(crate) enum Source {
    /// Bytes that were read at the call.
    Taken(Vec<u8>),
    Memory {
        twin: Arc<Twin>,
        offset: usize,
        held: bool,
    },
    /// Memory of the program.
    Host(u64),
}

#[derive(Debug)]
pub(crate) enum Target {
    Memory { twin: Arc<Twin>, offset: usize },
    Host(u64),
}

/// The bytes of a row on their way.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) from: Source,
    pub(crate) to: Target,
    pub(crate) bytes: usize,
}

impl Move {
    /// Copies the bytes. An error says that pages of the program are not mapped.
    pub(crate) fn run(&self) -> io::Result<()> {
        match (&self.from, &self.to) {
            (Source::Taken(bytes), Target::Memory { twin, offset }) => twin.write(*offset, bytes),
            (Source::Taken(bytes), Target::Host(to)) => pages::write(*to, &mut bytes.clone())?,
            (Source::Memory { twin, offset, .. }, Target::Memory { twin: target, offset: to }) => {
                Twin::copy((twin, *offset), (target, *to), self.bytes);
            }
            (Source::Memory { twin, offset, .. }, Target::Host(to)) => {
                twin.write_to(*offset, *to, self.bytes)?;
            }
            (Source::Host(from), Target::Memory { twin, offset }) => {
                twin.read_from(*offset, *from, self.bytes)?;
            }
            (Source::Host(from), Target::Host(to)) => {
                pages::write(*to, &mut pages::read(*from, self.bytes)?)?;
            }
        }
        Ok(())
    }

    /// Lets the program write page-locked source memory again.
    pub(crate) fn release(&self) {
        if let Source::Memory { twin, held: true, .. } = &self.from {
            twin.release();
        }
    }
}

/// A range of device memory that gets one byte's value.
#[derive(Debug)]
pub(crate) struct Fill {
    pub(crate) twin: Arc<Twin>,
    pub(crate) offset: usize,
    pub(crate) byte: u8,
    pub(crate) bytes: usize,
}

impl Fill {
    pub(crate) fn run(&self) {
        self.twin.fill(self.offset, self.byte, self.bytes);
    }
}
