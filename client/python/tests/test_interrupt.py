"""Ctrl-C ends every wait at once, and its work. A call without a wait needs no thread."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import larder
from harness import Node, S3Server

URI = "s3://data/images"
#: A wait that takes longer is a hang.
HANG_SECONDS = 60
#: Time limit for giving up a silent origin, which takes longer.
ORIGIN_SECONDS = 20
#: Time for which a read retries if nothing ends it: longer than any test.
PATIENCE_SECONDS = 3600


@contextmanager
def silent(*processes: int) -> Iterator[None]:
    """Processes that hold their connections and say nothing."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


@contextmanager
def interrupted() -> Iterator[None]:
    """Presses Ctrl-C a little later, which must end the present call."""
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    begun = time.monotonic()
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            yield
        assert time.monotonic() - begun < HANG_SECONDS
    finally:
        timer.cancel()


def calls() -> int:
    """Reads of this process that are under way on threads of their own."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except OSError:  # It has just ended.
            continue
    return names.count("larder-call")


def read_for_ever(dataset: larder.Dataset) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline:
        for _ in dataset.loader(10, shuffle="global"):
            pass
        dataset[0]


def test_interrupt_ends_the_wait_for_a_silent_node(node: Node) -> None:
    dataset = larder.open(URI, cluster=node.address, local=False)
    with silent(node.process.pid), interrupted():
        read_for_ever(dataset)


READS: list[Callable[[larder.Dataset], object]] = [
    lambda dataset: dataset[7],
    lambda dataset: dataset[90:110],
    lambda dataset: dataset.rows(3, 9, tensors=["label"]),
    lambda dataset: dataset.__getitems__([5, 250, 17]),
]


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("read", READS, ids=["item", "slice", "rows", "getitems"])
def test_interrupted_read_leaves_no_call_behind(
    s3: S3Server, node: Node, read: Callable[[larder.Dataset], object], local: bool
) -> None:
    dataset = larder.open(URI, cluster=node.address, local=local, patience=PATIENCE_SECONDS)
    with silent(node.process.pid, s3.program.process.pid):
        with interrupted():
            read(dataset)
        deadline = time.monotonic() + HANG_SECONDS
        while calls():
            assert time.monotonic() < deadline, "the read goes on though nobody waits for it"
            time.sleep(0.01)
    read(dataset)


class Left(Exception):
    """Raised to end an indexing."""


def test_interrupted_indexing_ends_and_publishes_nothing(s3: S3Server) -> None:
    folder, origin = s3.folder / "data" / "left", s3.program.process.pid
    folder.mkdir()
    # More steps than may be reported ahead, so that the work waits for its watcher.
    for number in range(64):
        np.save(folder / f"{number:02}.npy", np.zeros((4, 2)))

    def leave(*_: object) -> None:
        os.kill(origin, signal.SIGSTOP)
        raise Left

    try:
        with pytest.raises(Left):
            larder.index("s3://data/left", progress=leave)
        deadline = time.monotonic() + ORIGIN_SECONDS
        while calls():
            assert time.monotonic() < deadline, "the indexing goes on though nobody waits for it"
            time.sleep(0.01)
    finally:
        os.kill(origin, signal.SIGCONT)
    assert len(list(folder.iterdir())) == 64
    larder.index("s3://data/left")
    assert len(list(folder.iterdir())) > 64


READS_WITHOUT_THREADS = """
import os, resource, sys, time
import larder
dataset = larder.open(sys.argv[1], cluster=sys.argv[2])
deadline = time.monotonic() + 60
while True:
    before = larder.stats()["local_bytes"]
    rows = dataset.__getitems__([5, 250, 17])
    wanted = sum(array.nbytes for row in rows for array in row.values())
    if larder.stats()["local_bytes"] - before == wanted:
        break
    assert time.monotonic() < deadline, "the shards are not mapped"
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
if os.getuid() == 0:
    os.setuid(65534)  # The limit does not hold for root.
try:
    import threading
    threading.Thread(target=print).start()
    sys.exit("threads can be started")
except RuntimeError:
    pass
labels = [int(row["label"]) for row in dataset.__getitems__([5, 250, 17])]
print(labels, dataset[90:110]["label"].sum(), dataset[0]["label"])
"""


def test_mapped_rows_are_read_without_a_thread(node: Node) -> None:
    done = subprocess.run(
        [sys.executable, "-c", READS_WITHOUT_THREADS, URI, node.address],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.stdout == "[5, 250, 17] 1990 0\n", done.stderr
