//! Fills beside a scripted peer that has the shards, for each way a peer may behave.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use futures_util::future::join_all;
use larder_base::{BootId, Error, ErrorKind, limits};
use larder_extent::Sealed;
use larder_extent::crc::crc32c;
use larder_wire::data::{
    ErrorReply, HelloOk, Kind, Part, ReadPart, read_body, read_header, read_hello,
};

use super::*;
use crate::cache::FoundShard;
use crate::cache::Priority;
use crate::cache::Waited;
use crate::fill::Piece;
use crate::testing::{CacheFixture, Folder, member, placed};

/// How a scripted peer answers requests for parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Gives the shards it has.
    Honest,
    /// Has no shard.
    Empty,
    /// Its memory is damaged. The checksum matches the bytes it sends, the digest the rows it once
    /// read.
    Damaged,
    /// A bit turns on the way.
    Garbled,
    /// States another digest each time.
    Undecided,
    /// Hangs up in the middle of the third part.
    Dies,
    /// Answers HELLO and nothing more.
    Silent,
    /// Asks for the longest pauses, as if clients read from it.
    Busy,
}

/// A scripted peer that has all shards.
struct FakePeer {
    way: Way,
    shards: Vec<Arc<Sealed>>,
    asked: AtomicUsize,
}

impl FakePeer {
    /// Starts it; returns its address.
    fn start(way: Way, shards: Vec<Arc<Sealed>>) -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let peer = Arc::new(Self { way, shards, asked: AtomicUsize::new(0) });
        let own = Arc::clone(&peer);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let own = Arc::clone(&own);
                thread::spawn(move || own.talk(stream.unwrap()));
            }
        });
        (peer, address)
    }

    /// Serves until the other side hangs up, or the script says so.
    fn talk(&self, mut stream: TcpStream) -> Option<()> {
        let (request, hello) = read_hello(&mut stream).ok()?;
        let ok = HelloOk::answer(&hello, BootId::from_bytes([1; 16]), "n2").unwrap();
        let (mut out, mut body) = (Vec::new(), Vec::new());
        ok.encode(request, &mut out);
        stream.write_all(&out).ok()?;
        loop {
            let header = read_header(&mut stream).ok()?;
            read_body(&mut stream, &header, &mut body).ok()?;
            assert_eq!(header.kind(), Kind::ReadPart);
            let wanted = ReadPart::decode(&body).unwrap();
            out.clear();
            let whole = self.answer(header.request(), wanted, &mut out);
            stream.write_all(&out).ok()?;
            whole.then_some(())?;
        }
    }

    /// Writes the answer. Returns false if the peer must hang up after it.
    fn answer(&self, request: u64, wanted: ReadPart, out: &mut Vec<u8>) -> bool {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        let sealed = &self.shards[wanted.shard as usize];
        let begin = usize::try_from(wanted.offset).unwrap();
        let mut payload =
            sealed.region(wanted.tensor as usize)[begin..][..wanted.bytes as usize].to_vec();
        let mut part = Part { digest: sealed.digest(), crc32c: crc32c(&payload), rests: 0 };
        match self.way {
            Way::Empty => {
                let error = Error::new(ErrorKind::NotFound, "not here");
                ErrorReply::from(error).encode(request, out);
                return true;
            }
            Way::Damaged => {
                payload[7] ^= 1;
                part.crc32c = crc32c(&payload);
            }
            Way::Garbled => payload[7] ^= 1,
            Way::Undecided => part.digest += asked as u64,
            Way::Dies if asked == 2 => payload.truncate(wanted.bytes as usize / 2),
            Way::Silent => {
                thread::park_timeout(2 * peer::PEER_PART_TIMEOUT);
                return false;
            }
            Way::Busy => part.rests = u32::MAX,
            Way::Honest | Way::Dies => {}
        }
        part.encode(request, u64::from(wanted.bytes), out);
        out.extend(&payload);
        payload.len() == wanted.bytes as usize
    }
}

/// Creates rows of 64 KiB, so that a shard has several parts of 8 MiB.
const ROWS: usize = 400;

fn folder() -> Folder {
    Folder::new(ROWS, 64 << 10, 32 << 20, false)
}

/// The outcome of a fill.
struct Filled {
    /// Requests to the peer.
    asked: usize,
    /// Bytes of whole parts that came from the peer.
    lent: u64,
    /// Bytes that came from the origin.
    read: u64,
}

/// Fills the first shard beside a peer that behaves as told, and compares its bytes.
fn fill_at(priority: Priority, way: Way) -> Filled {
    let folder = folder();
    let stocked = CacheFixture::new(&folder, 64 << 20);
    let shards = 0..stocked.dataset.manifest().shard_count();
    let shards: Vec<_> = shards.map(|shard| stocked.get(shard).unwrap()).collect();
    assert!(shards[0].region(0).len() > 3 * (8 << 20), "several parts");
    let (peer, address) = FakePeer::start(way, shards);
    let fixture = CacheFixture::unmanned(&folder, 64 << 20);
    let before = fixture.counters.origin_bytes.get();
    fixture.start_workers_among(&[("n2", address)]);
    let found = fixture.cache.find(&fixture.dataset, &[0], priority).pop();
    let Some(FoundShard::InFlight(flight)) = found else { panic!("it is here already") };
    let Waited::Sealed(sealed) = flight.wait_for_all(limits::FILL_DEADLINE) else {
        panic!("it did not come")
    };
    folder.check(&fixture.dataset, 0, &sealed);
    let (lent, read) = (&fixture.counters.peer_bytes, &fixture.counters.origin_bytes);
    Filled { asked: peer.asked.load(Ordering::SeqCst), lent: lent.get(), read: read.get() - before }
}

/// Returns the bytes from the peer and from the origin, for a fill that a reader waits for.
fn fill_beside(way: Way) -> (u64, u64) {
    let filled = fill_at(Priority::Demand, way);
    (filled.lent, filled.read)
}

#[test]
fn shard_held_by_a_peer_is_not_read_from_the_origin() {
    let (lent, read) = fill_beside(Way::Honest);
    assert!(lent > 3 * (8 << 20));
    assert_eq!(read, 0);
}

#[test]
fn background_shard_arrives_in_pieces_despite_pauses() {
    let filled = fill_at(Priority::Background, Way::Busy);
    assert!(filled.asked > 8, "more pieces than there are parts");
}

#[test]
fn part_with_only_some_pieces_from_a_peer_comes_from_the_origin() {
    let filled = fill_at(Priority::Background, Way::Dies);
    assert!(filled.lent == 0 && filled.read > 3 * (8 << 20));
}

#[test]
fn peer_without_the_shard_is_asked_once() {
    let (lent, read) = fill_beside(Way::Empty);
    assert_eq!(lent, 0);
    assert!(read > 0);
}

#[test]
fn parts_missing_from_a_peer_come_from_the_origin() {
    let (lent, read) = fill_beside(Way::Dies);
    assert!(lent > 0 && read > 0, "{lent} lent, {read} read");
}

#[test]
fn silent_peer_is_abandoned_for_the_origin() {
    let (lent, read) = fill_beside(Way::Silent);
    assert_eq!(lent, 0);
    assert!(read > 0);
}

#[test]
fn only_a_few_of_many_readers_ask_a_silent_peer() {
    let folder = folder();
    let stocked = CacheFixture::new(&folder, 64 << 20);
    let (fake, address) = FakePeer::start(Way::Silent, vec![stocked.get(0).unwrap()]);
    let peer = Arc::new(Peer::met("n2", &address));
    let snapshot = stocked.dataset.snapshot();
    let ask = |_| {
        let peer = Arc::clone(&peer);
        async move {
            let wanted = ReadPart { snapshot, shard: 0, tensor: 0, offset: 0, bytes: 16 };
            let mut memory = [0; 16];
            let patience = STAND_IN_PATIENCE;
            peer.read(&wanted, &mut Piece::new(&mut memory), patience).await.is_err()
        }
    };
    let asked = (0..3 * peer::PEER_CONNECTIONS_MAX).map(ask);
    assert!(stocked.runtime.block_on(join_all(asked)).into_iter().all(|missed| missed));
    assert!(fake.asked.load(Ordering::SeqCst) <= peer::PEER_CONNECTIONS_MAX);
}

#[test]
fn shard_damaged_at_the_peer_is_read_again() {
    let (lent, read) = fill_beside(Way::Damaged);
    assert!(read >= lent && lent > 0, "{lent} lent, {read} read");
}

#[test]
fn bytes_of_a_peer_are_read_only_after_verification() {
    let folder = folder();
    let stocked = CacheFixture::new(&folder, 64 << 20);
    let (peer, address) = FakePeer::start(Way::Damaged, vec![stocked.get(0).unwrap()]);
    let fixture = CacheFixture::unmanned(&folder, 64 << 20);
    let FoundShard::InFlight(flight) = fixture.find(0) else { panic!("it is here already") };
    fixture.start_workers_among(&[("n2", address)]);
    let Waited::Sealed(sealed) = flight.wait(0, &(0..8), limits::FILL_DEADLINE) else {
        panic!("bytes of a damaged peer were to be read")
    };
    folder.check(&fixture.dataset, 0, &sealed);
    assert!(peer.asked.load(Ordering::SeqCst) > 0);
}

#[test]
fn part_damaged_in_transit_is_read_from_the_origin() {
    let (lent, read) = fill_beside(Way::Garbled);
    assert_eq!(lent, 0);
    assert!(read > 0);
}

#[test]
fn peer_that_changes_its_digest_is_not_trusted() {
    let (lent, read) = fill_beside(Way::Undecided);
    assert!(read > 0, "{lent} lent, {read} read");
}

#[test]
fn asked_peers_follow_the_ring_and_exclude_this_node() {
    let members = ["n1", "n2", "n3", "n4"].iter().zip(1..);
    let members = members.map(|(id, port)| member(id, &format!("127.0.0.1:{port}"))).collect();
    let placements = placed(1, members);
    let peers = Peers::new("n1", Arc::clone(&placements));
    for number in 0..50 {
        let shard = ShardId::from_bytes([number; 16]);
        let asked = asked(&peers, shard);
        let placements = placements.load();
        let walk: Vec<_> = placements.ring().walk(shard).map(|member| member.id.as_str()).collect();
        let others = walk.iter().copied().filter(|&id| id != "n1").take(2);
        assert!(others.eq(asked.iter().map(String::as_str)), "{asked:?}");
        // n1 is not the owner, so the client has already waited for a silent one.
        let holders = peers.holders(SnapshotId::from_bytes([3; 32]), shard);
        let brief = |holder: &Holder| holder.patience == STAND_IN_PATIENCE;
        assert!(holders.iter().all(|holder| brief(holder) == (walk[0] != "n1")));
    }
}

/// Returns the names of the members that are asked for a shard.
fn asked(peers: &Peers, shard: ShardId) -> Vec<String> {
    let holders = peers.holders(SnapshotId::from_bytes([3; 32]), shard);
    holders.iter().map(|holder| holder.peer.id().to_owned()).collect()
}

#[test]
fn new_owner_asks_the_former_owner_first() {
    let named = |ids: &[&str]| ids.iter().map(|id| member(id, &format!("{id}:1"))).collect();
    let before = placed(1, named(&["n2", "n3"])).load_full();
    let ring = larder_base::Ring::new(2, named(&["n1", "n2", "n3"])).unwrap();
    let now = Placements::new(Arc::new(ring), Vec::new(), Some(Arc::clone(&before))).unwrap();
    let peers = Peers::new("n1", Arc::new(ArcSwap::from_pointee(now)));
    let (mut mine, mut others) = (0, 0);
    for number in 0..50 {
        let shard = ShardId::from_bytes([number; 16]);
        let former = &before.ring().owner(shard).id;
        let now = peers.placements.load();
        let asked = asked(&peers, shard);
        if now.ring().owner(shard).id == "n1" {
            assert_eq!(&asked[0], former);
            mine += 1;
        } else {
            assert_eq!(asked.last(), Some(former));
            others += 1;
        }
    }
    assert!(mine > 0 && others > 0);
}
