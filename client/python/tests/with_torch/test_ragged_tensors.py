"""Rows of different lengths as torch has them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import larder
import larder.torch
from harness import Node

Rows = dict[str, list[np.ndarray]]


@pytest.fixture
def dataset(node: Node) -> larder.Dataset:
    return larder.open("s3://data/ragged", cluster=node.address)


def check(column: larder.Ragged, samples: list[int], rows: list[np.ndarray]) -> None:
    assert isinstance(column.data, torch.Tensor)
    assert column.offsets.dtype == torch.int64
    for row, sample in zip(column.rows(), samples, strict=True):
        np.testing.assert_array_equal(row.numpy(), rows[sample])


def test_ragged_tensors_fit_the_jagged_layout_of_torch(
    dataset: larder.Dataset, ragged: Rows
) -> None:
    for batch in dataset.loader(16, output="torch"):
        check(batch["text"], batch.samples.tolist(), ragged["text"])
        boxes = torch.nested.nested_tensor_from_jagged(*batch["box"])
        for box, sample in zip(boxes.unbind(), batch.samples.tolist(), strict=True):
            np.testing.assert_array_equal(box.numpy(), ragged["box"][sample])
        moved = batch.to(torch.float64)
        assert (moved["box"].data.dtype, moved["box"].offsets.dtype) == (torch.float64, torch.int64)
        assert moved.samples is batch.samples


def test_transforms_receive_ragged_tensors(dataset: larder.Dataset, ragged: Rows) -> None:
    def negate(sample: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        assert isinstance(sample["box"], torch.Tensor)
        return {"box": -sample["box"]}

    for batch in dataset.loader(16, transform=negate, workers=2, output="torch"):
        for row, sample in zip(batch["box"].rows(), batch.samples.tolist(), strict=True):
            np.testing.assert_array_equal(-row.numpy(), ragged["box"][sample])


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loaders_return_ragged_rows_and_batches(
    dataset: larder.Dataset, ragged: Rows, workers: int
) -> None:
    samples = larder.torch.Dataset(dataset)
    np.testing.assert_array_equal(samples[9]["text"].numpy(), ragged["text"][9])
    assert samples[0]["text"].shape == (0,)
    order = larder.torch.BatchSampler(dataset, 16, seed=1)
    for batch in DataLoader(samples, sampler=order, batch_size=None, num_workers=workers):
        check(batch["text"], batch["label"].tolist(), ragged["text"])
    for rows in DataLoader(samples, batch_size=8, collate_fn=list, num_workers=workers):
        for row in rows:
            np.testing.assert_array_equal(row["box"].numpy(), ragged["box"][int(row["label"])])
    data = larder.torch.IterableDataset(dataset, 16, seed=1)
    for batch in DataLoader(data, batch_size=None, num_workers=workers):
        check(batch["text"], batch["label"].tolist(), ragged["text"])
    single = larder.torch.IterableDataset(dataset, 16, seed=1, batched=False)
    for sample in DataLoader(single, batch_size=None, num_workers=workers):
        row = ragged["text"][int(sample["label"])]
        np.testing.assert_array_equal(sample["text"].numpy(), row)
