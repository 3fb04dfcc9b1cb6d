"""The package's own loader as numpy and jax users iterate it: each sample once, in the order of the
Rust client, as it was written, at any world size and with any prefetching."""

from __future__ import annotations

import importlib
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import larder
import transforms
from conftest import all_images
from harness import Node
from order import WORLDS, Job, check_bytes

FULL = "LARDER_TEST_FULL" in os.environ


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    ("shuffle", "last"), [("none", "uneven"), ("window:2", "drop"), ("global", "uneven")]
)
@pytest.mark.parametrize("output", ["numpy", "jax"])
def test_ranks_walk_the_rust_clients_order(
    output: str, shuffle: str, last: str, world: int, node: Node, images: dict[str, np.ndarray]
) -> None:
    job = Job(node.address, world, shuffle=shuffle, last=last)
    ds = larder.open(job.uri, cluster=job.cluster)
    loaders = [ds.loader(**job.options(rank), output=output) for rank in range(world)]
    for epoch in range(2):
        job.check([walked(loader, output, images) for loader in loaders], epoch)


def walked(loader: larder.Loader, output: str, images: dict[str, np.ndarray]) -> list[list[int]]:
    """The samples of each batch of an epoch, once all bytes and the kind of array are checked."""
    batches = list(loader)
    kind = importlib.import_module("jax").Array if output == "jax" else np.ndarray
    assert all(isinstance(batch["image"], kind) for batch in batches)
    return [check_bytes(batch, images) for batch in batches]


@pytest.mark.parametrize(("workers", "world"), list(itertools.product([2, 4], WORLDS)))
@pytest.mark.parametrize("output", ["numpy", "jax"])
def test_transform_workers_do_not_change_the_order(
    output: str, workers: int, world: int, node: Node, images: dict[str, np.ndarray]
) -> None:
    job = Job(node.address, world, last="uneven")
    ds = larder.open(job.uri, cluster=job.cluster)
    options = {"transform": transforms.same, "workers": workers}
    ranks = [ds.loader(**job.options(rank), **options, output=output) for rank in range(world)]
    job.check([walked(loader, output, images) for loader in ranks])


def one_rank(job: Job, rank: int, output: str = "numpy") -> list[list[int]]:
    ds = larder.open(job.uri, cluster=job.cluster)
    return walked(ds.loader(**job.options(rank), output=output), output, all_images())


@pytest.mark.parametrize("world", WORLDS if FULL else [3])
@pytest.mark.parametrize(
    ("output", "method"),
    [
        ("numpy", "fork"),
        *((output, method) for output in ("numpy", "jax") for method in ("spawn", "forkserver")),
    ],
)
def test_ranks_in_processes_of_any_start_method(
    output: str, method: str, world: int, node: Node
) -> None:
    job = Job(node.address, world, last="uneven")
    with get_context(method).Pool(world) as pool:
        job.check(pool.starmap(one_rank, [(job, rank, output) for rank in range(world)]))


def test_ranks_in_threads_of_one_process(node: Node) -> None:
    job = Job(node.address, 4, last="uneven")
    with ThreadPoolExecutor(4) as pool:
        job.check(list(pool.map(lambda rank: one_rank(job, rank), range(4))))


def test_loader_made_before_the_rank_is_set_is_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = larder.open("s3://data/images", cluster=node.address).loader(output="numpy")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(larder.InvalidArgument, match="has changed since the loader was made"):
        next(iter(loader))
    loader = larder.open("s3://data/images", cluster=node.address).loader(10, output="numpy")
    assert len(loader) == 15


def test_unused_iterator_begins_no_epoch(node: Node) -> None:
    job = Job(node.address, 1)
    loader = larder.open(job.uri, cluster=job.cluster).loader(**job.options(0), output="numpy")
    iter(loader), iter(loader)
    assert next(iter(loader)).samples.tolist() == job.batches(0, 0)[0]
    iter(loader)
    assert next(iter(loader)).samples.tolist() == job.batches(0, 1)[0]
    assert loader.epoch == 1
