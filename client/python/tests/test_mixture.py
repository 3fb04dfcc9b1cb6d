"""Mixtures: the share of each dataset, and loaders like those of a dataset."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest

import larder
import transforms
from harness import Node

URI = "s3://data/images"


@pytest.fixture
def parts(node: Node) -> tuple[larder.Dataset, larder.Dataset]:
    """All samples, 200 and 100 of them."""
    dataset = larder.open(URI, cluster=node.address)
    return dataset.select(range(200)), dataset.select(range(200, 300))


def drawn(mixture: larder.Mixture, epoch: int = 0, **options: object) -> list[tuple[int, int]]:
    """The dataset and the sample of each row of an epoch."""
    loader = mixture.loader(last="uneven", output="numpy", **options)
    loader.set_epoch(epoch)
    rows: list[tuple[int, int]] = []
    for batch in loader:
        assert batch["label"].tolist() == batch.samples.tolist()
        rows += zip(batch.sources.tolist(), batch.samples.tolist(), strict=True)
    return rows


def test_every_batch_has_its_share_of_each_dataset(
    parts: tuple[larder.Dataset, larder.Dataset], images: dict[str, np.ndarray]
) -> None:
    mixture = larder.mix({parts[0]: 3, parts[1]: 1}, seed=1)
    assert mixture.draws == (200, 67)
    assert len(mixture) == 267
    assert mixture.datasets == parts
    assert mixture.tensors == parts[0].tensors
    loader = mixture.loader(40, seed=2, output="numpy")
    assert len(loader) == 6
    for batch in loader:
        assert abs(np.count_nonzero(batch.sources) - 10) <= 1
        assert ((batch.samples >= 200) == batch.sources).all()
        np.testing.assert_array_equal(batch["image"], images["image"][batch.samples])


def test_mixture_epoch_ends_at_the_chosen_stop(
    parts: tuple[larder.Dataset, larder.Dataset],
) -> None:
    both = {parts[0]: 0.5, parts[1]: 0.5}
    first = Counter(drawn(larder.mix(both)))
    assert set(first.values()) == {1}
    assert sum(source for source, _ in first.elements()) == 100
    everything = Counter(drawn(larder.mix(both, stop="all")))
    assert len(everything) == 300
    assert {everything[row] for row in everything if row[0] == 1} == {2}
    assert len(drawn(larder.mix(both, stop=50))) == 50


def test_the_order_is_that_of_its_seeds(parts: tuple[larder.Dataset, larder.Dataset]) -> None:
    both = [(parts[0], 0.7), (parts[1], 0.3)]
    order = drawn(larder.mix(both, seed=1), seed=5)
    assert order == drawn(larder.mix(dict(both), seed=1), seed=5, batch_size=7)
    assert order != drawn(larder.mix(both, seed=2), seed=5)
    assert order != drawn(larder.mix(both, seed=1), seed=6)
    assert order != drawn(larder.mix(both, seed=1), seed=5, epoch=1)
    assert order == drawn(pickle.loads(pickle.dumps(larder.mix(both, seed=1))), seed=5)


def test_ranks_share_an_epoch_of_a_mixture(parts: tuple[larder.Dataset, larder.Dataset]) -> None:
    mixture = larder.mix({parts[0]: 0.7, parts[1]: 0.3})
    rows: list[tuple[int, int]] = []
    for rank in range(3):
        rows += drawn(mixture, batch_size=10, rank=rank, world_size=3)
    assert sorted(rows) == sorted(drawn(mixture))


def test_repeated_sample_draws_new_random_numbers(
    parts: tuple[larder.Dataset, larder.Dataset],
) -> None:
    mixture = larder.mix({parts[0]: 0.5, parts[1].select(range(30)): 0.5}, stop="all")

    def numbers(batch_size: int, **options: object) -> set[tuple[int, int, bytes]]:
        loader = mixture.loader(batch_size, transform=transforms.noise, last="uneven", **options)
        return {
            (source, sample, noise.tobytes())
            for batch in (batch for _ in range(3) for batch in loader)
            for source, sample, noise in zip(
                batch.sources.tolist(), batch.samples.tolist(), batch["noise"], strict=True
            )
        }

    drawn = numbers(32)
    assert len({noise for *_, noise in drawn}) == len(drawn) == 3 * 400
    assert drawn == numbers(7, workers=2)


def test_a_batch_of_a_single_dataset_has_no_sources(
    parts: tuple[larder.Dataset, larder.Dataset],
) -> None:
    assert next(iter(parts[0].loader(4))).sources is None


def test_mixture_and_validation_split_iterate_together(
    parts: tuple[larder.Dataset, larder.Dataset],
) -> None:
    train, validation = parts[0].split(0.9, seed=2)
    mixture = larder.mix({train: 0.8, parts[1]: 0.2})
    left = set(range(200))
    for one, two in zip(mixture.loader(20), validation.loader(2), strict=False):
        mine = set(one.samples[one.sources == 0].tolist())
        assert not mine & set(two.samples.tolist())
        left -= mine | set(two.samples.tolist())
    assert len(left) < 60


def test_invalid_mixtures_are_refused(
    node: Node, parts: tuple[larder.Dataset, larder.Dataset]
) -> None:
    one, two = parts
    for wrong, says in [
        (lambda: larder.mix({}), r"datasets is \{\}"),
        (lambda: larder.mix({one: 1, two: 0}), "weight 1 is 0"),
        (lambda: larder.mix({one: 1, two: float("nan")}), "weight 1 is nan"),
        (lambda: larder.mix({one: 1}, stop="last"), "'last'"),
        (lambda: larder.mix({one: 1}, stop=0), "stop is 0"),
        (lambda: larder.mix({one: 1, two.select([]): 1}), "has no samples"),
    ]:
        with pytest.raises(larder.InvalidArgument, match=says):
            wrong()
    types = larder.open("s3://data/types", cluster=node.address)
    with pytest.raises(larder.InvalidArgument, match="cannot mix s3://data/images with") as raised:
        larder.mix({one: 1, types: 1})
    assert "no tensor has the same name" in raised.value.why


def test_tensors_are_those_that_all_datasets_have(
    node: Node, parts: tuple[larder.Dataset, larder.Dataset]
) -> None:
    ragged = larder.open("s3://data/ragged", cluster=node.address)
    mixture = larder.mix({parts[0]: 1, ragged: 1})
    assert list(mixture.tensors) == ["label"]
    batch = next(iter(mixture.loader(20, output="numpy")))
    assert list(batch) == ["label"]
    assert batch["label"].tolist() == batch.samples.tolist()
    with pytest.raises(larder.NotFound, match="no tensor 'image'"):
        mixture.loader(4, tensors=["image"])
