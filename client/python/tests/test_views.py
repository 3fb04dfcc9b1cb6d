"""Samples, slices and contiguous batches are views into the cache, and harmless to write to."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
import pytest

import larder
from harness import Node

URI = "s3://data/images"


@pytest.fixture
def dataset(node: Node) -> larder.Dataset:
    """The dataset with its only shard mapped, after the node has filled it."""
    dataset = larder.open(URI, cluster=node.address)
    deadline = time.monotonic() + 60
    while True:
        before = larder.stats()
        dataset[0]
        if copied(before) == 0:
            return dataset
        assert time.monotonic() < deadline, "the shard is not handed out"


def anonymous_kib() -> int:
    """Memory of this process for its own copies of the cache's pages."""
    total, of_a_memfd = 0, False
    with open("/proc/self/smaps") as smaps:
        for line in smaps:
            if "-" in line.split(" ")[0]:
                of_a_memfd = "memfd:" in line
            elif of_a_memfd and line.startswith("Anonymous:"):
                total += int(line.split()[1])
    return total


def copied(stats_before: dict[str, float]) -> float:
    return larder.stats()["copied_bytes"] - stats_before["copied_bytes"]


def test_a_sample_a_slice_and_rows_are_views(
    dataset: larder.Dataset, images: dict[str, np.ndarray]
) -> None:
    before = larder.stats()
    for index in (5, 6, 99, -1):
        sample = dataset[index]
        np.testing.assert_array_equal(sample["image"], images["image"][index])
        assert sample["label"].shape == ()
        assert sample["image"].flags.writeable
    for start, stacked in ((10, dataset[10:20]), (20, dataset.rows(20, 30))):
        np.testing.assert_array_equal(stacked["image"], images["image"][start : start + 10])
        np.testing.assert_array_equal(stacked["label"], images["label"][start : start + 10])
    assert copied(before) == 0
    assert larder.stats()["viewed_bytes"] > before["viewed_bytes"]
    assert anonymous_kib() == 0


def test_rows_with_a_live_view_are_copied_for_the_next_read(dataset: larder.Dataset) -> None:
    held, before = dataset[10:20], larder.stats()
    again = dataset[15:25]
    assert copied(before) == sum(array.nbytes for array in again.values())
    assert not np.shares_memory(held["image"], again["image"])
    del held
    before = larder.stats()
    dataset[10:20]
    assert copied(before) == 0


def test_slices_are_those_of_a_list(dataset: larder.Dataset, images: dict[str, np.ndarray]) -> None:
    for chosen in (slice(3, 30, 7), slice(None, None, -50), slice(-5, None), slice(7, 3)):
        stacked = dataset[chosen]
        np.testing.assert_array_equal(stacked["image"], images["image"][chosen])
        np.testing.assert_array_equal(stacked["label"], images["label"][chosen])


def test_batches_of_contiguous_rows_are_views(
    dataset: larder.Dataset, images: dict[str, np.ndarray]
) -> None:
    loader = dataset.loader(25, shuffle="none", output="numpy")
    for batch in loader:
        np.testing.assert_array_equal(batch["image"], images["image"][batch.samples])
        assert batch["image"].flags.writeable
    stats = loader.stats()
    assert stats["copies_per_byte"] == 0
    assert stats["viewed_bytes"] == stats["bytes"] == sum(a.nbytes for a in images.values())
    assert anonymous_kib() == 0


def test_shuffled_batches_are_copied_once(dataset: larder.Dataset) -> None:
    loader = dataset.loader(25, shuffle="global")
    for _ in loader:
        pass
    assert loader.stats()["copies_per_byte"] == 1


@pytest.mark.parametrize("shuffle", ["none", "global"])
def test_remote_rows_are_copied_once(
    shuffle: str, node: Node, images: dict[str, np.ndarray]
) -> None:
    # Rows of one shard stand side by side in a batch: short ones of several are copied once more.
    remote = larder.open(URI, cluster=node.address, local=False)
    loader = remote.loader(25, shuffle=shuffle, output="numpy")
    for batch in loader:
        np.testing.assert_array_equal(batch["image"], images["image"][batch.samples])
    stats = loader.stats()
    assert stats["remote_bytes"] == stats["bytes"] == sum(a.nbytes for a in images.values())
    assert stats["copies_per_byte"] == 1


def test_writes_to_a_view_are_invisible_to_other_readers(
    dataset: larder.Dataset, node: Node, images: dict[str, np.ndarray]
) -> None:
    mine, neighbour = dataset[40], dataset[41]
    mine["image"][:] = 0
    np.testing.assert_array_equal(neighbour["image"], images["image"][41])
    again = dataset[40]
    np.testing.assert_array_equal(again["image"], images["image"][40])
    again["image"][:] = 1
    assert (mine["image"] == 0).all()
    for batch in dataset.loader(30, shuffle="none", output="numpy"):
        np.testing.assert_array_equal(batch["image"], images["image"][batch.samples])
    for batch in dataset.loader(30, shuffle="global", output="numpy"):
        np.testing.assert_array_equal(batch["image"], images["image"][batch.samples])
    opened = f"larder.open({URI!r}, cluster={node.address!r})"
    other = f"import larder; print({opened}[40]['image'].sum())"
    printed = subprocess.run(
        [sys.executable, "-c", other], env=os.environ, capture_output=True, text=True, check=True
    )
    assert int(printed.stdout) == images["image"][40].sum()
    del mine, neighbour, again, batch
    np.testing.assert_array_equal(dataset[40]["image"], images["image"][40])
    assert anonymous_kib() == 0, "what was written is given back"


def test_program_that_writes_to_all_rows_stays_small(
    dataset: larder.Dataset, images: dict[str, np.ndarray]
) -> None:
    for _ in range(3):
        for index in range(len(dataset)):
            sample = dataset[index]
            np.testing.assert_array_equal(sample["image"], images["image"][index])
            sample["image"] += 1
            del sample
    assert anonymous_kib() <= 3 << 10


def test_a_view_outlives_the_dataset(node: Node, images: dict[str, np.ndarray]) -> None:
    view = larder.open(URI, cluster=node.address)[7]["image"][3:]
    np.testing.assert_array_equal(view, images["image"][7][3:])
