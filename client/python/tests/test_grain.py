"""Grain over a dataset: each sample once, as it was written, with and without worker processes."""

from __future__ import annotations

import pickle
from typing import Any

import absl.flags
import grain
import numpy as np
import pytest

import larder
import larder.grain
from harness import Node
from order import check_bytes


@pytest.fixture
def source(node: Node) -> larder.grain.DataSource:
    return larder.grain.DataSource(larder.open("s3://data/images", cluster=node.address))


def delivered(batches: Any, images: dict[str, np.ndarray]) -> list[int]:
    return [label for batch in batches for label in check_bytes(batch, images)]


def test_it_is_what_grain_calls_a_random_access_data_source(
    source: larder.grain.DataSource, images: dict[str, np.ndarray]
) -> None:
    assert isinstance(source, grain.sources.RandomAccessDataSource)
    assert len(source) == 300
    np.testing.assert_array_equal(source[7]["image"], images["image"][7])
    copy = pickle.loads(pickle.dumps(source))
    assert repr(copy) == repr(source)
    assert copy[299]["label"] == 299


def test_a_dataset_pipeline_reads_batches_by_one_request_each(
    source: larder.grain.DataSource, images: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = []
    take = larder.Dataset._take

    def counted(dataset: larder.Dataset, indices: Any, tensors: Any) -> Any:
        requests.append(len(indices))
        return take(dataset, indices, tensors)

    monkeypatch.setattr(larder.Dataset, "_take", counted)
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


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.usefixtures("flags")
def test_grains_loader_brings_each_sample_once(
    source: larder.grain.DataSource, images: dict[str, np.ndarray], workers: int
) -> None:
    sampler = grain.samplers.IndexSampler(
        num_records=len(source), shuffle=True, seed=1, num_epochs=1
    )
    loader = grain.DataLoader(
        data_source=source,
        sampler=sampler,
        worker_count=workers,
        operations=[grain.transforms.Batch(batch_size=25)],
    )
    assert sorted(delivered(loader, images)) == list(range(300))


def test_grain_divides_it_among_processes(
    source: larder.grain.DataSource, images: dict[str, np.ndarray]
) -> None:
    seen = []
    for index in range(3):
        shard = grain.MapDataset.source(source).shuffle(seed=1)[index::3]
        seen += delivered((shard.batch(20)[number] for number in range(5)), images)
    assert sorted(seen) == list(range(300))
