//! Nodes on this host, and the effects of that.

use bytes::Bytes;
use larder_base::{Ring, placement::ExceptionsBuilder, ring::place_of};

use super::{fake::Table, *};
use crate::{Dataset, Locality};

/// Gives every shard to these members, in this order.
fn own(fixture: &Fixture, nodes: &[FakeNode], owners: impl Fn(u32) -> Vec<u16>) {
    let ring = Ring::new(1, nodes[0].state.members.lock().unwrap().clone()).unwrap();
    let snapshot = fixture.manifest.snapshot();
    let mut table = ExceptionsBuilder::new(&ring, snapshot, owners(0).len());
    for shard in 0..fixture.manifest.shard_count() {
        let place = place_of(fixture.manifest.shard(shard).id);
        table.except(place, owners(shard).into_iter().collect());
    }
    let table = Bytes::copy_from_slice(table.build().as_bytes());
    nodes.iter().for_each(|node| *node.state.table.lock().unwrap() = Table::Is(table.clone()));
}

/// Hosts with the same setup: all nodes announce the path at which this one listens.
fn share_path_of(nodes: &[FakeNode], one: &FakeNode) {
    let path = one.state.socket.lock().unwrap().clone();
    nodes.iter().for_each(|node| node.state.socket.lock().unwrap().clone_from(&path));
}

#[test]
fn node_is_local_only_if_it_answers_at_its_socket() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 3, true);
    let here = || Cluster::connect(&address).unwrap().nodes_here();
    assert_eq!(here(), ["node-0", "node-1", "node-2"]);
    share_path_of(&nodes, &nodes[1]);
    assert_eq!(here(), ["node-1"], "of those with the same path the one that answers");
    nodes.iter().for_each(|node| *node.state.socket.lock().unwrap() = "/nowhere".into());
    assert!(here().is_empty());
}

#[test]
fn node_of_another_cluster_is_not_local_despite_its_name() {
    let (ours, theirs) = (Fixture::new(), Fixture::new());
    let (nodes, address) = cluster(&ours, 2, true);
    let (others, _) = cluster(&theirs, 2, true);
    share_path_of(&nodes, &others[1]);
    assert!(Cluster::connect(&address).unwrap().nodes_here().is_empty());
}

#[test]
fn local_node_started_later_is_found() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 2, true);
    let path = nodes[1].state.socket.lock().unwrap().clone();
    share_path_of(&nodes[1..], &nodes[0]);
    let cluster = Cluster::connect(&address).unwrap();
    assert_eq!(cluster.nodes_here(), ["node-0"]);
    *nodes[1].state.socket.lock().unwrap() = path;
    assert_eq!(cluster.nodes_here(), ["node-0", "node-1"]);
}

#[test]
fn gathers_from_primary_owner_and_maps_from_local_owner() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 3, true);
    share_path_of(&nodes, &nodes[1]);
    own(&fixture, &nodes, |_| vec![0, 1]);
    let near = fetcher(&fixture, &address, true);
    near.learn_owners();
    let deadline = process::now() + Duration::from_secs(60);
    while gather(&fixture, &near, &shuffled(&fixture)).unwrap().rows_local < SAMPLES {
        assert!(process::now() < deadline, "not all shards are attached");
    }
    assert!(nodes[1].state.attaches.load(SeqCst) > 0);
    assert!(!nodes[0].asked().is_empty(), "until then");
    assert!(nodes[1].asked().is_empty() && nodes[2].asked().is_empty());
    let before = nodes[1].state.attaches.load(SeqCst);
    let options =
        FetchOptions { over_network: vec!["node-1".to_owned()], ..FetchOptions::default() };
    let cluster = Cluster::connect(&address).unwrap();
    let far = Fetcher::new(fixture.manifest.clone(), &name(&fixture), Some(cluster), options);
    far.learn_owners();
    assert_eq!(gather(&fixture, &far, &shuffled(&fixture)).unwrap().rows_local, 0);
    assert_eq!(nodes[1].state.attaches.load(SeqCst), before);
    assert!(nodes[2].asked().is_empty());
}

#[test]
fn local_owner_that_refuses_to_open_fails_no_row() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 2, true);
    share_path_of(&nodes, &nodes[1]);
    own(&fixture, &nodes, |_| vec![0, 1]);
    let refusal = |kind| *nodes[1].state.opens_not.lock().unwrap() = kind;
    let near = fetcher(&fixture, &address, true);
    near.learn_owners();
    for kind in [ErrorKind::InvalidArgument, ErrorKind::ResourceExhausted, ErrorKind::NotFound] {
        refusal(Some(kind));
        assert_eq!(gather(&fixture, &near, &shuffled(&fixture)).unwrap().rows_remote, SAMPLES);
    }
    refusal(None);
    let deadline = process::now() + Duration::from_secs(60);
    while gather(&fixture, &near, &shuffled(&fixture)).unwrap().rows_local < SAMPLES {
        assert!(process::now() < deadline, "it is not asked again");
    }
    // After a restart it does not know the dataset, and recalls its extents.
    nodes[1].state.forgot.store(true, SeqCst);
    (0..fixture.manifest.shard_count()).for_each(|shard| nodes[1].recall(shard));
    while nodes[1].state.forgot.load(SeqCst)
        || gather(&fixture, &near, &shuffled(&fixture)).unwrap().rows_local < SAMPLES
    {
        assert!(process::now() < deadline, "it is not opened again");
        gather(&fixture, &near, &shuffled(&fixture)).unwrap();
    }
    assert!(nodes[1].asked().is_empty());
}

/// A locality of ranks, by the nodes on their hosts.
fn locality(fixture: &Fixture, address: &str, ranks: &[&[&str]]) -> Result<Locality, Error> {
    let uri = name(fixture).reference.to_string();
    let dataset = Dataset::options().cluster(address).local(false).open(&uri).unwrap();
    let named = |names: &&[&str]| names.iter().map(|&name| name.to_owned()).collect();
    dataset.locality(&ranks.iter().map(named).collect::<Vec<_>>())
}

#[test]
fn locality_lists_the_hosts_with_ranks_that_own_each_shard() {
    let fixture = Fixture::new();
    let (nodes, address) = cluster(&fixture, 4, false);
    for (index, member) in nodes[0].state.members.lock().unwrap().iter_mut().enumerate() {
        member.host = format!("host-{}", index / 2);
    }
    own(&fixture, &nodes, |shard| vec![(shard % 4) as u16, ((shard + 1) % 4) as u16]);
    let (snapshot, shards) = (fixture.manifest.snapshot(), fixture.manifest.shard_count());
    let held = |ranks: &[&[&str]]| {
        let locality = locality(&fixture, &address, ranks).unwrap();
        assert_eq!(locality.snapshots().collect::<Vec<_>>(), [(snapshot, 1)]);
        let table = locality.table(snapshot, shards).unwrap();
        let of = |shard| locality.holders(table, shard).iter().map(|&host| host as i16).collect();
        (locality.ranks().hosts().to_vec(), (0..4).map(of).collect::<Vec<Vec<i16>>>())
    };
    // Two ranks beside node 2, one beside node 0, and one without a node.
    let (hosts, holders) = held(&[&["node-2"], &["node-0"], &[], &["node-2"]]);
    assert_eq!(hosts, [0, 1, 2, 0]);
    assert_eq!(holders, [[1, -1], [-1, 0], [0, -1], [-1, 1]]);
    // By hosts with two nodes each, and by all nodes that answer on a host.
    let by_host = held(&[&["host-1"], &["host-0"]]);
    assert_eq!(by_host.1, [[1, 1], [1, 0], [0, 0], [0, 1]]);
    assert_eq!(by_host, held(&[&["node-2", "node-3"], &["node-1", "node-0"]]));
    let error = locality(&fixture, &address, &[&["nobody"], &["node-9"]]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("nobody"), "{error}");
    assert!(locality(&fixture, &address, &[]).is_err());
}

#[test]
fn locality_without_a_cluster_is_refused() {
    let fixture = Fixture::new();
    let reader =
        Fetcher::new(fixture.manifest.clone(), &name(&fixture), None, FetchOptions::default());
    let error = Locality::of(&[&reader], &[vec!["node-0".to_owned()]]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("without a cluster"), "{error}");
}
