"""Larder's Python loader against other loaders, as ratios of one run.

    python run.py [--quick] [--only KEY ...] [--rounds N] [--out FILE] [--data FOLDER]

`make bench-python` builds the package and calls this. The run writes its data, indexes it in place
and reads it through a node of this host that `larder.open` starts. Other programs of this user do
not use that node. Data and node are removed afterwards.

Non-goals: other hosts, real object stores, GPUs, disks that are slower than memory.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import larder

import contest
import first_batch
import images
import rows
import tokens
from host import own_host
from report import Report

ROOT = Path(__file__).resolve().parents[2]

KEYS = ("shuffled", "views", "views-read", "tokens", "restart", "cold", "rows")


@dataclass(frozen=True)
class Sizes:
    """Sizes and counts of the run."""

    images: int = 8192
    windows: int = 65_536
    many: int = 1_000_000
    rounds: int = 9

    #: Sizes of `--quick`.
    @classmethod
    def quick(cls) -> Sizes:
        return cls(images=1024, windows=4096, many=16_000, rounds=2)


def main() -> None:
    arguments = _arguments()
    sizes = Sizes.quick() if arguments.quick else Sizes()
    rounds = arguments.rounds or sizes.rounds
    only = arguments.only or KEYS
    report = Report(rounds, Path(larder._larder.__file__).resolve(), quick=arguments.quick)
    arguments.data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.data) as name, own_host():
        folder = Path(name)
        _prepare(folder, sizes, only, quick=arguments.quick)
        if set(only) - {"cold", "rows"}:
            _warm(report, folder, sizes, only, rounds)
        if "rows" in only:
            rows.measure(report, folder, rounds)
        if "cold" in only:
            title = f"Cold start on {sizes.many:,} samples of {first_batch.SAMPLE_BYTES:,} B"
            starts = first_batch.clock(first_batch.cold(folder), rounds)
            report.starts("cold", title, starts)
    report.write(arguments.out)


def _prepare(
    folder: Path, sizes: Sizes, only: tuple[str, ...] | list[str], *, quick: bool
) -> None:
    """Writes and indexes the data of the chosen subjects."""
    if set(only) - {"cold", "rows"}:
        images.write(folder, sizes.images)
        larder.index(images.uri(folder))
    if "tokens" in only:
        tokens.write(folder, sizes.windows)
        larder.index(tokens.uri(folder), dtype="uint16", window=tokens.WINDOW)
    if "rows" in only:
        rows.write(folder, quick)
        for made in (*sorted(folder.glob("rows-*")), folder / "keys"):
            larder.index(f"file://{made}", key="id" if made.name == "keys" else None)
    if "cold" in only:
        first_batch.write(folder, sizes.many)
        larder.index(first_batch.uri(folder))


def _warm(
    report: Report, folder: Path, sizes: Sizes, only: tuple[str, ...] | list[str], rounds: int
) -> None:
    """Runs the subjects that read from a warm node. The open dataset keeps the node running."""
    dataset = larder.open(images.uri(folder))
    started = dataset._native.started_node
    assert started is not None, "the node of this host is not ours"
    node = started[0]
    subjects = images.subjects(folder, sizes.images, node)
    if "tokens" in only:
        subjects += tokens.subjects(folder, sizes.windows, node)
    for subject in subjects:
        if subject.key in only:
            report.contest(subject, contest.hold(subject, rounds))
    if "restart" in only:
        for _ in dataset.loader(shuffle="none", output="numpy"):
            pass
        starts = first_batch.clock(first_batch.restarts(folder), rounds)
        report.starts("restart", "Job restart, warm cache, shuffled", starts)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only see that everything works")
    parser.add_argument("--only", nargs="+", choices=KEYS, metavar="KEY", help=", ".join(KEYS))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--out", type=Path, default=ROOT / "target/bench/python.json")
    parser.add_argument(
        "--data", type=Path, default=ROOT / "target/bench", help="where 4 GB fit; in the page cache"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
