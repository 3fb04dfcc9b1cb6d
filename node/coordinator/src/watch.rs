//! Follows the coordinator's state: always the latest, and whether the coordinator is reachable.

use std::sync::Arc;

use tokio::sync::watch;

use super::types::CoordinatorView;

/// The state behind a watch.
#[derive(Debug, Clone)]
struct WatchedState {
    view: Arc<CoordinatorView>,
    away: Option<Arc<str>>,
    /// The turn of the publisher that may publish.
    turn: u64,
}

/// Follows changes. Cheap to clone; each clone tracks separately which state it has seen.
#[derive(Debug, Clone)]
pub struct Watch(watch::Receiver<WatchedState>);

impl Watch {
    /// Returns the latest state, and marks it as seen.
    pub fn view(&mut self) -> Arc<CoordinatorView> {
        Arc::clone(&self.0.borrow_and_update().view)
    }

    /// Returns why the coordinator is away, if it is.
    pub fn away(&self) -> Option<Arc<str>> {
        self.0.borrow().away.clone()
    }

    /// Waits for a change that [`view`](Self::view) and [`away`](Self::away) have not shown.
    /// Returns false when the coordinator was dropped.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

/// The publishing side. Of several publishers for one watch only the latest counts.
#[derive(Debug)]
pub(super) struct Publisher {
    known: Arc<watch::Sender<WatchedState>>,
    turn: u64,
}

impl Publisher {
    /// Creates a publisher with no state yet.
    pub(super) fn new() -> Self {
        let away = Some(Arc::from("it has not been asked yet"));
        let known = watch::Sender::new(WatchedState { view: Arc::default(), away, turn: 0 });
        Self { known: Arc::new(known), turn: 0 }
    }

    /// Creates a publisher that replaces this one. Later calls on the older ones have no effect.
    pub(super) fn successor(&self) -> Self {
        let mut turn = 0;
        self.known.send_if_modified(|known| {
            known.turn += 1;
            turn = known.turn;
            false
        });
        Self { known: Arc::clone(&self.known), turn }
    }

    /// Publishes the state of a reachable coordinator.
    pub(super) fn here(&self, view: CoordinatorView) {
        self.known.send_if_modified(|known| {
            let news = known.away.is_some() || *known.view != view;
            let heard = news && known.turn == self.turn;
            if heard {
                (known.view, known.away) = (Arc::new(view), None);
            }
            heard
        });
    }

    /// Publishes that the coordinator is away.
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

    /// Returns the latest state.
    pub(super) fn view(&self) -> Arc<CoordinatorView> {
        Arc::clone(&self.known.borrow().view)
    }

    /// Returns true if the coordinator was reachable at the last news.
    pub(super) fn is_here(&self) -> bool {
        self.known.borrow().away.is_none()
    }

    /// Creates a watch that starts with the current state.
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
    fn replaced_publisher_has_no_effect() {
        let first = Publisher::new();
        first.here(CoordinatorView::default());
        let second = first.successor();
        first.away("gone");
        assert!(second.is_here());
        second.away("really");
        assert_eq!(second.watch().away().as_deref(), Some("really"));
        first.here(CoordinatorView::default());
        assert!(!second.is_here());
    }
}
