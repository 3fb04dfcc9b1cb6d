"""Many threads at once, with a GIL and without: every byte right, misuse a clear error, no hang.

A test that could hang or end the test process runs a separate program.
"""

from __future__ import annotations

import os
import queue
import random
import re
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import larder
import transforms
from conftest import SAMPLES, all_images
from harness import Node
from order import check_bytes
from test_processes import fork, succeed

URI = "s3://data/images"
THREADS = 8
#: How often each thread repeats its work.
ROUNDS = 200 if "LARDER_TEST_FULL" in os.environ else 20
#: A thread or program that takes longer hangs.
HANG_SECONDS = 120


@pytest.fixture(params=[True, False], ids=["local", "remote"])
def dataset(request: pytest.FixtureRequest, node: Node) -> larder.Dataset:
    return larder.open(URI, cluster=node.address, local=request.param)


@pytest.fixture(autouse=True)
def _hasty() -> object:
    """Threads take turns as often as they can, where they have to."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def at_once(*works: Callable[[], object]) -> list[object]:
    """The results of these functions, each in its own thread. All begin at the same moment."""
    gate, done = threading.Barrier(len(works)), queue.SimpleQueue()

    def run(number: int) -> None:
        try:
            gate.wait()
            done.put((number, works[number](), None))
        except BaseException as failure:
            done.put((number, None, failure))

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(len(works))]
    for thread in threads:
        thread.start()
    outcomes = {}
    for _ in works:
        number, value, failure = done.get(timeout=HANG_SECONDS)
        if failure is not None:
            raise failure
        outcomes[number] = value
    return [outcomes[number] for number in range(len(works))]


def program(text: str, *arguments: str) -> str:
    """The output of a program, which must end well."""
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.skipif(
    not hasattr(sys, "_is_gil_enabled") or "PYTHON_GIL" in os.environ,
    reason="this Python has a GIL always, or was told whether to have it",
)
def test_importing_the_package_does_not_enable_the_gil() -> None:
    free = "import sys; before = sys._is_gil_enabled(); {}; print(sys._is_gil_enabled() == before)"
    assert program(free.format("import larder, larder.grain")) == "True\n"


def test_threads_read_one_dataset_by_every_method(dataset: larder.Dataset) -> None:
    images = all_images()

    def read(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(ROUNDS):
            some = [draw.randrange(SAMPLES) for _ in range(9)]
            begin, end = sorted(draw.sample(range(SAMPLES), 2))
            check_bytes(dataset[begin:end], images)
            check_bytes(dataset.rows(begin, end), images)
            check_bytes(dataset[begin : end : end - begin], images)
            assert [check_bytes(rows_of(row), images) for row in dataset.__getitems__(some)] == [
                [sample] for sample in some
            ]
            assert check_bytes(rows_of(dataset[begin - SAMPLES]), images) == [begin]
            part = dataset.select(range(begin, end))
            assert check_bytes(part[0:1], images) == [begin]

    at_once(*(partial(read, seed) for seed in range(THREADS)))


def rows_of(row: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One sample as a batch of one."""
    return {name: value[None] for name, value in row.items()}


OPTIONS = [
    {},
    {"transform": transforms.same},
    {"transform": transforms.same, "workers": 2},
]
NAMES = ["plain", "transform", "threads"]


@pytest.mark.parametrize("options", OPTIONS, ids=NAMES)
def test_threads_that_share_a_loader_get_an_epoch_each(
    dataset: larder.Dataset, options: dict[str, object]
) -> None:
    images, threads = all_images(), 4

    def order(loader: larder.Loader) -> tuple[int, ...]:
        return tuple(sample for batch in loader for sample in check_bytes(batch, images))

    alone = dataset.loader(50, seed=3, shuffle="global", output="numpy")
    wanted = sorted(order(alone) for _ in range(2 * threads))
    shared = dataset.loader(50, seed=3, shuffle="global", output="numpy", **options)
    came = [one for _ in range(2) for one in at_once(*[partial(order, shared)] * threads)]
    assert sorted(came) == wanted
    assert shared.stats()["samples"] >= SAMPLES


@pytest.mark.parametrize("options", OPTIONS, ids=NAMES)
def test_shared_iteration_has_each_batch_once_or_an_error(
    dataset: larder.Dataset, options: dict[str, object]
) -> None:
    images = all_images()
    iteration = iter(dataset.loader(2, shuffle="global", output="numpy", **options))
    refusals: set[str] = set()

    def take() -> list[int]:
        labels = []
        while True:
            try:
                labels += check_bytes(next(iteration), images)
            except StopIteration:
                return labels
            except RuntimeError as refusal:
                refusals.add(str(refusal))
                time.sleep(0.001)  # Otherwise refused threads would take the working thread's core.

    parts = at_once(*[take] * THREADS)
    assert all("another thread is waiting" in refusal for refusal in refusals)
    assert sorted(label for part in parts for label in part) == list(range(SAMPLES))


def test_next_fails_while_another_thread_waits(dataset: larder.Dataset) -> None:
    entered, go = threading.Event(), threading.Event()

    def wait(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        entered.set()
        assert go.wait(HANG_SECONDS)
        return batch

    iteration = iter(dataset.loader(50, batch_transform=wait, output="numpy"))

    def ask() -> None:
        assert entered.wait(HANG_SECONDS)
        with pytest.raises(RuntimeError, match="another thread is waiting for the next"):
            next(iteration)
        with pytest.raises(RuntimeError, match="another thread is waiting for the next"):
            iteration.close()
        go.set()

    batch, _ = at_once(partial(next, iteration), ask)
    check_bytes(batch, all_images())
    assert len(list(iteration)) == SAMPLES // 50 - 1


@pytest.mark.parametrize("options", OPTIONS[:3], ids=NAMES[:3])
def test_a_loader_answers_while_it_is_iterated(
    dataset: larder.Dataset, options: dict[str, object]
) -> None:
    loader = dataset.loader(4, shuffle="global", output="numpy", **options)
    images, ended = all_images(), threading.Event()

    def iterate() -> set[str]:
        try:
            known = {loader.state_dict()["larder"]}
            for _ in range(3):
                for batch in loader:
                    check_bytes(batch, images)
                    known.add(batch.state_dict()["larder"])
                known.add(loader.state_dict()["larder"])
            return known
        finally:
            ended.set()

    def ask() -> set[str]:
        seen = set()
        while not ended.is_set():
            seen.add(loader.state_dict()["larder"])
            assert loader.stats()["samples"] <= 3 * SAMPLES
            assert str(loader.explain())
            assert len(loader) == SAMPLES // 4
            assert "batches an epoch" in repr(loader)
        return seen

    known, *seen = at_once(iterate, *[ask] * 3)
    # At the very start of an epoch it also stands where the last batch of no epoch left it.
    starts = {loader._native.state_at(epoch) for epoch in range(4)}
    assert set.union(*seen) <= known | starts


def test_epoch_closed_under_a_waiting_thread_leaks_none(
    dataset: larder.Dataset,
) -> None:
    native = dataset.loader(10)._native
    epochs = []
    for number in range(5 * ROUNDS):
        epoch = native.epoch(number, None)

        def drain(epoch: object = epoch) -> int:
            return sum(1 for _ in epoch)

        at_once(drain, epoch.close)
        assert len(epoch) == SAMPLES // 10
        epochs.append(epoch)
    deadline = time.monotonic() + HANG_SECONDS
    while threads_named("larder-prefetch"):
        assert time.monotonic() < deadline, "a closed epoch goes on fetching"
        time.sleep(0.01)


def threads_named(name: str) -> int:
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except OSError:  # It has just ended.
            continue
    return names.count(name[:15])


def test_views_are_valid_until_the_last_thread_drops_them(dataset: larder.Dataset) -> None:
    images, views = all_images(), queue.Queue(maxsize=64)

    def make(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(10 * ROUNDS):
            begin = draw.randrange(SAMPLES - 10)
            rows = dataset.rows(begin, begin + 10)
            views.put((begin, rows["image"][3:7]), timeout=HANG_SECONDS)
            views.put((begin, rows["image"][3:7]), timeout=HANG_SECONDS)
        views.put(None, timeout=HANG_SECONDS)

    def drop() -> None:
        while (taken := views.get(timeout=HANG_SECONDS)) is not None:
            begin, view = taken
            np.testing.assert_array_equal(view, images["image"][begin + 3 : begin + 7])

    half = THREADS // 2
    at_once(*(partial(make, seed) for seed in range(half)), *[drop] * half)


@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="without a GIL, CPython may fork while a thread is about to have the lock of any object",
)
def test_children_forked_while_threads_iterate_can_iterate(
    dataset: larder.Dataset,
) -> None:
    images, stop = all_images(), threading.Event()
    loader = dataset.loader(25, transform=transforms.same, workers=2, output="numpy")

    def use() -> None:
        for batch in loader:
            check_bytes(batch, images)
            loader.state_dict()
            loader.stats()

    def use_on() -> None:
        while not stop.is_set():
            use()

    def fork_on() -> None:
        try:
            for _ in range(ROUNDS // 4):
                succeed([fork(use) for _ in range(2)])
        finally:
            stop.set()

    at_once(fork_on, *[use_on] * 3)


ERRORS_AND_QUESTIONS = """
import sys, threading
import larder
sys.setswitchinterval(1e-6)
dataset = larder.open(sys.argv[1], cluster=sys.argv[2])
loader = dataset.loader(10)
other = dataset.select(range(100)).loader(10).state_dict()
ended = threading.Event()
def fail():
    try:
        for _ in range(int(sys.argv[3])):
            try:
                loader.load_state_dict(other)
                sys.exit("a state of another selection is accepted")
            except larder.InvalidArgument:
                pass
    finally:
        ended.set()
def ask():
    while not ended.is_set():
        loader.state_dict(), len(loader), loader.stats()
threads = [threading.Thread(target=work) for work in (fail, ask, ask)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done")
"""


def test_error_is_raised_while_other_threads_query(node: Node) -> None:
    assert program(ERRORS_AND_QUESTIONS, URI, node.address, str(100 * ROUNDS)) == "done\n"


OPEN = """
import sys, threading
gate = threading.Barrier(8)
opened = []
def open():
    gate.wait()
    import larder
    dataset = larder.open(sys.argv[1])
    opened.append((int(dataset[7]["label"]), int(dataset[7]["image"].sum())))
threads = [threading.Thread(target=open) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(opened), *set(opened))
"""


@pytest.mark.usefixtures("s3")
def test_threads_that_open_together_start_one_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    said = program(OPEN, URI)
    first, *announced = said.splitlines()
    assert first == f"8 {(7, int(all_images()['image'][7].sum()))}"
    assert len(announced) == 1, said
    assert re.fullmatch(r"larder: started a cache of .* on this host \(.*\)", announced[0])


def test_waits_for_a_framework_that_a_thread_imports(tmp_path: Path, node: Node) -> None:
    """A module that another thread imports is incomplete until the import ends."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import threading\nbegun.set()\nimport time; time.sleep(0.5)\nclass Tensor: pass\n"
    )
    text = (
        "import builtins, sys, threading\n"
        "import larder, transforms\n"
        "builtins.begun = begun = threading.Event()\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        f"dataset = larder.open({URI!r}, cluster={node.address!r})\n"
        "batches = iter(dataset.loader(4, transform=transforms.same, output='numpy'))\n"
        "importing = threading.Thread(target=__import__, args=('torch',))\n"
        "importing.start()\n"
        "begun.wait()\n"
        "print(len(next(batches)['label']))\n"
        "importing.join()\n"
    )
    assert program(text) == "4\n"
