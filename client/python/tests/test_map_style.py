"""Samples by their number, read in worker processes of every start method, as data loaders of numpy
and jax users do. Each batch has the written bytes."""

from __future__ import annotations

import itertools
import os
from functools import partial
from multiprocessing import get_context

import numpy as np
import pytest

import larder
from harness import Node
from order import SAMPLES, WORLDS, Job, check_bytes

FULL = "LARDER_TEST_FULL" in os.environ


def read(dataset: larder.Dataset, samples: list[int]) -> dict[str, np.ndarray]:
    """A batch, collated in the process that reads it."""
    rows = dataset.__getitems__(samples)
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def check(output: str, job: Job, images: dict[str, np.ndarray], method: str, workers: int) -> None:
    dataset = larder.open(job.uri, cluster=job.cluster)
    dataset[0]  # Workers must not use the connections that are open here.
    order = [samples for rank in range(job.world) for samples in job.batches(rank)]
    if workers == 0:
        batches = [read(dataset, samples) for samples in order]
    else:
        with get_context(method).Pool(workers) as pool:
            batches = pool.map(partial(read, dataset), order)
    if output == "jax":
        from jax import numpy as jnp

        batches = [{name: jnp.asarray(a) for name, a in batch.items()} for batch in batches]
    assert [check_bytes(batch, images) for batch in batches] == order
    assert sorted(itertools.chain(*order)) == list(range(SAMPLES))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("output", ["numpy", "jax"])
def test_without_workers(
    output: str, world: int, node: Node, images: dict[str, np.ndarray]
) -> None:
    check(output, Job(node.address, world, last="uneven"), images, "", 0)


#: Start method, number of workers, number of ranks.
CROSS = list(itertools.product(["fork", "spawn", "forkserver"], [2, 4], WORLDS))
FEW = [(method, *rest) for method, *rest in CROSS if method == "fork" or rest == [2, 3]]


@pytest.mark.parametrize(("method", "workers", "world"), CROSS if FULL else FEW)
@pytest.mark.parametrize("output", ["numpy", "jax"])
def test_with_worker_processes(
    output: str, method: str, workers: int, world: int, node: Node, images: dict[str, np.ndarray]
) -> None:
    check(output, Job(node.address, world, last="uneven"), images, method, workers)
