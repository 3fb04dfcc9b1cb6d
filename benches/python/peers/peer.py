"""The common base of all peers."""

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

#: The columns to write: `image` and `label`, memory-mapped.
Columns = dict[str, np.ndarray[Any, Any]]


@dataclass
class Peer(Contender):
    """Another loader at one setting. The environment names the store.

    Attributes:
        cache: its own folder on this host.
        workers: workers of its DataLoader; 0 is the training process itself.
    """

    cache: Path
    workers: int

    #: The prefix of its files on the store. Peers with the same prefix read the same files.
    key: ClassVar[str]
    #: Its name for people.
    title: ClassVar[str]
    #: The wanted ratio of a warm epoch of Larder to one of this peer.
    goal: ClassVar[float] = 6

    @classmethod
    def settings(cls, cache: Path) -> list[Self]:
        """The settings to try."""
        return [cls.at(cache, workers) for workers in (0, 2)]

    @classmethod
    def at(cls, cache: Path, workers: int, how: str = "", **more: Any) -> Self:
        """One setting. `how` names its other choices in words, beside the number of workers."""
        name = ", ".join(filter(None, [cls.title, how, f"{workers} workers"]))
        return cls(name, "baseline", cache / cls.__name__, workers, **more)

    @staticmethod
    @abstractmethod
    def write(columns: Columns, folder: Path) -> None:
        """Writes all samples into an empty folder in the peer's own format."""

    def load(self) -> None:
        """Allows more workers than cores, which some tried settings have."""
        warnings.filterwarnings("ignore", message="This DataLoader will create")

    def forget(self) -> None:
        """Empties the cache."""
        shutil.rmtree(self.cache, ignore_errors=True)
        self.cache.mkdir(parents=True)

    @property
    def loading(self) -> dict[str, Any]:
        """The arguments of a DataLoader about its workers."""
        return {"num_workers": self.workers, "persistent_workers": self.workers > 0}


def batches(loader: Any) -> Iterator[dict[str, Any]]:
    """The columns of each batch, without additions of a loader."""
    for batch in loader:
        yield {"image": batch["image"], "label": batch["label"]}


def samples(columns: Columns) -> Iterator[dict[str, Any]]:
    """One sample after the other, each in its own memory."""
    for image, label in zip(columns["image"], columns["label"], strict=True):
        yield {"image": np.array(image), "label": int(label)}
