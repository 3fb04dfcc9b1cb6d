"""LitData: its own chunks, which it keeps on the local disk.

It shuffles chunks and, by default, samples within blocks of 256: weaker than a shuffle over all
samples.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from contest import Batch
from loaders import BATCH
from peers.garage import BUCKET
from peers.peer import Columns, Peer, batches, samples


@dataclass
class LitData(Peer):
    """`StreamingDataset` in a `StreamingDataLoader`.

    Attributes:
        decode: samples to decode at a time; 0 decodes each alone.
    """

    decode: int

    key: ClassVar[str] = "lit"
    title: ClassVar[str] = "LitData"

    @classmethod
    def settings(cls, cache: Path) -> list[Self]:
        # "auto", the default, decodes dozens of samples for each one that a shuffle wants.
        return [cls.at(cache, workers, "batch_decode=0", decode=0) for workers in (0, 2)]

    @staticmethod
    def write(columns: Columns, folder: Path) -> None:
        """Writes chunks of 64 MB, the size in its documentation."""
        from litdata.streaming.cache import Cache

        cache = Cache(str(folder), chunk_bytes="64MB")
        for number, sample in enumerate(samples(columns)):
            cache[number] = sample
        cache.done()
        cache.merge()

    def load(self) -> None:
        super().load()
        import litdata  # noqa: F401
        from litdata.streaming import downloader

        # The only way to an endpoint without TLS.
        downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True

    def open(self) -> None:
        import litdata

        dataset = litdata.StreamingDataset(
            f"s3://{BUCKET}/{self.key}/",
            cache_dir=str(self.cache),
            shuffle=True,
            max_cache_size="30GB",
            batch_decode=self.decode,
            storage_options=_access(),
        )
        self._loader = litdata.StreamingDataLoader(dataset, batch_size=BATCH, **self.loading)

    def epoch(self, number: int) -> Iterable[Batch]:  # noqa: ARG002  (it counts by itself)
        return batches(self._loader)


def _access() -> dict[str, Any]:
    return {
        "endpoint_url": os.environ["AWS_ENDPOINT_URL"],
        "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "region_name": os.environ["AWS_REGION"],
    }
