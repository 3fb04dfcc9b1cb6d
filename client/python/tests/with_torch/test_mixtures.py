"""Mixtures through torch's loaders: the order of their own loader, divided among workers."""

from __future__ import annotations

import itertools
import os
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import larder
import larder.torch
from harness import Node
from order import WORLDS

FULL = "LARDER_TEST_FULL" in os.environ
OPTIONS: dict[str, Any] = {"shuffle": "global", "seed": 5, "last": "uneven"}


@pytest.fixture
def mixture(node: Node) -> larder.Mixture:
    """A third of the samples as often as the others: they come twice an epoch."""
    dataset = larder.open("s3://data/images", cluster=node.address)
    parts = {dataset.select(range(100)): 0.5, dataset.select(range(100, 300)): 0.5}
    return larder.mix(parts, seed=3, stop="all")


def rows(batches: Any, images: dict[str, np.ndarray]) -> list[list[tuple[int, int]]]:
    """Dataset and sample of each row of each batch, once all bytes are checked."""
    found = []
    for batch in batches:
        np.testing.assert_array_equal(batch["image"].numpy(), images["image"][batch.samples])
        found.append(list(zip(batch.sources.tolist(), batch.samples.tolist(), strict=True)))
    return found


def own(mixture: larder.Mixture, images: dict[str, np.ndarray], **options: Any) -> Any:
    return rows(mixture.loader(16, **OPTIONS, **options, output="torch"), images)


#: Start method, number of workers, number of ranks.
CROSS = list(itertools.product(["fork", "spawn", "forkserver"], [2, 4], WORLDS))
FEW = [(method, *rest) for method, *rest in CROSS if method == "fork" or rest == [2, 1]]
ALONE = [(None, 0, world) for world in WORLDS]


@pytest.mark.parametrize("loader", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize(("method", "workers", "world"), ALONE + (CROSS if FULL else FEW))
def test_workers_together_read_the_order_of_their_rank(
    loader: Any,
    method: str | None,
    workers: int,
    world: int,
    mixture: larder.Mixture,
    images: dict[str, np.ndarray],
) -> None:
    seen = []
    for rank in range(world):
        ranks = {"rank": rank, "world_size": world}
        data = larder.torch.IterableDataset(mixture, 16, **OPTIONS, **ranks)
        batches = loader(data, None, num_workers=workers, multiprocessing_context=method)
        found = rows(batches, images)
        assert found == own(mixture, images, **ranks)
        seen += itertools.chain(*found)
    assert sorted(seen) == sorted(itertools.chain(*own(mixture, images)))
    assert len(seen) == 400


@pytest.mark.parametrize("workers", [0, 2])
def test_mixture_state_resumes_in_mid_epoch(
    workers: int, mixture: larder.Mixture, images: dict[str, np.ndarray]
) -> None:
    expected = own(mixture, images)
    for stop in (1, 4, 9):
        data = larder.torch.IterableDataset(mixture, 16, **OPTIONS)
        batches = iter(DataLoader(data, None, num_workers=workers))
        first = [next(batches) for _ in range(stop)]
        data = larder.torch.IterableDataset(mixture, 16, **OPTIONS)
        data.load_state_dict(first[-1].state_dict())
        rest = DataLoader(data, None, num_workers=2 - workers)
        assert rows(first, images) + rows(rest, images) == expected
        stateful = StatefulDataLoader(larder.torch.IterableDataset(mixture, 16, **OPTIONS), None)
        stateful_batches = iter(stateful)
        for _ in range(stop):
            next(stateful_batches)
        resumed = StatefulDataLoader(larder.torch.IterableDataset(mixture, 16, **OPTIONS), None)
        resumed.load_state_dict(stateful.state_dict())
        assert rows(resumed, images) == expected[stop:]


def test_mixture_can_be_read_as_single_samples(mixture: larder.Mixture) -> None:
    data = larder.torch.IterableDataset(mixture, 16, **OPTIONS, batched=False)
    labels = [int(sample["label"]) for sample in DataLoader(data, None)]
    assert len(data) == len(labels) == 400
    assert sorted(labels) == sorted([*range(300), *range(100)])


@pytest.mark.parametrize("kind", [larder.torch.Dataset, larder.torch.BatchSampler])
def test_random_access_to_a_mixture_is_refused(kind: Any, mixture: larder.Mixture) -> None:
    with pytest.raises(larder.InvalidArgument, match="of a mixture there is an order only"):
        kind(mixture)
