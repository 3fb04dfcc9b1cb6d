"""First epochs of tars on garage, on a host without data. Others have files of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from contest import Batch, Contender
from formats.indexing import scan
from formats.members import NO_MEMBERS, lists, member
from formats.photos import Written
from peers import LitData, Mosaic, WebDataset
from peers.garage import BUCKET

#: The prefix of the tars, which Larder and WebDataset read.
TARS = "tars"


@dataclass
class Tars(WebDataset):
    """The same tars as Larder."""

    key: ClassVar[str] = TARS
    decode: ClassVar[Callable[..., Any]] = staticmethod(member)
    stack: ClassVar[Callable[..., Any]] = staticmethod(lists)


@dataclass
class Shards(Mosaic):
    """Its own shards, with the same bytes."""

    key: ClassVar[str] = "jpeg-mds"

    @staticmethod
    def write_members(samples: int, written: Written, folder: Path) -> None:
        """Writes shards of its default size."""
        from streaming import MDSWriter

        with MDSWriter(out=str(folder), columns={"jpg": "bytes", "cls": "int"}) as writer:
            for number in range(samples):
                writer.write({"jpg": written[number], "cls": number})

    def epoch(self, number: int) -> Iterable[Batch]:  # noqa: ARG002  (it counts by itself)
        return _members(self._loader)


@dataclass
class Chunks(LitData):
    """Its own chunks, with the same bytes."""

    key: ClassVar[str] = "jpeg-lit"

    @classmethod
    def settings(cls, cache: Path) -> list[Self]:
        # With workers it reads chunks that have not arrived whole, and fails.
        return [cls.at(cache, 0, "batch_decode=0", decode=0)]

    @staticmethod
    def write_members(samples: int, written: Written, folder: Path) -> None:
        """Writes chunks of 64 MB."""
        from litdata.streaming.cache import Cache

        cache = Cache(str(folder), chunk_bytes="64MB")
        for number in range(samples):
            cache[number] = {"jpg": written[number], "cls": number}
        cache.done()
        cache.merge()

    def epoch(self, number: int) -> Iterable[Batch]:  # noqa: ARG002  (it counts by itself)
        return _members(self._loader)


@dataclass
class Ranges(Contender):
    """Ranged GETs of the tars, at the best rate. Nothing is done with the bytes.

    Attributes:
        at_once: requests at a time.
        total: what the samples of an epoch add up to, as it makes no samples.
    """

    at_once: int
    total: int

    def load(self) -> None:
        import boto3  # noqa: F401
        import obstore  # noqa: F401

    def open(self) -> None:
        """It has nothing to open."""

    def epoch(self, number: int) -> Iterator[Batch]:  # noqa: ARG002
        scan(TARS, self.at_once)
        yield {"jpg": NO_MEMBERS, "cls": np.array([self.total])}


def uri() -> str:
    """The URI of the tars for Larder."""
    return f"s3://{BUCKET}/{TARS}"


def _members(loader: Any) -> Iterator[Batch]:
    for batch in loader:
        yield {"jpg": batch["jpg"], "cls": np.asarray(batch["cls"])}
