"""Warm shuffled epochs onto the device.

Larder's loader with page-locked batches and without, beside torch's DataLoader with `pin_memory`,
and beside copies of one page-locked batch.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

import larder

from figures import GIB, WrongBytes, in_turns, rates, table
from images import BATCH, SAMPLE_BYTES, images, uri

Batches = Callable[[], Iterator[dict[str, Any]]]


class Rows:
    """The files, mapped by each process that reads them; a list of numbers brings a batch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._columns = {"image": images(folder), "label": np.load(folder / "label.npy")}

    def __reduce__(self) -> tuple[type[Rows], tuple[Path]]:
        return Rows, (self._folder,)

    def __len__(self) -> int:
        return len(self._columns["label"])

    def __getitem__(self, numbers: list[int]) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(column[numbers]) for name, column in self._columns.items()}


def measure(folder: Path, device: str, rounds: int) -> dict[str, Any]:
    """Seconds of each way's epochs; before and after them every byte is compared on the host."""
    written = images(folder)
    dataset = larder.open(uri(folder))
    ways = {**_of_larder(dataset, device), **_of_torch(folder, device)}
    for name, batches in ways.items():
        _compare(name, batches, device, written)
    clocks = {name: partial(_clock, batches, device) for name, batches in ways.items()}
    clocks["one page-locked batch, copied again and again"] = partial(
        _copies, len(written) // BATCH, device
    )
    seconds = in_turns(clocks, rounds)
    for name, batches in ways.items():
        _compare(name, batches, device, written)
    _print(seconds, len(written))
    return {"samples": len(written), "batch": BATCH, "seconds": seconds}


def _of_larder(dataset: larder.Dataset, device: str) -> dict[str, Batches]:
    pinned = (False, True) if device == "cuda" else (False,)
    loaders = {
        f"larder, pin_memory={pin}, prefetch={prefetch}": dataset.loader(
            BATCH, shuffle="global", prefetch=prefetch, output="torch", pin_memory=pin
        )
        for pin in pinned
        for prefetch in (2, 4, 8)
    }
    return {name: partial(iter, loader) for name, loader in loaders.items()}


def _of_torch(folder: Path, device: str) -> dict[str, Batches]:
    # More workers than cores are one of the settings that are tried.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    rows = Rows(folder)
    pin = device == "cuda"
    ways: dict[str, Batches] = {}
    for workers in (0, 2, 4, 8):
        order = BatchSampler(RandomSampler(rows), BATCH, drop_last=True)  # type: ignore[arg-type]
        loader: DataLoader[Any] = DataLoader(
            rows,  # type: ignore[arg-type]
            sampler=order,
            batch_size=None,
            num_workers=workers,
            persistent_workers=workers > 0,
            # Forked children of a program that uses a GPU are not safe with every library.
            multiprocessing_context="forkserver" if workers else None,
            pin_memory=pin,
        )
        ways[f"DataLoader, pin_memory={pin}, {workers} workers"] = partial(iter, loader)
    return ways


def _moved(batch: dict[str, Any], device: str) -> dict[str, torch.Tensor]:
    return {name: column.to(device, non_blocking=True) for name, column in batch.items()}


def _compare(name: str, batches: Batches, device: str, written: np.ndarray[Any, Any]) -> None:
    labels: list[int] = []
    for batch in batches():
        moved = _moved(batch, device)
        of = moved["label"].cpu().numpy()
        if not np.array_equal(moved["image"].cpu().numpy(), written[of]):
            raise WrongBytes(f"{name}: a batch is not what was written")
        labels += of.tolist()
    if sorted(labels) != list(range(len(written))):
        raise WrongBytes(f"{name}: an epoch did not bring each sample once")


def _clock(batches: Batches, device: str) -> float:
    """An epoch, until its last byte is on the device."""
    begun = time.perf_counter()
    for batch in batches():
        _moved(batch, device)
    _finish(device)
    return time.perf_counter() - begun


def _copies(count: int, device: str) -> float:
    batch = torch.empty(BATCH * SAMPLE_BYTES, dtype=torch.uint8, pin_memory=device == "cuda")
    _finish(device)
    begun = time.perf_counter()
    for _ in range(count):
        batch.to(device, non_blocking=True, copy=True)
    _finish(device)
    return time.perf_counter() - begun


def _finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _print(seconds: dict[str, list[float]], samples: int) -> None:
    """Ratios are to the best of the DataLoader's settings, round by round."""
    of_torch = [name for name in seconds if name.startswith("DataLoader")]
    best = min(of_torch, key=lambda name: median(seconds[name]))
    rows = []
    for name, each in seconds.items():
        rate, low, high = rates(samples * SAMPLE_BYTES / GIB, each)
        pairs = zip(each, seconds[best], strict=True)
        ratio = median(theirs / own for own, theirs in pairs)
        rows.append((name, f"{rate:.2f}", f"{low:.2f}", f"{high:.2f}", f"{ratio:.2f}"))
    heads = ("way", "GiB/s to the device", "min", "max", f"to {best}")
    table(f"{samples:,} images in batches of {BATCH}, shuffled, warm", heads, rows)
