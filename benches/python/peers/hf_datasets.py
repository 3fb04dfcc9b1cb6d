"""Hugging Face datasets: parquet on the store, which `load_dataset` converts to a memory-mapped
Arrow file on the local disk. It shuffles over all samples, as Larder does.
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
from peers.garage import BUCKET, client
from peers.peer import Columns, Peer

#: Samples of a parquet file: 73.5 MiB.
FILE_SAMPLES = 512

#: Samples of a row group.
GROUP_SAMPLES = 256


@dataclass
class HuggingFace(Peer):
    """The map-style dataset in torch's format in a DataLoader, as in its documentation."""

    key: ClassVar[str] = "parquet"
    title: ClassVar[str] = "HF datasets"

    @staticmethod
    def write(columns: Columns, folder: Path) -> None:
        """Writes plain pages: random bytes gain nothing by encodings and statistics."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        images, labels = columns["image"], columns["label"]
        for start in range(0, len(labels), FILE_SAMPLES):
            rows = slice(start, start + FILE_SAMPLES)
            flat = pa.array(np.array(images[rows]).reshape(-1))
            image = pa.FixedSizeListArray.from_arrays(flat, int(np.prod(SHAPE)))
            pq.write_table(
                pa.table({"image": image, "label": labels[rows]}),
                folder / f"{start // FILE_SAMPLES:05}.parquet",
                compression="none",
                use_dictionary=False,
                write_statistics=False,
                row_group_size=GROUP_SAMPLES,
            )

    def load(self) -> None:
        super().load()
        # The library reads this at import. Its cached data of other runs must not help.
        os.environ["HF_HOME"] = str(self.cache)
        import datasets
        import s3fs  # noqa: F401

        datasets.disable_progress_bars()
        found = client().list_objects_v2(Bucket=BUCKET, Prefix=f"{self.key}/")["Contents"]
        self._files = [f"s3://{BUCKET}/{one['Key']}" for one in found]

    def open(self) -> None:
        import datasets

        dataset = datasets.load_dataset(
            "parquet",
            data_files=self._files,
            split="train",
            cache_dir=str(self.cache),
            storage_options={"client_kwargs": {"endpoint_url": os.environ["AWS_ENDPOINT_URL"]}},
        )
        self._loader = self._over(dataset)

    def _over(self, dataset: Any) -> Any:
        """The loader over the converted data."""
        import torch
        from torch.utils.data import DataLoader

        # Without the type it widens images to int64.
        formatted = dataset.with_format(
            "torch", columns=["image"], output_all_columns=True, dtype=torch.uint8
        )
        return DataLoader(formatted, BATCH, shuffle=True, **self.loading)

    def epoch(self, number: int) -> Iterable[Batch]:  # noqa: ARG002  (its order is its own)
        for batch in self._loader:
            yield {"image": batch["image"].view(-1, *SHAPE), "label": batch["label"]}


@dataclass
class HuggingFaceArrow(HuggingFace):
    """Whole batches of Arrow. Our own collate function stacks them by one copy.

    Its documentation does not show this way, but it is the fastest that we found.
    """

    title: ClassVar[str] = "HF datasets, Arrow batches by hand"

    def _over(self, dataset: Any) -> Any:
        from torch.utils.data import BatchSampler, DataLoader, RandomSampler

        order = BatchSampler(RandomSampler(dataset), BATCH, drop_last=False)
        arrow = dataset.with_format("arrow")
        return DataLoader(arrow, sampler=order, batch_size=None, collate_fn=_stack, **self.loading)


def _stack(table: Any) -> Batch:
    import torch

    chunks = [chunk.flatten().to_numpy() for chunk in table["image"].chunks]
    return {
        "image": torch.from_numpy(np.concatenate(chunks)),
        "label": torch.from_numpy(table["label"].to_numpy()),
    }
