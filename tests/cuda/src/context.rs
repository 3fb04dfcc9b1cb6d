//! Contexts: one primary context per device, and the context that is current in a thread.
//!
//! Each thread has a stack of context handles. A call that needs a context takes the top.
//! Thread rule: the stack is thread-local; the contexts lie under the state's mutex.
//! Non-goals: contexts that are not primary.

use std::cell::Cell;

use crate::codes::{self, Code};
use crate::mistakes;
use crate::state::State;

/// Deepest stack of contexts in a thread.
const STACK_MAX: usize = 16;

thread_local! {
    /// Plain cells without a destructor: a call from another destructor must still find them.
    static STACK: Cell<([u64; STACK_MAX], usize)> = const { Cell::new(([0; STACK_MAX], 0)) };
}

/// The handle of the thread's current context, or 0.
pub(crate) fn current_handle() -> u64 {
    let (stack, depth) = STACK.get();
    if depth == 0 { 0 } else { stack[depth - 1] }
}

/// Puts a handle on the thread's stack; 0 stands for no context.
pub(crate) fn push(handle: u64) -> Result<(), Code> {
    let (mut stack, depth) = STACK.get();
    *stack.get_mut(depth).ok_or(codes::INVALID_VALUE)? = handle;
    STACK.set((stack, depth + 1));
    Ok(())
}

/// Takes the top of the thread's stack.
pub(crate) fn pop() -> Option<u64> {
    let (stack, depth) = STACK.get();
    let rest = depth.checked_sub(1)?;
    STACK.set((stack, rest));
    Some(stack[rest])
}

impl State {
    /// Returns the device of the context with this handle. The context must be retained.
    pub(crate) fn device_of(&self, handle: u64) -> Result<usize, Code> {
        let found = self.contexts.iter().position(|c| c.handle == handle && c.retained > 0);
        found.ok_or(codes::INVALID_CONTEXT)
    }

    /// The device of the thread's current context. A thread without one makes a mistake.
    pub(crate) fn current(&mut self, call: &'static str) -> Result<usize, Code> {
        self.device_of(current_handle()).inspect_err(|_| {
            let detail = format!("{call} runs in a thread that has no current context");
            self.mistake(mistakes::NO_CONTEXT, detail);
        })
    }
}
