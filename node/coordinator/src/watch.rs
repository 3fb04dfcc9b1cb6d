//! Following what the coordinator keeps: always the latest, and whether it is there at all.

use std::sync::Arc;

use tokio::sync::watch;

use super::types::View;

/// What a watch knows.
#[derive(Debug, Clone)]
struct Known {
    view: Arc<View>,
    away: Option<Arc<str>>,
    /// Whose turn it is to say more.
    turn: u64,
}

/// Follows what changes. Cheap to clone; each clone has its own sense of what is new.
#[derive(Debug, Clone)]
pub struct Watch(watch::Receiver<Known>);

impl Watch {
    /// The latest that is known, and marks it as seen.
    pub fn view(&mut self) -> Arc<View> {
        Arc::clone(&self.0.borrow_and_update().view)
    }

    /// Why the coordinator is away, if it is.
    #[must_use]
    pub fn away(&self) -> Option<Arc<str>> {
        self.0.borrow().away.clone()
    }

    /// Waits until there is something that [`view`](Self::view) and [`away`](Self::away) have not
    /// shown. False when nothing more will come: the coordinator was dropped.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

/// The side that knows. Of several for one watch only the latest is heard.
#[derive(Debug)]
pub(super) struct Publisher {
    known: Arc<watch::Sender<Known>>,
    turn: u64,
}

impl Publisher {
    /// Nothing is known yet.
    pub(super) fn new() -> Self {
        let away = Some(Arc::from("it has not been asked yet"));
        let known = watch::Sender::new(Known { view: Arc::default(), away, turn: 0 });
        Self { known: Arc::new(known), turn: 0 }
    }

    /// Takes the turn of all before it: what they say from now on is not heard.
    pub(super) fn successor(&self) -> Self {
        let mut turn = 0;
        self.known.send_if_modified(|known| {
            known.turn += 1;
            turn = known.turn;
            false
        });
        Self { known: Arc::clone(&self.known), turn }
    }

    /// The coordinator is there and keeps this.
    pub(super) fn here(&self, view: View) {
        self.known.send_if_modified(|known| {
            let news = known.away.is_some() || *known.view != view;
            let heard = news && known.turn == self.turn;
            if heard {
                (known.view, known.away) = (Arc::new(view), None);
            }
            heard
        });
    }

    /// The coordinator is away.
    pub(super) fn away(&self, why: &str) {
        self.known.send_if_modified(|known| {
            let news = known.away.as_deref() != Some(why);
            let heard = news && known.turn == self.turn;
            if heard {
                known.away = Some(Arc::from(why));
            }
            heard
        });
    }

    /// The latest.
    pub(super) fn view(&self) -> Arc<View> {
        Arc::clone(&self.known.borrow().view)
    }

    /// Whether the coordinator was there when last heard of.
    pub(super) fn is_here(&self) -> bool {
        self.known.borrow().away.is_none()
    }

    /// A new watch, which is told what is known now.
    pub(super) fn watch(&self) -> Watch {
        let mut receiver = self.known.subscribe();
        receiver.mark_changed();
        Watch(receiver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_been_succeeded_is_not_heard_any_more() {
        let first = Publisher::new();
        first.here(View::default());
        let second = first.successor();
        first.away("gone");
        assert!(second.is_here());
        second.away("really");
        assert_eq!(second.watch().away().as_deref(), Some("really"));
        first.here(View::default());
        assert!(!second.is_here());
    }
}
