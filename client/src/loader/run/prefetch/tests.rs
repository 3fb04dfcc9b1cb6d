use std::{
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Duration,
};

use super::*;

/// Passes only if a thread hangs.
const HUNG: Duration = Duration::from_secs(60);

fn failure() -> Error {
    Error::new(ErrorKind::DataLoss, "broken")
}

/// Reports its drop, which happens when the last thread ends.
struct Farewell(SyncSender<()>);

impl Drop for Farewell {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

fn farewell() -> (Farewell, Receiver<()>) {
    let (sender, receiver) = sync_channel(1);
    (Farewell(sender), receiver)
}

#[test]
fn results_come_in_order_when_a_later_piece_ends_first() {
    let (done, first_may_end) = sync_channel(1);
    let first_may_end = Mutex::new(first_may_end);
    let work = move |piece| {
        match piece {
            0 => first_may_end.lock().unwrap().recv_timeout(HUNG).unwrap(),
            1 => done.send(()).unwrap(),
            _ => {}
        }
        Ok(piece)
    };
    let mut prefetch = Prefetch::start(100, 2, 0, work).unwrap();
    let pieces: Vec<u64> = std::iter::from_fn(|| prefetch.next()).map(Result::unwrap).collect();
    assert_eq!(pieces, Vec::from_iter(0..100));
    assert!(prefetch.next().is_none() && !prefetch.failed());
}

#[test]
fn pieces_run_in_parallel_up_to_the_depth() {
    const DEPTH: usize = 4;
    let begun_at_most = Arc::new(AtomicU64::new(DEPTH as u64));
    let together = Arc::new(Barrier::new(DEPTH));
    let work = {
        let begun_at_most = Arc::clone(&begun_at_most);
        move |piece| {
            assert!(piece < begun_at_most.load(SeqCst), "piece {piece} was begun too early");
            if piece < DEPTH as u64 {
                together.wait(); // passes only if the first pieces are in flight together
            }
            Ok(())
        }
    };
    let mut prefetch = Prefetch::start(50, DEPTH, 0, work).unwrap();
    for _ in 0..50 {
        begun_at_most.fetch_add(1, SeqCst);
        prefetch.next().unwrap().unwrap();
    }
    assert!(prefetch.next().is_none());
}

#[test]
fn error_comes_in_order_once_and_ends_the_results() {
    let begun = Arc::new(AtomicU64::new(0));
    let work = {
        let begun = Arc::clone(&begun);
        move |piece| {
            begun.fetch_add(1, SeqCst);
            if piece == 5 { Err(failure()) } else { Ok(piece) }
        }
    };
    let mut prefetch = Prefetch::start(1_000_000, 3, 0, work).unwrap();
    for piece in 0..5 {
        assert_eq!(prefetch.next().unwrap().unwrap(), piece);
    }
    assert_eq!(prefetch.next().unwrap().unwrap_err().kind(), ErrorKind::DataLoss);
    assert!(prefetch.next().is_none() && prefetch.next().is_none());
    assert!(prefetch.failed());
    assert!(begun.load(SeqCst) <= 5 + 3);
}

#[test]
fn panic_becomes_an_error_with_its_message() {
    let work = |piece| {
        assert!(piece < 2, "no more than two");
        Ok(piece)
    };
    let mut prefetch = Prefetch::start(10, 2, 0, work).unwrap();
    let outcomes: Vec<_> = std::iter::from_fn(|| prefetch.next()).collect();
    assert_eq!(outcomes.len(), 3);
    let error = outcomes[2].as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert_eq!(error.to_string(), "a thread of the loader panicked at batch 2: no more than two");
}

#[test]
fn drop_does_not_wait_and_the_threads_end() {
    let (entered, in_flight) = sync_channel(2);
    let gate = Arc::new(Barrier::new(3));
    let (farewell, ended) = farewell();
    let work = {
        let gate = Arc::clone(&gate);
        move |piece| {
            let _held = &farewell;
            entered.send(piece).unwrap();
            gate.wait();
            Ok(piece)
        }
    };
    let prefetch = Prefetch::start(u64::MAX, 2, 0, work).unwrap();
    let mut begun = [in_flight.recv_timeout(HUNG).unwrap(), in_flight.recv_timeout(HUNG).unwrap()];
    begun.sort_unstable();
    assert_eq!(begun, [0, 1]);
    drop(prefetch); // both threads stand at the gate
    assert!(ended.try_recv().is_err());
    gate.wait();
    ended.recv_timeout(HUNG).unwrap();
    assert!(in_flight.try_recv().is_err(), "nothing was begun after the drop");
}

#[test]
fn unread_results_are_dropped_with_the_prefetch() {
    let outcome = Arc::new(());
    let (farewell, ended) = farewell();
    let work = {
        let outcome = Arc::downgrade(&outcome);
        move |_| {
            let _held = &farewell;
            Ok(outcome.upgrade().unwrap())
        }
    };
    let mut prefetch = Prefetch::start(10, 4, 0, work).unwrap();
    drop(prefetch.next());
    drop(prefetch);
    ended.recv_timeout(HUNG).unwrap();
    assert_eq!(Arc::strong_count(&outcome), 1);
}

#[test]
fn use_in_another_process_is_an_error_and_takes_no_lock() {
    let mut prefetch = Prefetch::<()>::start(0, 2, 0, |_| Ok(())).unwrap();
    prefetch.process += 1;
    let shared = Arc::clone(&prefetch.shared);
    let held = shared.lock();
    assert_eq!(prefetch.next().unwrap().unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(prefetch.next().is_none());
    drop(prefetch);
    drop(held);
}

#[test]
fn prefetch_of_no_pieces_ends_at_once() {
    let mut prefetch = Prefetch::<()>::start(0, 2, 0, |_| unreachable!()).unwrap();
    assert!(prefetch.next().is_none() && !prefetch.failed());
}

#[test]
fn prefetches_only_as_many_pieces_as_the_window_allows() {
    let begun = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&begun);
    let work = move |piece| {
        counted.fetch_add(1, SeqCst);
        Ok(piece)
    };
    let mut prefetch = Prefetch::start(100, 1, 3, work).unwrap();
    // The thread waits for room after four pieces: three ready ones, and one in progress.
    while begun.load(SeqCst) < 4 {
        thread::yield_now();
    }
    assert!(prefetch.wait(HUNG));
    for piece in 0..100 {
        assert!(begun.load(SeqCst) <= piece + 4);
        assert_eq!(prefetch.next().unwrap().unwrap(), piece);
    }
    assert!(prefetch.next().is_none());
}
