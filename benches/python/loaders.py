"""The contenders: Larder's loader, and torch's DataLoader over memory-mapped files.

The mapped files are in the page cache, as in the second epoch of a job with enough memory. Their
bytes are not checked, but every row of Larder is compared with its CRC32C.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from contest import Batch, Contender

#: Samples of a batch, in all measurements.
BATCH = 256

#: Opens the columns that a memory-mapped loader reads.
OpenColumns = Callable[[], dict[str, np.ndarray[Any, Any]]]


@dataclass
class Larder(Contender):
    """`Dataset.loader`, through the node of this host; `how` has more arguments of it."""

    uri: str
    shuffle: str
    how: dict[str, Any] = field(default_factory=lambda: {"output": "torch"})

    def load(self) -> None:
        import torch  # noqa: F401  (as a training program has by then)

        import larder  # noqa: F401

    def open(self) -> None:
        import larder

        self._dataset = larder.open(self.uri)
        self._loader = self._dataset.loader(BATCH, shuffle=self.shuffle, last="uneven", **self.how)

    def epoch(self, number: int) -> Iterable[Batch]:
        self._loader.set_epoch(number)
        return self._loader

    def notes(self) -> dict[str, float]:
        import larder

        return larder.stats()


@dataclass
class Fresh(Larder):
    """`Larder` with its own empty node, which `open` starts."""

    def load(self) -> None:
        super().load()
        os.environ["LARDER_HOST_NODE"] = f"fresh-{os.getpid()}"
        os.environ["LARDER_HOST_NODE_LINGER"] = "1s"

    def open(self) -> None:
        super().open()
        started = self._dataset._native.started_node
        assert started is not None, "the node is not ours"
        self.helpers = [started[0]]


@dataclass
class Mapped(Contender):
    """A DataLoader over memory-mapped columns.

    `batched` reads each batch by one gather. Otherwise samples are read one by one and collated.
    """

    columns: OpenColumns
    shuffle: bool
    batched: bool
    workers: int

    def load(self) -> None:
        import torch.utils.data  # noqa: F401

    def open(self) -> None:
        from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

        # Some tried settings have more workers than cores.
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        rows = _Rows(self.columns())
        settings = {"num_workers": self.workers, "persistent_workers": self.workers > 0}
        if self.batched:
            order = RandomSampler(rows) if self.shuffle else SequentialSampler(rows)
            batches = BatchSampler(order, BATCH, drop_last=False)
            self._loader = DataLoader(rows, sampler=batches, batch_size=None, **settings)
        else:
            self._loader = DataLoader(rows, BATCH, shuffle=self.shuffle, **settings)

    def epoch(self, number: int) -> Iterable[Batch]:  # noqa: ARG002  (its order is its own)
        return self._loader


@dataclass
class Slices(Contender):
    """Slices of the mapped columns: the cost of a view without any management."""

    columns: OpenColumns

    def open(self) -> None:
        import torch  # noqa: F401

        self._columns = self.columns()

    def epoch(self, number: int) -> Iterator[Batch]:  # noqa: ARG002
        import torch

        samples = len(next(iter(self._columns.values())))
        for start in range(0, samples, BATCH):
            yield {
                name: torch.from_numpy(column[start : start + BATCH])
                for name, column in self._columns.items()
            }


class _Rows:
    """A map-style dataset over columns. A list of indices returns a batch."""

    def __init__(self, columns: dict[str, np.ndarray[Any, Any]]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, index: int | list[int]) -> Batch:
        import torch

        return {
            name: torch.from_numpy(np.array(column[index]))
            if isinstance(index, int)
            else torch.from_numpy(column[index])
            for name, column in self._columns.items()
        }


def mapped(columns: OpenColumns, *, shuffle: bool, items: bool = True) -> list[Contender]:
    """The settings of a DataLoader to try."""
    return [
        Mapped(
            f"memmap, {'batched' if batched else 'by item'}, {workers} workers",
            "baseline",
            columns,
            shuffle,
            batched,
            workers,
        )
        for batched in ((False, True) if items else (True,))
        for workers in (0, 2, 4)
    ]
