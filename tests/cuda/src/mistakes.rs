//! The kinds of mistakes that a report names.
//!
//! Each mistake in a report has one of these kinds and a sentence with the call, the sizes and the
//! streams. Thread rule: constants only. Non-goals: finding the mistakes; `copies` and `memory` do.

/// A stream reads device memory, and nothing orders it after the last write.
pub const READ_BEFORE_WRITE: &str = "read before its write is done";
/// A stream writes device memory, and nothing orders it after the last write.
pub const WRITE_BEFORE_WRITE: &str = "written before its write is done";
/// A stream writes device memory, and nothing orders it after the reads since the last write.
pub const WRITE_BEFORE_READ: &str = "written before its readers are done";
/// The host unregisters memory before it has waited for the copies that use it.
pub const UNREGISTERED: &str = "unregistered under a copy";
/// The host frees memory before it has waited for the copies that use it.
pub const FREED: &str = "freed under a copy";
/// The pages of a copy are no longer mapped when the copy runs.
pub const UNMAPPED: &str = "unmapped under a copy";
/// The source of an asynchronous copy is pageable memory.
pub const NOT_PAGE_LOCKED: &str = "source is not page-locked";
/// A copy leaves the registration or the page-locked allocation in which it begins or ends.
pub const PARTLY_REGISTERED: &str = "source is only partly registered";
/// The calling thread has no current context.
pub const NO_CONTEXT: &str = "no current context";
/// Memory that was page-locked for one device without `PORTABLE` is copied to or from another.
pub const NOT_PORTABLE: &str = "other device without PORTABLE";
/// A driver of the played version lacks the symbol.
pub const NEWER_SYMBOL: &str = "symbol newer than the driver";
/// The program keeps polling events although the device is lost.
pub const POLLED_AFTER_LOSS: &str = "polled after the device was lost";
/// Memory, a stream or an event is given back twice.
pub const DOUBLE_FREE: &str = "double free";
/// A forked child calls the driver of its parent.
pub const AFTER_FORK: &str = "called after a fork";

/// Every kind.
pub const KINDS: &[&str] = &[
    READ_BEFORE_WRITE,
    WRITE_BEFORE_WRITE,
    WRITE_BEFORE_READ,
    UNREGISTERED,
    FREED,
    UNMAPPED,
    NOT_PAGE_LOCKED,
    PARTLY_REGISTERED,
    NO_CONTEXT,
    NOT_PORTABLE,
    NEWER_SYMBOL,
    POLLED_AFTER_LOSS,
    DOUBLE_FREE,
    AFTER_FORK,
];
