"""People's own files: what Larder takes for tars and Parquet, beside the tools that people use.

    python run_formats.py [--quick] [--only KEY ...] [--rounds N] [--index-bytes N]

`make bench-formats` builds the package and calls this. The writers of the formats make the files.
They lie in a folder, in the page cache, or on garage, a real S3 server on this host. Everything is
removed afterwards.

Non-goals: networks, other hosts, GPUs, disks that are slower than memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

import larder

import formats.cold
from contest import Contender, Result, Subject, hold, hold_cold
from formats import export, fill, indexing, members, photos, records
from formats.indexing import Cost
from host import own_host
from loaders import Fresh
from peers import Garage
from report import Report

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

KEYS = ("encoded", "decoded", "records", "fill", "export", "cold", "index")

T = TypeVar("T")

#: Those with photographs.
PHOTOS = {"encoded", "decoded", "cold", "index"}


@dataclass(frozen=True)
class Sizes:
    """Sizes and counts of the run."""

    photos: int = 4096
    records: int = 1_000_000
    fill: int = 800_000
    chat: int = 1_000_000
    index_bytes: int = 10_000_000_000
    rounds: int = 5

    #: Sizes of `--quick`.
    @classmethod
    def quick(cls) -> Sizes:
        return cls(
            photos=512, records=40_000, fill=16_000, chat=16_000, index_bytes=50_000_000, rounds=2
        )


class Run:
    """A folder with the data, and the measurements over it."""

    def __init__(self, report: Report, folder: Path, sizes: Sizes, only: list[str]) -> None:
        self._report, self._folder, self._sizes, self._only = (
            report,
            folder,
            sizes,
            only,
        )
        #: The node of this host. It starts with the first dataset and outlives it for a while.
        self._node = 0
        if PHOTOS & set(only):
            photos.write(folder, sizes.photos)

    def warm(self) -> None:
        """Tars in a folder, and Parquet records."""
        if {"encoded", "decoded"} & set(self._only):
            dataset = self._opened(members.uri(self._folder))
            for make in (members.encoded, members.decoded):
                self._contest(make(self._folder, self._sizes.photos, self._node))
            del dataset
        if "records" in self._only:
            records.write(self._folder, self._sizes.records)
            dataset = self._opened(f"file://{self._folder}/records")
            self._contest(records.subject(self._folder, self._sizes.records, self._node))
            del dataset

    def fill(self) -> None:
        """Nodes that fill themselves from Parquet and Arrow."""
        rows = {False: self._sizes.fill, True: self._sizes.chat}
        tables = {chat: fill.tables(rows[chat], chat=chat) for chat in rows}
        for source in fill.SOURCES:
            files = self._folder / source.name
            fill.write(files, tables[source.chat], source)
            begun = time.process_time()
            larder.index(f"file://{files}")
            index_seconds = time.process_time() - begun
            costs = self._in_turns({who: partial(_cpu_of_fill, who, files) for who in fill.WAYS})
            ratios = {
                who: round(median(b / a for a, b in zip(costs["larder"], of, strict=True)), 2)
                for who, of in costs.items()
                if who != "larder"
            }
            medians = {who: round(median(seconds), 3) for who, seconds in costs.items()}
            self._report.note(
                source.name,
                cpu_seconds=medians,
                index_cpu_seconds=round(index_seconds, 3),
                ratios=ratios,
                goal=source.goal,
            )
            shutil.rmtree(files)

    def cold(self, store: Garage) -> None:
        """First epochs from garage."""
        samples, written = self._sizes.photos, photos.Written(self._folder)
        store.upload(self._folder / "tars", formats.cold.TARS)
        for peer in (formats.cold.Shards, formats.cold.Chunks):
            files = self._folder / peer.key
            files.mkdir()
            peer.write_members(samples, written, files)
            store.upload(files, peer.key)
            shutil.rmtree(files)
        larder.index(formats.cold.uri())
        total = written.bytes + samples * (samples - 1) // 2
        contenders: list[Contender] = [
            formats.cold.Ranges(f"ranged GETs, {many} at a time", "bound", many, total)
            for many in (4, 16)
        ]
        for peer in (formats.cold.Tars, formats.cold.Shards, formats.cold.Chunks):
            contenders += peer.settings(self._folder / "caches")
        contenders += [
            Fresh(
                f"larder, shuffle {shuffle}",
                "larder",
                formats.cold.uri(),
                shuffle,
                {"output": "numpy"},
            )
            for shuffle in ("auto", "window")
        ]
        title = f"{samples:,} JPEG files from S3, cold"
        subject = Subject(
            "cold",
            title,
            samples,
            contenders,
            members.count,
            lambda _: 0,
            0,
            store.counted,
        )
        results = hold_cold(subject, self._sizes.rounds)
        quickest = min((one for one in results if one.contender.role == "bound"), key=_seconds)
        peer = min((one for one in results if one.contender.role == "baseline"), key=_seconds)
        goals = {quickest.contender.name: 0.9, peer.contender.name: 2}
        self._report.rivals(subject, results, goals)

    def index(self, store: Garage) -> None:
        """The first look at the files."""
        total = self._sizes.index_bytes
        sources = {
            "scan": self._folder / "tars",
            "footers": self._folder / "fixed",
            "text": self._folder / "text",
        }
        size = total // 100
        indexing.write_fixed(sources["footers"], size)
        indexing.write_text(sources["text"], size)
        program = [os.environ["LARDER_CLI"], "dataset", "index"]
        for what, files in sources.items():
            stored = indexing.publish(files, f"index-{what}", total, store)
            beside = [sys.executable, "-m", "formats.indexing", what, f"index-{what}"]
            index = [*program, f"s3://{indexing.BUCKET}/index-{what}"]
            ways = {
                "larder": partial(indexing.clock, index),
                "beside": partial(indexing.clock, beside, says_seconds=True),
            }
            costs = self._in_turns(ways)
            ratio = median(
                a.seconds / b.seconds for a, b in zip(costs["larder"], costs["beside"], strict=True)
            )
            self._report.note(
                "index", what=what, gb=round(stored / 1e9, 2), ratio=round(ratio, 2), goal=1.3,
                larder=_middle(costs["larder"]), beside=_middle(costs["beside"]),
            )  # fmt: skip

    def _opened(self, uri: str) -> larder.Dataset:
        """The dataset. It keeps the node running that Larder's processes use."""
        dataset = larder.open(uri)
        started = dataset._native.started_node
        self._node = started[0] if started else self._node
        assert self._node, "the node of this host is not ours"
        return dataset

    def _contest(self, subject: Subject) -> None:
        if subject.key in self._only:
            self._report.per_cpu(subject, hold(subject, self._sizes.rounds))

    def _in_turns(self, ways: dict[str, Callable[[], T]]) -> dict[str, list[T]]:
        """Runs each way once a round, in another order each round."""
        costs: dict[str, list[T]] = {name: [] for name in ways}
        for number in range(self._sizes.rounds):
            for name in sorted(ways, reverse=number % 2 == 1):
                costs[name].append(ways[name]())
        return costs


def main() -> None:
    arguments = _arguments()
    sizes = Sizes.quick() if arguments.quick else Sizes()
    sizes = replace(
        sizes,
        rounds=arguments.rounds or sizes.rounds,
        index_bytes=arguments.index_bytes or sizes.index_bytes,
    )
    # Otherwise the store would outlive a run that gets SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    report = Report(sizes.rounds, Path(larder._larder.__file__).resolve(), quick=arguments.quick)
    arguments.data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.data) as name, own_host():
        run = Run(report, Path(name), sizes, arguments.only)
        run.warm()
        if "fill" in arguments.only:
            run.fill()
        if "export" in arguments.only:
            export.measure(report, Path(name) / "export", sizes.rounds)
        for key in {"cold", "index"} & set(arguments.only):
            with (
                tempfile.TemporaryDirectory(dir=arguments.data) as place,
                Garage(Path(place)) as store,
            ):
                os.environ.update(store.environment)
                getattr(run, key)(store)
    report.write(arguments.out)


def _cpu_of_fill(who: str, files: Path) -> float:
    """CPU seconds of a fill, in a process of its own and with a node of its own."""
    mine = {"LARDER_HOST_NODE": f"fill-{time.monotonic_ns()}", "LARDER_HOST_NODE_LINGER": "1s"}
    command = [sys.executable, "-m", "formats.fill", who, str(files)]
    said = subprocess.check_output(command, env={**os.environ, **mine}, cwd=HERE, text=True)
    return float(said)


def _middle(costs: list[Cost]) -> dict[str, float]:
    return {
        "seconds": round(median(one.seconds for one in costs), 2),
        "cpu_seconds": round(median(one.cpu_seconds for one in costs), 2),
        "peak_mib": round(max(one.peak_bytes for one in costs) / (1 << 20)),
    }


def _seconds(result: Result) -> float:
    return median(one.seconds for one in result.rounds)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only see that everything works")
    parser.add_argument("--only", nargs="+", choices=KEYS, default=KEYS)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--index-bytes", type=int, help="the bytes of each indexed dataset")
    parser.add_argument("--out", type=Path, default=ROOT / "target/bench/formats.json")
    parser.add_argument("--data", type=Path, default=ROOT / "target/bench", help="where 40 GB fit")
    return parser.parse_args()


if __name__ == "__main__":
    main()
