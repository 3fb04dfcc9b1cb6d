"""Grain over a dataset: each sample once, as it was written, with and without worker processes.

Its shuffled order is its own; unshuffled it is the Rust client's. How workers start is its choice.
"""

from __future__ import annotations

import os
import pickle
import sysconfig
from typing import Any

import numpy as np
import pytest

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    pytest.importorskip("grain", reason="Grain has no wheel for Python without a GIL")

import absl.flags
import grain

import larder
import larder.grain
from harness import Node
from order import WORLDS, Job, check_bytes

FULL = "LARDER_TEST_FULL" in os.environ


@pytest.fixture
def source(node: Node) -> larder.grain.DataSource:
    return larder.grain.DataSource(larder.open("s3://data/images", cluster=node.address))


def delivered(batches: Any, images: dict[str, np.ndarray]) -> list[int]:
    return [label for batch in batches for label in check_bytes(batch, images)]


def test_source_is_a_random_access_data_source_of_grain(
    source: larder.grain.DataSource, images: dict[str, np.ndarray]
) -> None:
    assert isinstance(source, grain.sources.RandomAccessDataSource)
    assert len(source) == 300
    np.testing.assert_array_equal(source[7]["image"], images["image"][7])
    copy = pickle.loads(pickle.dumps(source))
    assert repr(copy) == repr(source)
    assert copy[299]["label"] == 299


def test_repr_of_source_identifies_its_samples(source: larder.grain.DataSource) -> None:
    whole = source._dataset
    texts = [
        repr(larder.grain.DataSource(part))
        for part in (whole, *whole.split(0.9, seed=0), *whole.split(0.9, seed=1), whole.select([3]))
    ]
    assert len(set(texts)) == len(texts)
    again = pickle.loads(pickle.dumps(whole)).split(0.9, seed=0)[0]
    assert repr(larder.grain.DataSource(again)) == texts[1]


@pytest.mark.usefixtures("flags")
def test_a_checkpoint_of_another_part_is_refused(source: larder.grain.DataSource) -> None:
    def loader(seed: int) -> grain.DataLoader:
        part = larder.grain.DataSource(source._dataset.split(0.9, seed=seed)[0])
        sampler = grain.samplers.IndexSampler(num_records=len(part), num_epochs=1)
        return grain.DataLoader(data_source=part, sampler=sampler)

    begun = iter(loader(0))
    next(begun)
    same, other = iter(loader(0)), iter(loader(1))
    same.set_state(begun.get_state())
    assert int(next(same)["label"]) == int(next(begun)["label"])
    with pytest.raises(ValueError, match="DataSource"):
        other.set_state(begun.get_state())


def test_a_dataset_pipeline_reads_batches_by_one_request_each(
    source: larder.grain.DataSource, images: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = []
    take = larder.Dataset.take

    def counted(dataset: larder.Dataset, indices: Any, **options: Any) -> Any:
        requests.append(len(indices))
        return take(dataset, indices, **options)

    monkeypatch.setattr(larder.Dataset, "take", counted)
    pipeline = grain.MapDataset.source(source).shuffle(seed=3)
    items = pipeline._getitems(range(300))
    assert requests == [300]
    assert sorted(int(item["label"]) for item in items) == list(range(300))
    batches = [pipeline.batch(20)[number] for number in range(15)]
    assert sorted(delivered(batches, images)) == list(range(300))


@pytest.fixture
def flags() -> None:
    """Grain's worker processes read command line flags, which absl's app.run parses."""
    absl.flags.FLAGS(["test"])


#: Number of workers, number of ranks.
FEW = [*((0, world) for world in WORLDS), (2, 1)]
CROSS = [(workers, world) for workers in (0, 2, 4) for world in WORLDS]


@pytest.mark.parametrize(("workers", "world"), CROSS if FULL else FEW)
@pytest.mark.usefixtures("flags")
def test_loader_of_grain_reads_each_sample_once(
    source: larder.grain.DataSource, images: dict[str, np.ndarray], workers: int, world: int
) -> None:
    seen: list[int] = []
    for rank in range(world):
        sampler = grain.samplers.IndexSampler(
            num_records=len(source),
            shard_options=grain.sharding.ShardOptions(rank, world),
            shuffle=True,
            seed=1,
            num_epochs=1,
        )
        loader = grain.DataLoader(
            data_source=source,
            sampler=sampler,
            shard_options=grain.sharding.ShardOptions(rank, world),
            worker_count=workers,
            operations=[grain.transforms.Batch(batch_size=25)],
        )
        seen += delivered(loader, images)
    assert sorted(seen) == list(range(300))


@pytest.mark.parametrize("workers", [0, 2, 4] if FULL else [0, 2])
@pytest.mark.usefixtures("flags")
def test_unshuffled_source_has_the_order_of_the_rust_client(
    source: larder.grain.DataSource, node: Node, workers: int
) -> None:
    sampler = grain.samplers.IndexSampler(num_records=len(source), num_epochs=1)
    loader = grain.DataLoader(data_source=source, sampler=sampler, worker_count=workers)
    order = Job(node.address, 1, shuffle="none").order()
    assert [int(sample["label"]) for sample in loader] == order


@pytest.mark.parametrize("workers", [0, 2, 4] if FULL else [0])
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.usefixtures("flags")
def test_a_dataset_pipeline_is_divided_among_ranks(
    source: larder.grain.DataSource, images: dict[str, np.ndarray], workers: int, world: int
) -> None:
    seen: list[int] = []
    for rank in range(world):
        shard = grain.MapDataset.source(source).shuffle(seed=1)[rank::world].batch(20)
        pipeline = shard.to_iter_dataset()
        if workers > 0:
            pipeline = pipeline.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(workers))
        seen += delivered(pipeline, images)
    assert sorted(seen) == list(range(300))


def test_random_access_to_a_mixture_is_refused(node: Node) -> None:
    dataset = larder.open("s3://data/images", cluster=node.address)
    with pytest.raises(larder.InvalidArgument, match="of a mixture there is an order only"):
        larder.grain.DataSource(larder.mix({dataset: 1.0}))
