"""What dies while a DataLoader iterates: a worker, a node. Training goes on or is told so, and what
was held is given back."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

import larder
import larder.torch
from harness import Node
from order import check_bytes

URI = "s3://data/images"


def open_files() -> int:
    """Files of this process. Pipes of queues that are closed are so once the thread that fed them
    ends, for which torch does not wait.
    """
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":
            thread.join()
    return len(os.listdir("/proc/self/fd"))


def memory() -> int:
    """Anonymous and shared memory of this process, in bytes."""
    fields = dict(
        line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    )
    return sum(int(fields[name].split()[0]) * 1024 for name in ("Pss_Anon", "Pss_Shmem"))


def kill(worker: int) -> None:
    """Torch raises in a signal handler; it would not if we had waited for the process."""
    os.kill(worker, signal.SIGKILL)
    time.sleep(60)


def epoch(data: larder.torch.IterableDataset, images: dict[str, np.ndarray], workers: int) -> None:
    seen: list[int] = []
    for batch in DataLoader(data, None, num_workers=workers):
        seen += check_bytes(batch, images)
    assert sorted(seen) == list(range(300))


def test_a_killed_worker_is_torchs_clear_error_and_leaves_nothing(
    node: Node, images: dict[str, np.ndarray]
) -> None:
    ds = larder.open(URI, cluster=node.address)
    data = larder.torch.IterableDataset(ds, 10, rank=0, world_size=1)
    files, held = 0, 0
    for round_ in range(6):
        iteration = iter(DataLoader(data, None, num_workers=2))
        next(iteration)
        worker = iteration._workers[round_ % 2]
        with pytest.raises(RuntimeError, match="killed by signal"):
            kill(worker.pid)
        del iteration
        epoch(data, images, workers=2)
        gc.collect()
        if round_ == 1:
            files, held = open_files(), memory()
    assert open_files() <= files
    assert memory() < held + (8 << 20)


@pytest.mark.parametrize("workers", [0, 2])
def test_training_goes_on_when_the_node_dies(
    workers: int, start_node: Callable[..., Node], images: dict[str, np.ndarray]
) -> None:
    node = start_node()
    ds = larder.open(URI, cluster=node.address)
    data = larder.torch.IterableDataset(ds, 10, shuffle="global", rank=0, world_size=1)
    seen: list[int] = []
    for number, batch in enumerate(DataLoader(data, None, num_workers=workers)):
        seen += check_bytes(batch, images)
        if number == 3:
            node.kill()
    assert sorted(seen) == list(range(300))
    if workers == 0:
        again: Any = ds.loader(10, shuffle="global", output="torch")
        assert sorted(s for batch in again for s in batch.samples.tolist()) == list(range(300))
