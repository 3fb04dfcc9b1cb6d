"""Warm shuffled epochs onto the device: Larder's loader with `device=`, beside torch's DataLoader
with `pin_memory` and the number of workers that is best.

The DataLoader reads a memmap of the same images by one gather for each batch, and checks nothing.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import larder

from figures import Clocked, Report, as_json, clocked, fastest, in_turns, rates, ratio
from gpu import DEVICE, Batches, Gpu, node_of
from images import BATCH, images, uri

_WORKERS = (0, 4, 8, 16)
_THEIRS = "DataLoader"


class Rows:
    """The files, mapped by each process that reads them. A list of indices returns a batch."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder, self._count = folder, count
        whole = {"image": images(folder), "label": np.load(folder / "label.npy")}
        self._columns = {name: column[:count] for name, column in whole.items()}

    def __reduce__(self) -> tuple[type[Rows], tuple[Path, int]]:
        return Rows, (self._folder, self._count)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, numbers: list[int]) -> dict[str, Any]:
        import torch

        return {name: torch.from_numpy(column[numbers]) for name, column in self._columns.items()}


def measure(
    report: Report, gpu: Gpu, dataset: larder.Dataset, folder: Path, count: int, rounds: int
) -> None:
    """Row d."""
    written = images(folder)[:count]
    ours = _of_larder(gpu, dataset.select(range(count)))
    # A rehearsal has no torch: the first loader takes the DataLoader's place.
    theirs = (
        {f"{_THEIRS}'s place": next(iter(ours.values()))}
        if report.rehearsal
        else _of_torch(folder, count, DEVICE, _WORKERS)
    )
    ways: dict[str, Batches] = {**ours, **theirs}
    for name, batches in ways.items():
        gpu.compare(name, batches, written)
    works = {name: partial(gpu.epoch, batches) for name, batches in ways.items()}
    node = node_of(dataset)
    said = in_turns({name: partial(clocked, work, node) for name, work in works.items()}, rounds)
    for name, batches in ways.items():
        gpu.compare(name, batches, written)
    _tell(report, said, list(ours), list(theirs), count)
    if report.rehearsal:
        _rehearse_torch(folder, count)


def _of_larder(gpu: Gpu, part: larder.Dataset) -> dict[str, Batches]:
    ways = [("auto", 4), ("auto", 8), ("staged", 4), ("staged", 8), ("staged", 16)]
    return {
        f"larder, device=, {way}, prefetch={prefetch}": partial(
            iter,
            part.loader(
                BATCH,
                shuffle="global",
                prefetch=prefetch,
                output=gpu.output,
                device=DEVICE,
                device_way=way,  # type: ignore[arg-type]
            ),
        )
        for way, prefetch in ways
    }


def _of_torch(folder: Path, count: int, device: str, workers: Sequence[int]) -> dict[str, Batches]:
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler

    # Some tried settings have more workers than cores.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    rows: Any = Rows(folder, count)
    pin = device != "cpu"

    def moved(loader: DataLoader[Any]) -> Iterator[dict[str, Any]]:
        for batch in loader:
            yield {name: column.to(device, non_blocking=True) for name, column in batch.items()}

    ways: dict[str, Batches] = {}
    for number in workers:
        loader: DataLoader[Any] = DataLoader(
            rows,
            sampler=BatchSampler(RandomSampler(rows), BATCH, drop_last=True),
            batch_size=None,
            num_workers=number,
            persistent_workers=number > 0,
            # Forked children of a program that uses a GPU are not safe with every library.
            multiprocessing_context="forkserver" if number else None,
            pin_memory=pin,
        )
        ways[f"{_THEIRS}, pin_memory={pin}, {number} workers"] = partial(moved, loader)
    return ways


def _tell(
    report: Report, said: dict[str, list[Clocked]], ours: list[str], theirs: list[str], count: int
) -> None:
    """Ratios are to the best of the DataLoader's settings, round by round."""
    best, own = fastest(said, theirs), fastest(said, ours)
    report.at_least("d", f"{own}: samples/s, to {best}", ratio(said[own], said[best]), 2, "x")

    def cpu(name: str) -> float:
        return median(one.cpu_seconds for one in said[name])

    report.at_most("d", f"{own}: CPU, to {best}", cpu(own) / cpu(best), 0.1, "x")
    rows = []
    for name, each in said.items():
        rate, low, high = rates(count, [one.seconds for one in each])
        micros = 1e6 * cpu(name) / count
        cells = (f"{rate:,.0f}", f"{low:,.0f}", f"{high:,.0f}", micros, ratio(each, said[best]))
        rows.append((name, *cells))
    heads = ("way", "samples/s", "min", "max", "CPU us/sample", f"to {best}")
    report.table(f"{count:,} images in batches of {BATCH}, shuffled, warm", heads, rows)
    report.part("loader", {"samples": count, "rounds": as_json(said)})


def _rehearse_torch(folder: Path, count: int) -> None:
    """The DataLoader's side on the host, in a process without the stand-in."""
    if importlib.util.find_spec("torch") is None:
        print("not rehearsed: torch is not installed, so no DataLoader ran")
        return
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment.pop("LD_LIBRARY_PATH", None)
    command = [sys.executable, str(Path(__file__).resolve()), str(folder), str(count)]
    subprocess.run(command, env=environment, check=True, timeout=300)


def _on_host(folder: Path, count: int) -> None:
    written = images(folder)[:count]
    compare: Callable[[Any], bool] = lambda batch: np.array_equal(  # noqa: E731
        batch["image"].numpy(), written[batch["label"].numpy()]
    )
    for name, batches in _of_torch(folder, count, "cpu", (0, 2)).items():
        assert all(map(compare, batches())), name
    part = larder.open(uri(folder)).select(range(count))
    loader = part.loader(BATCH, shuffle="global", output="torch", pin_memory=False)
    assert all(map(compare, loader))


if __name__ == "__main__":
    _on_host(Path(sys.argv[1]), int(sys.argv[2]))
