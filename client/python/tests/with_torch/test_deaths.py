"""A worker or a node dies while a DataLoader iterates. Training continues or gets an error, and all
resources are given back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import numpy as np
import pytest
from torch.utils.data import DataLoader

import larder
import larder.torch
from harness import Node
from held import Held
from order import check_bytes
from test_host import nodes, wait_until_no_node_runs

URI = "s3://data/wide"


def kill(worker: int) -> None:
    """Torch raises in a signal handler; it would not if we had waited for the process."""
    os.kill(worker, signal.SIGKILL)
    time.sleep(60)


def epoch(data: larder.torch.IterableDataset, rows: dict[str, np.ndarray], workers: int) -> None:
    seen: list[int] = []
    for batch in DataLoader(data, None, num_workers=workers):
        seen += check_bytes(batch, rows)
    assert sorted(seen) == list(range(300))


def test_killed_worker_raises_the_torch_error_without_leaks(
    node: Node, wide: dict[str, np.ndarray]
) -> None:
    ds = larder.open(URI, cluster=node.address)
    data = larder.torch.IterableDataset(ds, 10, rank=0, world_size=1)
    for round_ in range(6):
        iteration = iter(DataLoader(data, None, num_workers=2))
        next(iteration)
        worker = iteration._workers[round_ % 2]
        with pytest.raises(RuntimeError, match="killed by signal"):
            kill(worker.pid)
        del iteration
        epoch(data, wide, workers=2)
        if round_ == 1:
            held = Held()
    held.check()


Doomed = tuple[larder.Dataset, Callable[[], None]]


def of_a_cluster(start_node: Callable[..., Node]) -> Doomed:
    node = start_node()
    return larder.open(URI, cluster=node.address), node.kill


def of_this_host(_: Callable[..., Node]) -> Doomed:
    wait_until_no_node_runs()
    ds = larder.open(URI)
    # Not always one that it started: the dataset of the round before may have been about to.
    (pid,) = nodes()
    return ds, lambda: os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("opened", [of_a_cluster, of_this_host])
def test_training_survives_a_killed_node_without_leaks(
    opened: Callable[..., Doomed],
    workers: int,
    start_node: Callable[..., Node],
    wide: dict[str, np.ndarray],
) -> None:
    for round_ in range(4):
        ds, kill_node = opened(start_node)
        # In order, so that most of the shards are still to be read when the node dies.
        data = larder.torch.IterableDataset(ds, 10, shuffle="none", rank=0, world_size=1)
        seen: list[int] = []
        for number, batch in enumerate(DataLoader(data, None, num_workers=workers)):
            seen += check_bytes(batch, wide)
            if number == 3:
                kill_node()
        assert seen == list(range(300))
        again = ds.loader(10, shuffle="global", output="torch")
        assert sorted(s for batch in again for s in check_bytes(batch, wide)) == seen
        del ds, kill_node, data, batch, again
        if round_ == 1:
            held = Held()
    held.check()
