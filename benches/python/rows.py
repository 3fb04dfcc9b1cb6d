"""Rows that a program chooses: single requests, beside NumPy, Arrow Flight and plain sockets.

Each way reads the same random rows. Before the clock starts, every byte of the answers of each way
is compared with the file. Then the ways take turns, in another order each round.

Non-goals: order, epochs and prefetch, which the other subjects measure.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import larder

from report import Report, Way
from servers import Flight, Plain

#: Rows of a request and bytes of a row, with the goals beside NumPy and beside Arrow Flight.
SHAPES = {(256, 150_528): (0.9, 4.0), (1024, 4096): (0.9, 2.0), (4096, 512): (0.7, 2.0)}

#: The shape of single rows and of threads.
SMALL = (4096, 512)

#: The name of the column in Larder: that of its file.
COLUMN = "x"

#: Ways of one table read these sets of row numbers in turn.
REQUESTS = 16

#: Seconds that a way runs in a round.
TURN_SECONDS = 0.3

#: Epochs in which the node must have taken and handed out all rows.
WARMING_EPOCHS_MAX = 50

#: Keys of one lookup.
LOOKUPS = 4096

Rows = np.ndarray[Any, Any]


def write(folder: Path, quick: bool) -> None:
    """Writes a file of random bytes for each shape, and one of keys."""
    rng = np.random.default_rng(5)
    for _, size in SHAPES:
        rows = (64 << 20) // size if quick else min((1 << 29) // size, 1 << 19)
        _save(folder / f"rows-{size}" / f"{COLUMN}.npy", rng.bytes(rows * size), size)
    keys = rng.permutation(100_000 if quick else 10_000_000).astype(np.int64) * 7919 - 2**40
    (folder / "keys").mkdir()
    np.save(folder / "keys/id.npy", keys)


def _save(path: Path, content: bytes, size: int) -> None:
    path.parent.mkdir()
    np.save(path, np.frombuffer(content, np.uint8).reshape(-1, size))


def measure(report: Report, folder: Path, rounds: int) -> None:
    """All tables."""
    for (count, size), (goal, remote_goal) in SHAPES.items():
        _batches(report, folder / f"rows-{size}", (count, size), (goal, remote_goal), rounds)
    _single(report, folder / f"rows-{SMALL[1]}", rounds)
    _threads(report, folder / f"rows-{SMALL[1]}", rounds)
    _keys(report, folder / "keys", rounds)


def _batches(
    report: Report, folder: Path, shape: tuple[int, int], goals: tuple[float, float], rounds: int
) -> None:
    count, size = shape
    mapped, out = np.load(folder / f"{COLUMN}.npy", mmap_mode="r"), np.empty(shape, np.uint8)
    local, remote = _opened(folder), _opened(folder, local=False)
    with Flight(folder / f"{COLUMN}.npy") as flight, Plain(folder / f"{COLUMN}.npy") as plain:
        numpy = ("np.take(memmap, out=)", "memmap[ids]")
        ways = [
            Way(numpy[0], lambda ids: np.take(mapped, ids, axis=0, out=out, mode="clip")),
            Way(numpy[1], lambda ids: mapped[ids]),
            Way("larder mapped, out=", _into(local, out), goals[0], numpy),
            Way("larder mapped", _taking(local)),
            Way("Arrow Flight", flight.read),
            Way("plain sockets", lambda ids: plain.read(ids, out)),
            Way("larder TCP, out=", _into(remote, out), goals[1], ("Arrow Flight",)),
            Way("larder TCP", _taking(remote)),
        ]
        ids = _requests(len(mapped), count)
        _check(ways, ids, mapped)
        title = f"{count:,} rows of {size:,} B, one request at a time"
        report.requests("rows", title, _rounds(ways, ids, rounds), ways, count * size)


def _single(report: Report, folder: Path, rounds: int) -> None:
    mapped = np.load(folder / f"{COLUMN}.npy", mmap_mode="r")
    local, remote = _opened(folder), _opened(folder, local=False)
    with Plain(folder / f"{COLUMN}.npy") as plain:
        out = np.empty((1, SMALL[1]), np.uint8)
        ways = [
            Way("memmap[i]", lambda ids: mapped[int(ids[0])].copy()),
            Way("larder ds[i], mapped", lambda ids: local[int(ids[0])][COLUMN]),
            Way("plain sockets", lambda ids: plain.read(ids, out)),
            Way(
                "larder ds[i], TCP",
                lambda ids: remote[int(ids[0])][COLUMN],
                1 / 1.5,
                ("plain sockets",),
            ),
        ]
        ids = _requests(len(mapped), 1)
        _check(ways, ids, mapped)
        title = f"single rows of {SMALL[1]} B (goal mapped: 3 us)"
        report.requests("row", title, _rounds(ways, ids, rounds), ways, SMALL[1])


def _threads(report: Report, folder: Path, rounds: int) -> None:
    local = _opened(folder)
    ids = _requests(len(local), SMALL[0])

    def on(threads: int) -> Callable[[Rows], None]:
        outs = [np.empty(SMALL, np.uint8) for _ in range(threads)]

        def read(out: Rows) -> None:
            for _ in range(64 // threads):
                local.take(ids[0], out={COLUMN: out})

        def all_of(_: Rows) -> None:
            running = [threading.Thread(target=read, args=(out,)) for out in outs]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()

        return all_of

    one, four = "larder, one thread", "larder, four threads"
    ways = [Way(one, on(1)), Way(four, on(4), 1.8, (one,))]
    title = f"64 requests of {SMALL[0]:,} rows of {SMALL[1]} B, mapped"
    report.requests("threads", title, _rounds(ways, ids, rounds), ways, 64 * SMALL[0] * SMALL[1])


def _keys(report: Report, folder: Path, rounds: int) -> None:
    keys = np.load(folder / "id.npy")
    ordered = np.sort(keys)
    dataset = _opened(folder)
    dataset.positions(keys[:1])
    sets = [keys[ids] for ids in _requests(len(keys), LOOKUPS)]
    for ids, wanted in zip(_requests(len(keys), LOOKUPS), sets, strict=True):
        assert (dataset.positions(wanted) == ids).all(), "a key has another row"
    numpy = "np.searchsorted"
    ways = [
        Way(numpy, lambda wanted: np.searchsorted(ordered, wanted)),
        Way("larder positions", dataset.positions, 1.0, (numpy,)),
    ]
    title = f"{LOOKUPS:,} lookups among {len(keys):,} keys"
    report.requests("keys", title, _rounds(ways, sets, rounds), ways, LOOKUPS * 8)
    code = (
        "import sys, time, numpy, larder\n"
        "ds = larder.open(sys.argv[1]); key = int(sys.argv[2]); begun = time.perf_counter()\n"
        "ds.positions([key]); print(time.perf_counter() - begun)\n"
    )
    command = [sys.executable, "-c", code, f"file://{folder}", str(keys[5])]
    firsts = [float(subprocess.check_output(command)) for _ in range(rounds)]
    report.note("first lookup after open", ms=round(1e3 * median(firsts), 1), goal_ms=50)


def _opened(folder: Path, **options: Any) -> larder.Dataset:
    """The dataset, with all its rows in the node, and mapped unless it is read over TCP."""
    dataset = larder.open(f"file://{folder}", **options)
    for _ in range(WARMING_EPOCHS_MAX):
        loader = dataset.loader(1024, shuffle="none", last="uneven", output="numpy")
        for _ in loader:
            pass
        if loader.stats()["rows_remote" if options else "rows_local"] == len(dataset):
            return dataset
    raise AssertionError(f"{folder}: the node does not hold all rows")


def _into(dataset: larder.Dataset, out: Rows) -> Callable[[Rows], Rows]:
    given = {COLUMN: out}
    return lambda ids: dataset.take(ids, out=given)[COLUMN]


def _taking(dataset: larder.Dataset) -> Callable[[Rows], Rows]:
    return lambda ids: dataset.take(ids, output="numpy")[COLUMN]


def _requests(rows: int, count: int) -> list[Rows]:
    rng = np.random.default_rng(11)
    return [rng.integers(0, rows, count) for _ in range(REQUESTS)]


def _check(ways: list[Way], requests: list[Rows], mapped: Rows) -> None:
    for way in ways:
        for ids in requests:
            expected = mapped[ids].reshape(-1)
            if not np.array_equal(np.asarray(way.read(ids)).reshape(-1), expected):
                raise AssertionError(f"{way.name}: rows are not what was written")


def _rounds(ways: list[Way], requests: list[Rows], rounds: int) -> dict[str, list[list[float]]]:
    """The seconds of each request, by way and round."""
    seconds: dict[str, list[list[float]]] = {way.name: [] for way in ways}
    for number in range(rounds):
        first = number % len(ways)
        for way in ways[first:] + ways[:first]:
            seconds[way.name].append(list(_turn(way, requests)))
    return seconds


def _turn(way: Way, requests: list[Rows]) -> Iterator[float]:
    end = time.perf_counter() + TURN_SECONDS
    while time.perf_counter() < end:
        for ids in requests:
            begun = time.perf_counter()
            way.read(ids)
            yield time.perf_counter() - begun

