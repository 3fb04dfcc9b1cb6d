//! Hands the warnings of this library to the program. A program in Rust may set a subscriber of
//! `tracing` instead; this one is for programs that only show lines of text.
//!
//! Thread rule: any thread may warn, so the function that takes warnings runs on any thread.
//! Non-goals: events below warnings; spans.

use std::fmt::{self, Write};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
    subscriber::{Interest, set_global_default},
};

pub use tracing::Level;

/// Longest text of a warning, in bytes.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// Calls `take` with each warning and error of this library from now on. Does nothing if the
/// process has a subscriber already.
pub fn take_warnings(take: impl Fn(Level, String) + Send + Sync + 'static) {
    let _ = set_global_default(Listener(take));
}

/// Takes warnings of this library's crates.
struct Listener<F>(F);

impl<F: Fn(Level, String) + Send + Sync + 'static> Subscriber for Listener<F> {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let ours = metadata.target().starts_with("larder_");
        ours && metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        (self.0)(*event.metadata().level(), text.whole());
    }

    // There are no spans, so these are never called.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// The text of an event: its message, then its fields.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn whole(self) -> String {
        let Self { message, fields } = self;
        let mut whole = if fields.is_empty() { message } else { format!("{message} ({fields})") };
        whole.truncate(whole.floor_char_boundary(TEXT_BYTES_MAX));
        whole
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            let comma = if self.fields.is_empty() { "" } else { ", " };
            write!(self.fields, "{comma}{}: {value:?}", field.name())
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}
