"""MosaicML Streaming: MDS shards, which it keeps on the local disk.

Its shuffle (`py1e`, the default) spreads the samples of a shard over a window of samples, so it is
weaker than one over all samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from contest import Batch
from images import SHAPE
from loaders import BATCH
from peers.garage import BUCKET
from peers.peer import Columns, Peer, batches, samples


@dataclass
class Mosaic(Peer):
    """`StreamingDataset` in a `StreamingDataLoader`."""

    key: ClassVar[str] = "mds"
    title: ClassVar[str] = "MosaicML Streaming"

    @staticmethod
    def write(columns: Columns, folder: Path) -> None:
        """Writes MDS shards of its default size, 64 MiB."""
        from streaming import MDSWriter

        shape = ",".join(map(str, SHAPE))
        types = {"image": f"ndarray:uint8:{shape}", "label": "int64"}
        with MDSWriter(out=str(folder), columns=types) as writer:
            for sample in samples(columns):
                writer.write({**sample, "label": np.int64(sample["label"])})

    def load(self) -> None:
        super().load()
        import streaming  # noqa: F401

        # Its arrays are views of bytes. They are copied into batches and not written to.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")

    def open(self) -> None:
        from streaming import StreamingDataLoader, StreamingDataset
        from streaming.base.util import clean_stale_shared_memory

        clean_stale_shared_memory()
        dataset = StreamingDataset(
            remote=f"s3://{BUCKET}/{self.key}",
            local=str(self.cache),
            shuffle=True,
            batch_size=BATCH,
            num_canonical_nodes=1,
        )
        # Forked workers would share the connection of the index, and get each other's answers:
        # stalls, errors, or wrong samples.
        for stream in dataset.streams:
            stream._downloader.clean_up()
        self._loader = StreamingDataLoader(dataset, batch_size=BATCH, **self.loading)

    def epoch(self, number: int) -> Iterable[Batch]:  # noqa: ARG002  (it counts by itself)
        return batches(self._loader)
