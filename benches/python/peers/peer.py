"""What all peers have in common."""

from __future__ import annotations

import shutil
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from contest import Contender

#: The columns that are written: `image` and `label`, memory-mapped.
Columns = dict[str, np.ndarray[Any, Any]]


@dataclass
class Peer(Contender):
    """A loader of others at one setting; the environment says where the store is.

    Attributes:
        cache: a folder of its own on this host.
        workers: of its DataLoader; 0 is the training process itself.
    """

    cache: Path
    workers: int

    #: The prefix of its files on the store; peers with the same one read the same files.
    key: ClassVar[str]
    #: Its name for people.
    title: ClassVar[str]
    #: How many times faster a warm epoch of Larder should be.
    goal: ClassVar[float] = 6

    @classmethod
    def settings(cls, cache: Path) -> list[Self]:
        """The settings among which its best is looked for."""
        return [cls.at(cache, workers) for workers in (0, 2)]

    @classmethod
    def at(cls, cache: Path, workers: int, how: str = "", **more: Any) -> Self:
        """One setting; `how` says in words what is not the number of workers."""
        name = ", ".join(filter(None, [cls.title, how, f"{workers} workers"]))
        return cls(name, "baseline", cache / cls.__name__, workers, **more)

    @staticmethod
    @abstractmethod
    def write(columns: Columns, folder: Path) -> None:
        """Write all samples into an empty folder in the peer's own format."""

    def load(self) -> None:
        """Let it have more workers than cores: that is one of the settings that are tried."""
        warnings.filterwarnings("ignore", message="This DataLoader will create")

    def forget(self) -> None:
        """Empty the cache."""
        shutil.rmtree(self.cache, ignore_errors=True)
        self.cache.mkdir(parents=True)

    @property
    def loading(self) -> dict[str, Any]:
        """The arguments of a DataLoader about its workers."""
        return {"num_workers": self.workers, "persistent_workers": self.workers > 0}


def batches(loader: Any) -> Iterator[dict[str, Any]]:
    """The columns of each batch, without what a loader adds."""
    for batch in loader:
        yield {"image": batch["image"], "label": batch["label"]}


def samples(columns: Columns) -> Iterator[dict[str, Any]]:
    """One sample after the other, in memory of its own."""
    for image, label in zip(columns["image"], columns["label"], strict=True):
        yield {"image": np.array(image), "label": int(label)}
