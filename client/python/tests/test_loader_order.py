"""The package's own loader as numpy and jax users iterate it: each sample once, in the order of the
Rust client, as it was written; whatever the world size, and whoever prefetches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context

import jax
import numpy as np
import pytest

import larder
from harness import Node
from order import Job, check_bytes

WORLDS = (1, 2, 4, 3)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("shuffle", ["none", "window:2", "global"])
@pytest.mark.parametrize("output", ["numpy", "jax"])
def test_ranks_walk_the_rust_clients_order(
    output: str, shuffle: str, world: int, node: Node, images: dict[str, np.ndarray]
) -> None:
    job = Job(node.address, world, shuffle=shuffle)
    ds = larder.open(job.uri, cluster=job.cluster)
    for rank in range(world):
        loader = ds.loader(**job.options(rank), output=output)
        for epoch in range(2):
            batches = list(loader)
            kind = jax.Array if output == "jax" else np.ndarray
            assert all(isinstance(batch["image"], kind) for batch in batches)
            assert [check_bytes(batch, images) for batch in batches] == job.batches(rank, epoch)


def one_rank(job: Job, rank: int) -> list[list[int]]:
    ds = larder.open(job.uri, cluster=job.cluster)
    return [batch.samples.tolist() for batch in ds.loader(**job.options(rank), output="numpy")]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_ranks_in_processes_however_they_are_started(method: str, node: Node) -> None:
    job = Job(node.address, 3)
    with get_context(method).Pool(3) as pool:
        ranks = pool.starmap(one_rank, [(job, rank) for rank in range(3)])
    assert ranks == [job.batches(rank) for rank in range(3)]


def test_ranks_in_threads_of_one_process(node: Node) -> None:
    job = Job(node.address, 4)
    with ThreadPoolExecutor(4) as pool:
        ranks = list(pool.map(lambda rank: one_rank(job, rank), range(4)))
    assert ranks == [job.batches(rank) for rank in range(4)]


def test_a_loader_made_before_its_process_has_a_rank_is_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = larder.open("s3://data/images", cluster=node.address).loader(output="numpy")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(larder.InvalidArgument, match="has changed since the loader was made"):
        next(iter(loader))
    loader = larder.open("s3://data/images", cluster=node.address).loader(10, output="numpy")
    assert len(loader) == 15


def test_an_iterator_that_is_never_used_begins_no_epoch(node: Node) -> None:
    job = Job(node.address, 1)
    loader = larder.open(job.uri, cluster=job.cluster).loader(**job.options(0), output="numpy")
    iter(loader), iter(loader)
    assert next(iter(loader)).samples.tolist() == job.batches(0, 0)[0]
    iter(loader)
    assert next(iter(loader)).samples.tolist() == job.batches(0, 1)[0]
    assert loader.epoch == 1
