"""Transforms of torch tensors, in this thread and in others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import larder
import torch_transforms
import transforms
from harness import Node
from order import Job, check_bytes

PLACES = [{"workers": 0}, {"workers": 2}]


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("whole", [None, torch_transforms.center])
def test_transforms_take_and_return_tensors(
    node: Node, images: dict[str, np.ndarray], where: dict[str, Any], whole: Any
) -> None:
    dataset = larder.open("s3://data/images", cluster=node.address)
    options = {"transform": torch_transforms.to_bfloat16, "batch_transform": whole}
    noise = {}
    for batch in dataset.loader(50, seed=2, **options, **where):
        assert all(isinstance(value, torch.Tensor) for value in batch.values())
        assert batch["label"].tolist() == batch.samples.tolist()
        expected = torch.from_numpy(images["image"][batch.samples]).to(torch.bfloat16) / 2
        assert torch.equal(batch["image"], expected)
        assert torch.equal(batch["half"], batch["label"].float() / 2)
        assert ("mean" in batch) == (whole is not None)
        noise |= dict(zip(batch["label"].tolist(), batch["noise"].tolist(), strict=True))
    again = dataset.loader(7, seed=2, last="uneven", transform=torch_transforms.to_bfloat16)
    for batch in again:
        rows = zip(batch["label"].tolist(), batch["noise"].tolist(), strict=True)
        assert all(noise[label] == numbers for label, numbers in rows)


@pytest.mark.parametrize("world", [2, 3])
def test_workers_do_not_change_the_order_of_ranks(
    world: int, node: Node, images: dict[str, np.ndarray]
) -> None:
    job = Job(node.address, world, last="uneven")
    dataset = larder.open(job.uri, cluster=job.cluster)
    options = {"transform": transforms.same, "workers": 2, "output": "torch"}
    ranks = []
    for rank in range(world):
        batches = list(dataset.loader(**job.options(rank), **options))
        assert all(isinstance(batch["image"], torch.Tensor) for batch in batches)
        ranks.append([check_bytes(batch, images) for batch in batches])
    job.check(ranks)


@pytest.mark.parametrize("where", PLACES)
def test_value_without_a_torch_type_names_its_sample(node: Node, where: dict[str, Any]) -> None:
    dataset = larder.open("s3://data/images", cluster=node.address)
    loader = dataset.loader(50, shuffle="none", transform=torch_transforms.name, **where)
    with pytest.raises(larder.TransformError, match="sample 0 in epoch 0: 'name' is <U4") as raised:
        next(iter(loader))
    assert raised.value.samples == [0]


@pytest.mark.parametrize("where", PLACES)
def test_batch_transform_can_return_sparse_and_nested_tensors(
    node: Node, where: dict[str, Any]
) -> None:
    dataset = larder.open("s3://data/images", cluster=node.address)
    loader = dataset.loader(50, shuffle="none", batch_transform=torch_transforms.several, **where)
    for number, batch in enumerate(loader):
        label = torch.arange(50).float() + 50 * number
        assert torch.equal(batch["label"], label)
        assert torch.equal(batch["sparse"].to_dense(), label)
        assert [row.tolist() for row in batch["rows"].unbind()] == [
            label[:2].tolist(),
            label[2:5].tolist(),
        ]
