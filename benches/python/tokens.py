"""Token windows: samples of 2,048 tokens of 16 bits, from one flat file for all contenders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, SupportsInt

import numpy as np

from contest import Batch, Contender, Subject
from loaders import BATCH, Larder, OpenColumns, mapped

WINDOW = 2048

#: The name of a flat file's tensor in Larder.
COLUMN = "tokens"


def write(folder: Path, windows: int) -> None:
    """Writes random tokens. The first four of a window hold its number."""
    tokens = np.random.default_rng(7).integers(0, 50_257, size=(windows, WINDOW), dtype=np.uint16)
    tokens[:, :4] = np.arange(windows, dtype=np.int64)[:, None].view(np.uint16)
    (folder / "tokens").mkdir()
    tokens.tofile(folder / "tokens" / "tokens.bin")


def uri(folder: Path) -> str:
    """The URI for Larder."""
    return f"file://{folder}/tokens"


def columns(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The same data, mapped."""
    whole = np.memmap(folder / "tokens" / "tokens.bin", dtype=np.uint16, mode="c")
    return {COLUMN: whole.reshape(-1, WINDOW)}


@dataclass
class Stacked(Contender):
    """The loop of common training scripts for language models: a slice for each window, stacked."""

    columns: OpenColumns

    def open(self) -> None:
        import torch  # noqa: F401

        self._windows = self.columns()[COLUMN]

    def epoch(self, number: int) -> Iterable[Batch]:
        import torch

        order = np.random.default_rng(number).permutation(len(self._windows))
        for start in range(0, len(order), BATCH):
            windows = [torch.from_numpy(self._windows[row]) for row in order[start : start + BATCH]]
            yield {COLUMN: torch.stack(windows)}


@dataclass
class Gathered(Contender):
    """One numpy gather for each batch, without a DataLoader."""

    columns: OpenColumns

    def open(self) -> None:
        import torch  # noqa: F401

        self._windows = np.asarray(self.columns()[COLUMN])

    def epoch(self, number: int) -> Iterable[Batch]:
        import torch

        order = np.random.default_rng(number).permutation(len(self._windows))
        for start in range(0, len(order), BATCH):
            yield {COLUMN: torch.from_numpy(self._windows[order[start : start + BATCH]])}


def subjects(folder: Path, windows: int, node: int) -> list[Subject]:
    """Shuffled epochs."""
    data = partial(columns, folder)
    contenders: list[Contender] = [
        Stacked("memmap, slices stacked", "baseline", data),
        Gathered("memmap, numpy gather", "baseline", data),
        *mapped(data, shuffle=True, items=False),
        Larder("larder, shuffle global", "larder", uri(folder), "global", helpers=[node]),
    ]
    title = f"{windows:,} windows of {WINDOW:,} x u16, shuffled"
    check = partial(_check, folder)
    return [Subject("tokens", title, windows, contenders, touch, check, 1.5)]


def touch(batch: Batch) -> SupportsInt:
    """One token of each window."""
    return batch[COLUMN].numpy()[:, 0].sum()


def _check(folder: Path, batch: Batch) -> int:
    windows = batch[COLUMN].numpy()
    rows = np.ascontiguousarray(windows[:, :4]).view(np.int64)[:, 0]
    if not np.array_equal(windows, columns(folder)[COLUMN][rows]):
        raise AssertionError("a batch is not what was written")
    return len(windows)
