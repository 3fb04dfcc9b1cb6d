"""s3torchconnector: one object for each sample, read again in each epoch. It keeps no data.

The map-style dataset, because its iterable one does not shuffle. A sampler shuffles all samples.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from contest import Batch
from images import SHAPE
from loaders import BATCH
from peers.garage import BUCKET
from peers.peer import Columns, Peer


@dataclass
class S3Connector(Peer):
    """`S3MapDataset` in a DataLoader."""

    key: ClassVar[str] = "objects"
    title: ClassVar[str] = "s3torchconnector"
    goal: ClassVar[float] = 30

    @staticmethod
    def write(columns: Columns, folder: Path) -> None:
        """Writes the bytes of the image, then those of the label."""
        for row, label in enumerate(columns["label"]):
            data = columns["image"][row].tobytes() + label.tobytes()
            (folder / f"{row:06}").write_bytes(data)

    def load(self) -> None:
        super().load()
        import s3torchconnector  # noqa: F401

    def open(self) -> None:
        from s3torchconnector import S3ClientConfig, S3MapDataset
        from torch.utils.data import DataLoader

        dataset = S3MapDataset.from_prefix(
            f"s3://{BUCKET}/{self.key}/",
            region=os.environ["AWS_REGION"],
            endpoint=os.environ["AWS_ENDPOINT_URL"],
            transform=_decode,
            s3client_config=S3ClientConfig(force_path_style=True),
        )
        self._loader = DataLoader(dataset, BATCH, shuffle=True, collate_fn=_stack, **self.loading)

    def epoch(self, number: int) -> Iterable[Batch]:  # noqa: ARG002  (its order is its own)
        return self._loader


def _decode(reader: Any) -> bytes:
    data: bytes = reader.read()
    return data


def _stack(objects: list[bytes]) -> Batch:
    import torch

    bytes_of_image = int(np.prod(SHAPE))
    images = [np.frombuffer(data, np.uint8, bytes_of_image).reshape(SHAPE) for data in objects]
    labels = [int.from_bytes(data[bytes_of_image:], "little") for data in objects]
    return {"image": torch.from_numpy(np.stack(images)), "label": torch.tensor(labels)}
