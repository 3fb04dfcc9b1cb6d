"""Ranks that divide batches by where their rows are held; those of torch are in with_torch."""

from __future__ import annotations

import pickle

import pytest

import larder
from harness import Node

URI = "s3://data/many"
NAMES = ("near", "far")


@pytest.fixture
def ds(two_nodes: list[Node]) -> larder.Dataset:
    return larder.open(URI, cluster=two_nodes[1].address)


def batches(
    ds: larder.Dataset | larder.Mixture, world: int, locality: larder.Locality | bool
) -> list[list[list[int]]]:
    """The samples of each rank, of one global batch after the other."""
    options = {"shuffle": "global", "seed": 3, "world_size": world, "locality": locality}
    loaders = [ds.loader(16, rank=rank, **options) for rank in range(world)]
    ranks = [[batch.samples.tolist() for batch in loader] for loader in loaders]
    return [list(batch) for batch in zip(*ranks, strict=True)]


def whole(batch: list[list[int]]) -> list[int]:
    return sorted(sample for rank in batch for sample in rank)


def test_nodes_of_this_host_are_found_by_their_sockets(ds: larder.Dataset) -> None:
    assert sorted(ds.nodes_here) == sorted(NAMES)
    alone = larder.mix([(ds, 0.5), (ds.select(range(100)), 0.5)])
    assert sorted(alone.nodes_here) == sorted(NAMES)
    assert larder.open(URI, cluster="none").nodes_here == []


def test_a_global_batch_has_the_same_samples_divided_differently(ds: larder.Dataset) -> None:
    locality = ds.locality(["near", "far", ["far"], []])
    assert locality.world_size == 4
    slices, divided = batches(ds, 4, False), batches(ds, 4, locality)
    assert slices != divided
    assert [whole(batch) for batch in slices] == [whole(batch) for batch in divided]
    assert all(len(rank) == 16 for batch in divided for rank in batch)


def test_locality_divides_a_mixture(ds: larder.Dataset) -> None:
    mixture = larder.mix([(ds, 0.5), (ds.select(range(100)), 0.5)], stop=160)
    locality = mixture.locality(["near", "far"])
    slices, divided = batches(mixture, 2, False), batches(mixture, 2, locality)
    assert [whole(batch) for batch in slices] == [whole(batch) for batch in divided]


def test_locality_is_equal_after_pickle_and_bytes(ds: larder.Dataset) -> None:
    locality, swapped = ds.locality(["near", "far"]), ds.locality(["far", "near"])
    for copy in (
        pickle.loads(pickle.dumps(locality)),
        larder.Locality.from_bytes(locality.to_bytes()),
    ):
        assert copy == locality
        assert hash(copy) == hash(locality)
        assert copy.id == locality.id
    loader = ds.loader(16, shuffle="global", seed=3, rank=1, world_size=2, locality=locality)
    copied = [batch.samples.tolist() for batch in pickle.loads(pickle.dumps(loader))]
    assert copied == [batch.samples.tolist() for batch in loader]
    assert swapped != locality
    assert batches(ds, 2, swapped) != batches(ds, 2, locality)
    with pytest.raises(larder.InvalidArgument, match="a locality is malformed"):
        larder.Locality.from_bytes(locality.to_bytes()[:-1])


def test_state_saved_with_a_locality_resumes_without_one(ds: larder.Dataset) -> None:
    locality = ds.locality(["near", "far"])
    options = {"shuffle": "global", "seed": 3}
    seen, states = [], []
    for rank in range(2):
        loader = ds.loader(30, rank=rank, world_size=2, locality=locality, **options)
        batch = next(iter(loader))
        seen += batch.samples.tolist()
        states.append(loader.state_dict())
    assert states[0] == states[1]
    loader = ds.loader(48, rank=0, world_size=1)
    loader.load_state_dict(states[0])
    rest = [sample for batch in loader for sample in batch.samples.tolist()]
    assert sorted(seen + rest) == list(range(300))


def test_locality_that_ranks_cannot_agree_on_is_refused(ds: larder.Dataset) -> None:
    with pytest.raises(larder.InvalidArgument, match=r"torch\.distributed"):
        ds.loader(rank=0, world_size=2, locality=True)
    with pytest.raises(larder.InvalidArgument, match="2 ranks, and there are 3"):
        ds.loader(rank=0, world_size=3, locality=ds.locality(["near", "far"]))
    with pytest.raises(larder.InvalidArgument, match="nobody"):
        ds.locality(["nobody", "else"])
    with pytest.raises(larder.Unavailable, match="without a cluster"):
        larder.open(URI, cluster="none").locality(["near", "far"])
    assert len(ds.loader(locality=True)) == 1, "one rank reads all that there is"
