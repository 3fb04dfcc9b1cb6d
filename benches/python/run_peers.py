"""Larder's Python loader against other loaders, over a real S3 server on this host.

    python run_peers.py [--quick] [--only warm|cold] [--peers KEY ...] [--rounds N] [--store-core]

`make bench-peers` builds the package and calls this. Each peer's own writer makes its files, which
are on the store beside Larder's safetensors files. Each peer is tried at several settings, and
contends at its best setting. Data, caches, store and node are removed afterwards.

Warm: the epochs after the first, when each loader that keeps data on this host has it. Cold: the
first epoch, on a host without data. Larder's index and the peers' formats are made before the
clock starts. Conversions on this host count.

Non-goals: networks, other hosts, GPUs, disks that are slower than memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import larder

import images
from contest import Contender, Result, Subject, hold, hold_cold
from host import own_host
from loaders import Fresh, Larder
from peers import PEERS, Garage, Peer
from peers.garage import BUCKET
from report import Report

ROOT = Path(__file__).resolve().parents[2]

#: The URI of Larder's files.
URI = f"s3://{BUCKET}/images"

KEYS = ("warm", "cold")

#: The wanted ratio of a cold epoch to the best peer.
COLD_GOAL = 2

#: A function that lets contenders take turns.
Hold = Callable[[Subject, int], list[Result]]


@dataclass(frozen=True)
class Sizes:
    """Sizes and counts of the run."""

    images: int = 8192
    warm: int = 9
    cold: int = 5
    #: Rounds to find the best setting of a peer.
    trials: int = 2

    #: Sizes of `--quick`.
    @classmethod
    def quick(cls) -> Sizes:
        return cls(images=512, warm=2, cold=1, trials=1)


class Arena:
    """A store with the data of all contenders. It runs the contests."""

    def __init__(
        self, report: Report, folder: Path, sizes: Sizes, store: Garage, peers: list[type[Peer]]
    ) -> None:
        samples = sizes.images
        self._trials = sizes.trials
        self._report = report
        self._cache = folder / "caches"
        self._peers = peers
        check = partial(images.check, folder)
        self._subject = Subject(
            "", f"{samples:,} images, shuffled", samples, [], images.touch, check, 0, store.counted
        )
        images.write(folder, samples)
        _clocked(report, "larder", partial(_publish_ours, folder / "images", store))
        for peer in {peer.key: peer for peer in peers}.values():
            _clocked(report, peer.title, partial(_publish, peer, folder, store))
        # Otherwise the files would be written to the disk while a clock runs.
        os.sync()

    def warm(self, rounds: int) -> None:
        """Epochs after the first."""
        best = [self._best(peer, "warm", hold) for peer in self._peers]
        # It keeps the node running that all of Larder's processes use.
        dataset = larder.open(URI)
        started = dataset._native.started_node
        assert started is not None, "the node of this host is not ours"
        ours = Larder("larder, shuffle global", "larder", URI, "global", helpers=[started[0]])
        subject = self._of("warm", [*best, ours])
        results = hold(subject, rounds)
        _assert_nothing_was_read(results[-1])
        self._report.rivals(subject, results, {peer.name: peer.goal for peer in best})

    def cold(self, rounds: int) -> None:
        """First epochs on a host without data."""
        best = [self._best(peer, "cold", hold_cold) for peer in self._peers]
        ours = [
            Fresh(f"larder, shuffle {shuffle}", "larder", URI, shuffle)
            for shuffle in ("auto", "window")
        ]
        subject = self._of("cold", [*best, *ours])
        results = hold_cold(subject, rounds)
        quickest = min(results[: len(best)], key=_seconds, default=None)
        goals = {quickest.contender.name: COLD_GOAL} if quickest else {}
        self._report.rivals(subject, results, goals)

    def _best(self, peer: type[Peer], key: str, held: Hold) -> Peer:
        """The fastest setting of a peer."""
        settings = peer.settings(self._cache)
        settings[0].forget()
        tried = {}
        for number, setting in enumerate(settings):
            result = held(self._of(key, [setting]), self._trials)[0]
            tried[number] = _seconds(result)
            rate = self._subject.samples / tried[number]
            self._report.note("tried", how=key, loader=setting.name, samples_s=round(rate))
        return settings[min(tried, key=tried.__getitem__)]

    def _of(self, key: str, contenders: Sequence[Contender]) -> Subject:
        title = f"{self._subject.title}, {key} epochs from S3"
        return replace(self._subject, key=key, title=title, contenders=list(contenders))


def main() -> None:
    arguments = _arguments()
    sizes = Sizes.quick() if arguments.quick else Sizes()
    rounds = {key: arguments.rounds or getattr(sizes, key) for key in KEYS}
    # Otherwise the store would outlive a run that gets SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    report = Report(rounds["warm"], Path(larder._larder.__file__).resolve(), quick=arguments.quick)
    arguments.data.mkdir(parents=True, exist_ok=True)
    wrapper = _leave_a_core() if arguments.store_core else []
    peers = [peer for peer in PEERS if peer.key in arguments.peers]
    with tempfile.TemporaryDirectory(dir=arguments.data) as name, own_host():
        folder = Path(name)
        with Garage(folder, wrapper) as store:
            os.environ.update(store.environment)
            arena = Arena(report, folder, sizes, store, peers)
            for key in arguments.only:
                getattr(arena, key)(rounds[key])
    report.write(arguments.out)


def _publish_ours(files: Path, store: Garage) -> None:
    """Uploads the files, which Larder reads as they are, and their index."""
    store.upload(files, "images")
    larder.index(URI)
    shutil.rmtree(files)


def _publish(peer: type[Peer], folder: Path, store: Garage) -> None:
    """Makes a peer's files and puts them on the store."""
    files = folder / "files"
    files.mkdir()
    # A separate process: no threads or settings of a library stay behind.
    process = multiprocessing.get_context("spawn").Process(
        target=_write, args=(peer, folder, files)
    )
    process.start()
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"writing the files of {peer.title} failed")
    store.upload(files, peer.key)
    shutil.rmtree(files)


def _write(peer: type[Peer], folder: Path, files: Path) -> None:
    peer.write(images.columns(folder), files)


def _clocked(report: Report, who: str, work: Callable[[], None]) -> None:
    start = time.perf_counter()
    work()
    report.note("published", who=who, seconds=round(time.perf_counter() - start, 1))


def _assert_nothing_was_read(ours: Result) -> None:
    """Fails if warm epochs asked the store for anything."""
    asked = [one.store["requests"] for one in ours.rounds]
    if any(asked):
        raise AssertionError(f"warm epochs of Larder asked the store {asked} times")


def _seconds(result: Result) -> float:
    return median(one.seconds for one in result.rounds)


def _leave_a_core() -> list[str]:
    """Keeps this process and its children off the last core. Returns a command that runs there."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("--store-core needs two cores")
    os.sched_setaffinity(0, cores[:-1])
    return ["taskset", "-c", str(cores[-1])]


def _arguments() -> argparse.Namespace:
    keys = sorted({peer.key for peer in PEERS})
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only see that everything works")
    parser.add_argument("--only", nargs="+", choices=KEYS, default=KEYS)
    parser.add_argument("--peers", nargs="+", choices=keys, default=keys)
    parser.add_argument("--rounds", type=int)
    parser.add_argument(
        "--store-core",
        action="store_true",
        help="the store has the last core to itself, as if it were another machine",
    )
    parser.add_argument("--out", type=Path, default=ROOT / "target/bench/peers.json")
    parser.add_argument("--data", type=Path, default=ROOT / "target/bench", help="where 20 GB fit")
    return parser.parse_args()


if __name__ == "__main__":
    main()
