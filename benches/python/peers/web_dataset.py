"""WebDataset: tar files, which `cache_dir` keeps on the local disk.

It shuffles the tar files, and samples within a buffer: weaker than a shuffle over all samples.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from contest import Batch
from images import SHAPE
from loaders import BATCH
from peers.garage import BUCKET, client
from peers.peer import Columns, Peer

#: Samples of a tar file: 37 MiB.
TAR_SAMPLES = 256

#: Samples that are shuffled among each other.
BUFFER = 1024

#: Seconds for which the addresses of the tar files are valid.
URL_SECONDS = 7200


@dataclass
class WebDataset(Peer):
    """The pipeline of its documentation; a batch is stacked by one copy."""

    key: ClassVar[str] = "wds"
    title: ClassVar[str] = "WebDataset"

    @staticmethod
    def decode(sample: dict[str, Any]) -> tuple[Any, int]:
        """An image and its label."""
        image = np.frombuffer(sample["image"], np.uint8).reshape(SHAPE)
        return image, int.from_bytes(sample["label"], "little")

    @staticmethod
    def stack(samples: list[tuple[Any, int]]) -> Batch:
        """A batch of samples."""
        import torch

        images, labels = zip(*samples, strict=True)
        return {
            "image": torch.from_numpy(np.stack(images)),
            "label": torch.tensor(labels),
        }

    @staticmethod
    def write(columns: Columns, folder: Path) -> None:
        """Writes the raw bytes of image and label beside each other."""
        images, labels = columns["image"], columns["label"]
        for start in range(0, len(labels), TAR_SAMPLES):
            with tarfile.open(folder / f"{start // TAR_SAMPLES:05}.tar", "w") as tar:
                for row in range(start, min(start + TAR_SAMPLES, len(labels))):
                    _add(tar, f"{row:06}.image", images[row].tobytes())
                    _add(tar, f"{row:06}.label", labels[row].tobytes())

    def load(self) -> None:
        super().load()
        import webdataset  # noqa: F401

        s3 = client()
        found = s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{self.key}/")["Contents"]
        self._urls = [
            s3.generate_presigned_url(
                "get_object",
                {"Bucket": BUCKET, "Key": one["Key"]},
                ExpiresIn=URL_SECONDS,
            )
            for one in found
            if one["Key"].endswith(".tar")
        ]

    def open(self) -> None:
        import webdataset

        dataset = webdataset.WebDataset(
            self._urls,
            shardshuffle=len(self._urls),
            cache_dir=str(self.cache),
            nodesplitter=webdataset.split_by_node,
            workersplitter=webdataset.split_by_worker,
        )
        dataset = dataset.shuffle(BUFFER).map(self.decode).batched(BATCH, collation_fn=self.stack)
        self._loader = webdataset.WebLoader(dataset, batch_size=None, **self.loading)

    def epoch(self, number: int) -> Iterable[Batch]:  # noqa: ARG002  (its order is its own)
        return self._loader


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))
