"""Rows of different lengths as torch has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
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
        box = batch["box"]
        boxes = torch.nested.nested_tensor_from_jagged(box.data, box.offsets)
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


CAPTIONS = [f"capti\u00f3n {row}" for row in range(24)]


def test_rows_of_text_are_str_beside_tensors(tmp_path: Path) -> None:
    pq.write_table(pa.table({"txt": CAPTIONS, "cls": range(24)}), tmp_path / "0.parquet")
    ds = larder.open(f"file://{tmp_path}", cluster="none")
    batch = next(iter(ds.loader(8, shuffle="none", output="torch")))
    for moved in (batch, batch.to(torch.float64), batch.to("cpu")):
        assert moved["txt"].tolist() == CAPTIONS[:8]
        assert moved["txt"].data.dtype == torch.uint8
        assert "'capti\u00f3n 0'" in repr(moved)
    read = pa.record_batch(batch.to_arrow())
    assert read.column("txt").to_pylist() == CAPTIONS[:8]
    assert read.column("cls").buffers()[1].address == batch["cls"].data_ptr()
    collated = next(iter(DataLoader(larder.torch.Dataset(ds), batch_size=3)))
    assert collated["txt"] == CAPTIONS[:3]
    data = larder.torch.IterableDataset(ds, 8, shuffle="none")
    for batch, begin in zip(
        DataLoader(data, batch_size=None, num_workers=2), (0, 8, 16), strict=True
    ):
        assert batch["txt"].tolist() == CAPTIONS[begin : begin + 8]

    def longer(sample: dict[str, Any]) -> dict[str, Any]:
        return {"txt": sample["txt"] + "!", "cls": sample["cls"]}

    batch = next(iter(ds.loader(8, shuffle="none", transform=longer, output="torch")))
    assert batch["txt"].tolist() == [text + "!" for text in CAPTIONS[:8]]
    assert isinstance(batch["txt"].data, torch.Tensor)


def test_lightning_moves_ragged_columns(dataset: larder.Dataset) -> None:
    from lightning.fabric.utilities import move_data_to_device

    batch = next(iter(dataset.loader(4, output="torch")))
    moved = move_data_to_device({"box": batch["box"]}, torch.device("meta"))
    assert isinstance(moved["box"], larder.Ragged)
    assert moved["box"].data.device.type == moved["box"].offsets.device.type == "meta"
