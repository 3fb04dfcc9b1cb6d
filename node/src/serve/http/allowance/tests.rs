use super::*;

const STRANGER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));
const FRIEND: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const CONNECTION: usize = CONTROL_CONNECTION_BYTES;

/// An allowance for so many idle connections.
fn room(connections: usize) -> Arc<Allowance> {
    Allowance::new(connections * CONNECTION, 1_000)
}

fn is_closed(share: &Share) -> bool {
    share.closed.is_cancelled()
}

fn is_empty(allowance: &Allowance) -> bool {
    let state = allowance.lock();
    state.held == 0 && state.by_address.is_empty() && state.connections.is_empty()
}

#[test]
fn the_fullest_address_loses_its_oldest_idle_connection() {
    let room = room(4);
    let mut shares: Vec<_> = (0..3).map(|_| room.try_admit(STRANGER).unwrap()).collect();
    shares.push(room.try_admit(FRIEND).unwrap());
    let late = room.try_admit(FRIEND).unwrap();
    let closed: Vec<_> = shares.iter().map(|share| is_closed(share)).collect();
    assert_eq!(closed, [true, false, false, false]);
    // It also makes room for itself in this way.
    let latest = room.try_admit(STRANGER).unwrap();
    assert!(is_closed(&shares[1]) && !is_closed(&late) && !is_closed(&latest));
    drop((shares, late, latest));
    assert!(is_empty(&room));
}

#[test]
fn places_are_counted_beside_bytes() {
    let room = Allowance::new(1 << 30, 2);
    let shares: Vec<_> = (0..3).map(|_| room.try_admit(STRANGER).unwrap()).collect();
    assert!(is_closed(&shares[0]) && !is_closed(&shares[1]));
}

#[test]
fn requests_that_do_not_arrive_make_room_and_answers_do_not() {
    let room = Allowance::new(2 * CONNECTION + 2 * CONTROL_IN_PROGRESS_BYTES, 1_000);
    let shares = [(); 2].map(|()| room.try_admit(STRANGER).unwrap());
    let requests = [&shares[0], &shares[1]].map(|share| share.begin().unwrap());
    requests[0].arrived();
    let third = room.try_admit(STRANGER).unwrap();
    assert!(!is_closed(&shares[0]) && is_closed(&shares[1]));
    // Both that are left would be busy: a further request of this address finds no room.
    let busy = third.begin().unwrap();
    busy.arrived();
    assert_eq!(third.begin().unwrap_err(), Full);
    assert!(!is_closed(&shares[0]));
    // Another address is not held up by them.
    let friend = room.try_admit(FRIEND).unwrap();
    assert!(is_closed(&shares[0]) && !is_closed(&friend));
    drop((requests, busy, shares, third, friend));
    assert!(is_empty(&room));
}

#[test]
fn received_bytes_are_charged_until_all_is_answered() {
    let room = Allowance::new(1 << 30, 1_000);
    let share = room.try_admit(FRIEND).unwrap();
    let held = || room.lock().held;
    share.received(CONTROL_RECEIVED_BYTES_FREE).unwrap();
    assert_eq!(held(), CONNECTION);
    let request = share.begin().unwrap();
    share.received(1_000).unwrap();
    assert_eq!(held(), CONNECTION + CONTROL_IN_PROGRESS_BYTES + 1_000);
    request.answered();
    assert_eq!(held(), CONNECTION + CONTROL_IN_PROGRESS_BYTES);
    share.received(1 << 30).unwrap();
    assert!(held() <= CONNECTION + (1 << 20) + CONTROL_IN_PROGRESS_BYTES);
    drop(request);
    drop(share);
    assert!(is_empty(&room));
}

#[test]
fn bytes_without_room_end_their_connection() {
    let room = room(2);
    let share = room.try_admit(STRANGER).unwrap();
    let request = share.begin().unwrap();
    assert_eq!(share.received(2 * CONNECTION), Err(Full));
    drop(request);
    assert_eq!(room.lock().held, CONNECTION);
    drop(share);
    assert!(is_empty(&room));
}

#[tokio::test]
async fn connection_waits_until_another_of_its_address_ends() {
    let room = Allowance::new(CONNECTION + CONTROL_IN_PROGRESS_BYTES, 1_000);
    let share = room.try_admit(STRANGER).unwrap();
    let request = share.begin().unwrap();
    request.arrived();
    let mut waiting = Box::pin(room.admit(STRANGER));
    let moment = Duration::from_millis(20);
    assert!(tokio::time::timeout(moment, &mut waiting).await.is_err());
    drop((request, share));
    assert!(waiting.await.is_some());
}
