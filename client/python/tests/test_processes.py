"""Forked, spawned and served: every kind of child reads for itself."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

# Imported here, not by the first thread that uses it. In a child that is forked during an import,
# the lock of that import is held for ever.
import numpy.testing
import pytest

import larder
import transforms
from conftest import all_images
from harness import Node

URI = "s3://data/images"
FULL = "LARDER_TEST_FULL" in os.environ
#: Children at a time, and rounds of forks.
WORKERS, ROUNDS = (64, 100) if FULL else (8, 10)
#: A child that takes longer hangs.
HANG_SECONDS = 120


#: Ways in which batches are made.
WORKING = [
    {},
    {"transform": transforms.same},
    {"transform": transforms.same, "workers": 2},
]


def check(dataset: larder.Dataset, seed: int) -> None:
    """Read a sample, a slice and a few batches, and compare every byte."""
    images = all_images()
    index = seed % len(dataset)
    np.testing.assert_array_equal(dataset[index]["image"], images["image"][index])
    np.testing.assert_array_equal(dataset[90:110]["image"], images["image"][90:110])
    loader = dataset.loader(16, seed=seed, shuffle="global", output="numpy")
    for _, batch in zip(range(3), loader, strict=False):
        np.testing.assert_array_equal(batch["image"], images["image"][batch.samples])


def fork(body: Callable[[], None]) -> int:
    """A forked child that runs `body` and ends; hangs are ended by a signal."""
    child = os.fork()
    if child != 0:
        return child
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(HANG_SECONDS)
        body()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def succeed(children: list[int]) -> None:
    """Waits for children. All must end well."""
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * len(children)


@contextmanager
def busy(dataset: larder.Dataset, threads: int) -> Iterator[None]:
    """Threads that read and check all the while."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def run(seed: int) -> None:
        try:
            while not stop.is_set():
                check(dataset, seed)
        except BaseException as failure:
            failures.append(failure)

    running = [threading.Thread(target=run, args=(seed,)) for seed in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in running:
            thread.join()
    assert not failures


def test_importing_starts_no_thread() -> None:
    count = "import os, larder; print(len(os.listdir('/proc/self/task')))"
    # numpy's own threads aside.
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    printed = subprocess.run(
        [sys.executable, "-c", count], env=alone, capture_output=True, text=True, check=True
    )
    assert int(printed.stdout) == 1


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("way", ["cluster", "none"])
def test_children_forked_from_a_busy_parent_read_correctly(
    node: Node, local: bool, way: str
) -> None:
    dataset = larder.open(URI, cluster=node.address if way == "cluster" else "none", local=local)
    rounds = ROUNDS if way == "cluster" else max(1, ROUNDS // 10)
    with busy(dataset, threads=3):
        iterator = iter(dataset.loader(2, output="numpy"))
        for _ in range(rounds):
            next(iterator)
            children = [fork(lambda w=w: check(dataset, w)) for w in range(WORKERS)]
            succeed(children)
        images = all_images()
        for batch in iterator:
            np.testing.assert_array_equal(batch["image"], images["image"][batch.samples])


@pytest.mark.parametrize("options", WORKING, ids=["plain", "transform", "threads"])
def test_forked_child_must_begin_a_new_epoch(node: Node, options: dict[str, Any]) -> None:
    dataset = larder.open(URI, cluster=node.address)
    loader = dataset.loader(16, output="numpy", **options)
    iterator = iter(loader)
    next(iterator)

    def child() -> None:
        with pytest.raises(larder.InvalidArgument, match="begun in the parent process"):
            next(iterator)
        loader.set_epoch(3)
        samples = sorted(sample for batch in loader for sample in batch.samples.tolist())
        assert len(set(samples)) == len(samples) == 288
        fork_again = fork(lambda: check(dataset, 5))
        succeed([fork_again])

    succeed([fork(child)])
    assert len(list(iterator)) == 300 // 16 - 1


@pytest.mark.parametrize("way", ["cluster", "none"])
def test_forked_child_without_descriptors_gets_an_error(node: Node, way: str) -> None:
    dataset = larder.open(URI, cluster=node.address if way == "cluster" else "none")
    check(dataset, 3)

    def child() -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, most))
        with hold_all_files(), pytest.raises(larder.ResourceExhausted) as raised:
            dataset[3]
        assert raised.value.what == "this process has no file descriptors left"
        assert "ulimit -n" in str(raised.value.hint)
        check(dataset, 3)

    succeed([fork(child)])


@contextmanager
def hold_all_files() -> Iterator[None]:
    held = []
    try:
        with suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for file in held:
            os.close(file)


def test_views_are_private_to_parent_and_forked_child(node: Node) -> None:
    dataset = larder.open(URI, cluster=node.address)
    view = dataset[3]["image"]
    expected = all_images()["image"][3]

    def child() -> None:
        np.testing.assert_array_equal(view, expected)
        view[:] = 0
        check(dataset, 3)

    succeed([fork(child)])
    np.testing.assert_array_equal(view, expected)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children_of_the_other_start_methods_get_a_copy(node: Node, method: str) -> None:
    dataset = larder.open(URI, cluster=node.address).split(0.5)[0]
    context = multiprocessing.get_context(method)
    with busy(larder.open(URI, cluster=node.address), threads=2), context.Pool(2) as pool:
        counts = pool.map(len, [dataset] * 4)
        pool.starmap(check, [(larder.open(URI, cluster=node.address), seed) for seed in range(4)])
    assert counts == [150] * 4
