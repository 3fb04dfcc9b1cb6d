"""From a bucket to batches, through a node and straight from the origin."""

from __future__ import annotations

import numpy as np
import pytest

import larder
from harness import Node

URI = "s3://data/images"


@pytest.fixture(params=["node", "network", "origin"])
def dataset(request: pytest.FixtureRequest, node: Node) -> larder.Dataset:
    """The dataset by each of the ways in which rows can come."""
    if request.param == "origin":
        return larder.open(URI, cluster="none")
    return larder.open(URI, cluster=node.address, local=request.param == "node")


def test_dataset_has_length_uri_and_tensors(dataset: larder.Dataset) -> None:
    assert len(dataset) == 300
    assert dataset.uri == URI
    assert dataset.tensors == {
        "image": larder.TensorSpec("uint8", (32, 32, 3)),
        "label": larder.TensorSpec("int64", ()),
    }


def test_sample_equals_the_written_one(
    dataset: larder.Dataset, images: dict[str, np.ndarray]
) -> None:
    for index in (0, 99, 100, 299, -1, -300):
        sample = dataset[index]
        assert list(sample) == ["image", "label"]
        np.testing.assert_array_equal(sample["image"], images["image"][index])
        assert sample["label"] == images["label"][index]


@pytest.mark.parametrize("shuffle", ["auto", "none", "window", "window:2", "global"])
def test_epoch_has_every_sample_once_as_written(
    dataset: larder.Dataset, images: dict[str, np.ndarray], shuffle: str
) -> None:
    loader = dataset.loader(32, shuffle=shuffle, seed=3, last="uneven", output="numpy")
    assert len(loader) == 10
    orders = []
    for epoch in range(2):
        samples = []
        for batch in loader:
            np.testing.assert_array_equal(batch["image"], images["image"][batch.samples])
            np.testing.assert_array_equal(batch["label"], images["label"][batch.samples])
            samples += batch.samples.tolist()
        assert loader.epoch == epoch
        assert sorted(samples) == list(range(300))
        orders.append(samples)
    assert (orders[0] == orders[1]) == (shuffle == "none")


def test_batches_are_views_of_reused_memory(dataset: larder.Dataset) -> None:
    addresses = set()
    # 150 batches, and no more buffers than threads, batches that lie ready and one in use.
    for batch in dataset.loader(2, shuffle="none", output="numpy"):
        assert batch["image"].flags.writeable
        assert not batch["image"].flags.owndata
        assert batch["image"].ctypes.data % 4096 == 0
        addresses.add(batch["image"].ctypes.data)
    assert len(addresses) < 20


def test_a_mistake_is_one_clear_error(dataset: larder.Dataset) -> None:
    with pytest.raises(IndexError, match="no sample 300\nhint: the dataset has 300"):
        dataset[300]
    with pytest.raises(larder.NotFound) as caught:
        dataset.loader(tensors=["picture"])
    error = caught.value
    assert isinstance(error, LookupError)
    assert (error.kind, error.hint) == ("not_found", "its tensors are: image, label")
    assert str(error).endswith("\nhint: its tensors are: image, label")
