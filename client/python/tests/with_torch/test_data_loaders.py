"""Every way in which torch iterates a dataset, with any number of workers and any start method.
Each sample comes once, in the order of the Rust client, with the written bytes."""

from __future__ import annotations

import os
import pickle
from collections import namedtuple
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler
from torch.utils.data.distributed import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

import larder
import larder.torch
from harness import Node
from order import WORLDS, Job, check_bytes

FULL = "LARDER_TEST_FULL" in os.environ

Make = Callable[[larder.Dataset, Job, int, dict[str, Any]], Iterable[dict[str, Any]]]


def iterable(ds: larder.Dataset, job: Job, rank: int, workers: dict[str, Any]) -> Any:
    return DataLoader(larder.torch.IterableDataset(ds, **job.options(rank)), None, **workers)


def iterable_of_samples(ds: larder.Dataset, job: Job, rank: int, workers: dict[str, Any]) -> Any:
    data = larder.torch.IterableDataset(ds, **job.options(rank), batched=False)
    return DataLoader(data, job.batch_size, **workers)


def stateful_iterable(ds: larder.Dataset, job: Job, rank: int, workers: dict[str, Any]) -> Any:
    data = larder.torch.IterableDataset(ds, **job.options(rank))
    return StatefulDataLoader(data, None, **workers)


def map_by_batches(ds: larder.Dataset, job: Job, rank: int, workers: dict[str, Any]) -> Any:
    order = larder.torch.BatchSampler(ds, **job.options(rank))
    return DataLoader(larder.torch.Dataset(ds), None, sampler=order, **workers)


def map_collated(ds: larder.Dataset, job: Job, rank: int, workers: dict[str, Any]) -> Any:
    order = larder.torch.BatchSampler(ds, **job.options(rank))
    return DataLoader(larder.torch.Dataset(ds), batch_sampler=order, **workers)


def stateful_map(ds: larder.Dataset, job: Job, rank: int, workers: dict[str, Any]) -> Any:
    order = larder.torch.BatchSampler(ds, **job.options(rank))
    return StatefulDataLoader(larder.torch.Dataset(ds), batch_sampler=order, **workers)


def stacked(rows: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def map_of_numpy(ds: larder.Dataset, job: Job, rank: int, workers: dict[str, Any]) -> Any:
    """The dataset itself, which is map style too, and batches of numpy."""
    order = larder.torch.BatchSampler(ds, **job.options(rank))
    return DataLoader(ds, batch_sampler=order, collate_fn=stacked, **workers)


def stateful_map_of_numpy(ds: larder.Dataset, job: Job, rank: int, workers: dict[str, Any]) -> Any:
    order = larder.torch.BatchSampler(ds, **job.options(rank))
    return StatefulDataLoader(ds, batch_sampler=order, collate_fn=stacked, **workers)


def sampled_by_torch(ds: larder.Dataset, job: Job, rank: int, workers: dict[str, Any]) -> Any:
    """The dataset itself, by lists of indices."""
    order = larder.torch.BatchSampler(ds, **job.options(rank))
    return DataLoader(ds, batch_size=None, sampler=order, **workers)


KINDS: tuple[Make, ...] = (
    iterable,
    sampled_by_torch,
    iterable_of_samples,
    stateful_iterable,
    map_by_batches,
    map_collated,
    stateful_map,
    map_of_numpy,
    stateful_map_of_numpy,
)
NUMPY = (map_of_numpy, stateful_map_of_numpy)


def check(make: Make, job: Job, images: dict[str, np.ndarray], workers: dict[str, Any]) -> None:
    """All ranks' batches, one rank after the other."""
    ds = larder.open(job.uri, cluster=job.cluster)
    ranks = []
    for rank in range(job.world):
        batches = []
        for batch in make(ds, job, rank, workers):
            assert isinstance(batch["image"], np.ndarray if make in NUMPY else torch.Tensor)
            batches.append(check_bytes(batch, images))
        ranks.append(batches)
    job.check(ranks)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("make", KINDS)
def test_without_workers(make: Make, world: int, node: Node, images: Any) -> None:
    check(make, Job(node.address, world, last="uneven"), images, {})


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("make", KINDS)
def test_with_forked_workers(make: Make, count: int, world: int, node: Node, images: Any) -> None:
    workers = {"num_workers": count, "multiprocessing_context": "fork"}
    check(make, Job(node.address, world, last="uneven"), images, workers)


@pytest.mark.parametrize("world", WORLDS if FULL else [3])
@pytest.mark.parametrize("count", [2, 4] if FULL else [2])
@pytest.mark.parametrize("make", KINDS)
def test_with_workers_of_a_forkserver(
    make: Make, count: int, world: int, node: Node, images: Any
) -> None:
    workers = {"num_workers": count, "multiprocessing_context": "forkserver"}
    check(make, Job(node.address, world, last="uneven"), images, workers)


@pytest.mark.parametrize("world", WORLDS if FULL else [1])
@pytest.mark.parametrize("count", [2, 4] if FULL else [2])
@pytest.mark.parametrize("make", KINDS if FULL else [iterable, map_collated])
def test_with_spawned_workers(make: Make, count: int, world: int, node: Node, images: Any) -> None:
    workers = {"num_workers": count, "multiprocessing_context": "spawn"}
    check(make, Job(node.address, world, last="uneven"), images, workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_lists_of_a_batch_sampler_of_torch_are_read(workers: int, node: Node, images: Any) -> None:
    ds = larder.open("s3://data/images", cluster=node.address)
    order = BatchSampler(RandomSampler(ds), batch_size=32, drop_last=False)
    seen: list[int] = []
    for batch in DataLoader(ds, sampler=order, batch_size=None, num_workers=workers):
        seen.extend(check_bytes(batch, images))
    assert sorted(seen) == list(range(len(ds)))


def test_tensors_of_torch_are_indices_and_results(node: Node, images: Any) -> None:
    ds = larder.open("s3://data/images", cluster=node.address)
    indices = torch.tensor([5, -1, 5])
    for chosen in (indices, indices.to(torch.int16)):
        rows = ds.take(chosen)
        assert isinstance(rows["image"], torch.Tensor)
        assert check_bytes(rows, images) == [5, 299, 5]
    assert ds[torch.tensor([7])]["label"].tolist() == [7]
    assert int(ds[torch.tensor(7)]["label"]) == 7
    mask = torch.zeros(300, dtype=torch.bool)
    mask[[3, 9]] = True
    assert ds.take(mask)["label"].tolist() == [3, 9]
    out = {"image": torch.empty(2, 32, 32, 3, dtype=torch.uint8), "label": torch.empty(2).long()}
    ds.take([8, 4], out=out)
    assert check_bytes(out, images) == [8, 4]
    out["label"] = out["label"].to(torch.bfloat16)
    with pytest.raises(larder.InvalidArgument, match="is bfloat16 of shape"):
        ds.take([8, 4], out=out)


@pytest.mark.parametrize("shuffle", ["none", "window:2"])
@pytest.mark.parametrize("make", [iterable, map_by_batches])
def test_other_shuffles(make: Make, shuffle: str, node: Node, images: Any) -> None:
    job = Job(node.address, 2, shuffle=shuffle, batch_size=7)
    check(make, job, images, {"num_workers": 3, "multiprocessing_context": "fork"})


@pytest.mark.parametrize("world", WORLDS)
def test_loader_with_torch_output_follows_the_order(world: int, node: Node, images: Any) -> None:
    check(
        lambda ds, job, rank, _: ds.loader(**job.options(rank), output="torch"),
        Job(node.address, world, last="uneven"),
        images,
        {},
    )


def test_torch_sampler_over_the_map_style_dataset(node: Node, images: Any) -> None:
    data = larder.torch.Dataset(larder.open("s3://data/images", cluster=node.address))
    seen = []
    for rank in range(4):
        sampler = DistributedSampler(data, num_replicas=4, rank=rank, shuffle=True, drop_last=True)
        for batch in DataLoader(data, 25, sampler=sampler, num_workers=2):
            seen += check_bytes(batch, images)
    assert sorted(seen) == list(range(300))


def test_last_batches_are_equal_with_and_without_workers(node: Node) -> None:
    ds = larder.open("s3://data/images", cluster=node.address)
    for last, lengths in (("uneven", [64, 64, 22]), ("pad", [64, 64, 64]), ("drop", [64, 64])):
        data = larder.torch.IterableDataset(ds, 64, rank=1, world_size=2, last=last, seed=1)
        assert len(data) == len(lengths)
        alone = [batch.samples.tolist() for batch in DataLoader(data, None)]
        assert [len(samples) for samples in alone] == lengths
        batches = list(DataLoader(data, None, num_workers=4))
        assert [batch.samples.tolist() for batch in batches] == alone
        padded = [0, 0, 42] if last == "pad" else [0] * len(lengths)
        assert [batch.padding for batch in batches] == padded
        samples = larder.torch.IterableDataset(
            ds, 64, rank=1, world_size=2, last=last, seed=1, batched=False
        )
        assert len(samples) == sum(lengths)
        labels = [batch["label"].tolist() for batch in DataLoader(samples, 64, num_workers=2)]
        assert labels == alone


@pytest.mark.parametrize("persistent", [False, True])
def test_set_epoch_reaches_new_and_persistent_workers(persistent: bool, node: Node) -> None:
    job = Job(node.address, 1)
    data = larder.torch.IterableDataset(larder.open(job.uri, cluster=job.cluster), **job.options(0))
    loader = DataLoader(data, None, num_workers=2, persistent_workers=persistent)
    for epoch in (0, 1, 5, 5):
        data.set_epoch(epoch)
        batches = [batch["label"].tolist() for batch in loader]
        assert batches == job.batches(0, epoch)


def test_datasets_and_samplers_pickle_during_iteration(node: Node) -> None:
    job = Job(node.address, 1)
    ds = larder.open(job.uri, cluster=job.cluster)
    data = larder.torch.IterableDataset(ds, **job.options(0))
    order = larder.torch.BatchSampler(ds, **job.options(0))
    samples = larder.torch.Dataset(ds, tensors=["label"])
    next(iter(data)), next(iter(order))
    data, order, samples = pickle.loads(pickle.dumps((data, order, samples)))
    assert [batch["label"].tolist() for batch in data] == job.batches(0)
    assert list(order) == job.batches(0)
    assert list(samples[3]) == ["label"]
    assert repr(data).startswith("larder.torch.IterableDataset(<larder.Dataset 's3://data/images'")


def test_tensors_outlive_their_loader_and_dataset(node: Node, images: Any) -> None:
    loader = larder.open("s3://data/images", cluster=node.address).loader(
        50, shuffle="none", output="torch"
    )
    kept = [batch["image"] for batch in loader]
    del loader
    np.testing.assert_array_equal(torch.cat(kept).numpy(), images["image"])


def test_a_loader_inside_a_worker_is_refused(node: Node) -> None:
    with pytest.raises(larder.InvalidArgument, match=r"larder\.torch\.IterableDataset"):
        list(DataLoader(NaiveDataset(node.address), None, num_workers=2))


class NaiveDataset(torch.utils.data.IterableDataset):
    """A mistake: each worker would deliver everything."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster

    def __iter__(self) -> Any:
        return iter(larder.open("s3://data/images", cluster=self.cluster).loader(50))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("said", [{}, {"rank": 0, "world_size": 1}])
def test_loader_inherited_or_sent_to_workers_is_refused(
    said: dict[str, int], method: str, node: Node
) -> None:
    loader = larder.open("s3://data/images", cluster=node.address).loader(50, **said)
    workers = {"num_workers": 2, "multiprocessing_context": method}
    with pytest.raises(larder.InvalidArgument, match=r"made outside and iterated in DataLoader"):
        list(DataLoader(Inherited(loader), None, **workers))
    assert len(list(DataLoader(Inherited(loader), None))) == 6


class Inherited(torch.utils.data.IterableDataset):
    """Likewise, with a loader of the main process."""

    def __init__(self, loader: larder.Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Any:
        yield from self.loader


def test_batch_keeps_its_facts_when_frameworks_convert_it(node: Node) -> None:
    batch = next(iter(larder.open("s3://data/images", cluster=node.address).loader(10)))
    moved = batch.to(dtype=torch.float64)
    assert moved["image"].dtype == torch.float64
    assert batch["image"].dtype == torch.uint8
    convert = torch.utils.data.default_convert
    for other in (moved, convert(batch), pickle.loads(pickle.dumps(batch))):
        assert other.samples.tolist() == batch.samples.tolist()
        assert other.state_dict() == batch.state_dict()
    rebuilt = type(batch)(batch.items())
    assert list(rebuilt) == ["image", "label"]
    with pytest.raises(AttributeError, match="lost its padding"):
        _ = rebuilt.padding


Pair = namedtuple("Pair", ["left", "right"])


def unlike(batch: dict[str, Any]) -> dict[str, Any]:
    """Values of all kinds that a batch transform may return."""
    label = batch["label"]
    return {
        "label": label,
        "names": ["one", "two"],
        "count": 3,
        "nested": {"label": label, "name": "three"},
        "pair": Pair(label, "four"),
        "listed": [label, (label, None)],
    }


def test_batch_to_converts_only_its_tensors(node: Node) -> None:
    ds = larder.open("s3://data/images", cluster=node.address)
    batch = next(iter(ds.loader(10, output="torch", batch_transform=unlike)))
    moved = batch.to(torch.float64)
    assert (moved["names"], moved["count"]) == (["one", "two"], 3)
    assert (moved["nested"]["name"], moved["pair"].right) == ("three", "four")
    assert moved["listed"][1][1] is None
    tensors = (moved["label"], moved["nested"]["label"], moved["pair"].left)
    for tensor in (*tensors, moved["listed"][0], moved["listed"][1][0]):
        assert tensor.dtype == torch.float64
    assert batch["nested"]["label"].dtype == torch.int64
    arrays = next(iter(ds.loader(10, output="numpy")))
    assert arrays.to("cpu")["image"] is arrays["image"]
    texts = larder.open("s3://data/texts", cluster=node.address)
    rows = next(iter(texts.loader(10, output="numpy")))
    assert rows.to("cpu")["text"] is rows["text"]


def test_dataset_without_batches_warns_at_its_call_site(node: Node) -> None:
    ds = larder.open("s3://data/images", cluster=node.address)
    for kind in (larder.torch.IterableDataset, larder.torch.BatchSampler):
        with pytest.warns(UserWarning, match="300 samples do not fill a batch") as said:
            kind(ds, 301)
        assert said[0].filename == __file__


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_that_collates_batches_is_refused_with_the_remedy(node: Node, workers: int) -> None:
    ds = larder.open("s3://data/images", cluster=node.address)
    data = larder.torch.IterableDataset(ds, batch_size=50)
    with pytest.raises(larder.InvalidArgument) as raised:
        list(DataLoader(data, batch_size=50, num_workers=workers))
    assert "the DataLoader collates" in str(raised.value)
    assert "pass the DataLoader batch_size=None" in str(raised.value)
    with pytest.raises(larder.InvalidArgument) as raised:
        list(DataLoader(ds.loader(50), num_workers=workers))  # type: ignore[arg-type]
    assert "a larder.Loader has no item 0" in str(raised.value)
    assert "DataLoader(larder.torch.IterableDataset(ds, batch_size=50), batch_size=None" in str(
        raised.value
    )


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "persist": True}])
def test_epoch_that_is_iterated_again_is_told_once(
    node: Node, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    workers = {
        "persistent_workers" if name == "persist" else name: options[name] for name in options
    }
    ds = larder.open("s3://data/images", cluster=node.address)
    data = larder.torch.IterableDataset(ds, batch_size=50)
    sampler = larder.torch.BatchSampler(ds, batch_size=50)
    for one, loader in (
        (data, DataLoader(data, batch_size=None, **workers)),
        (
            sampler,
            DataLoader(larder.torch.Dataset(ds), batch_size=None, sampler=sampler, **workers),
        ),
    ):
        caplog.clear()
        for epoch in range(2):
            one.set_epoch(epoch)
            assert len(list(loader)) == 6
        assert caplog.messages == []
        for _ in range(3):
            assert len(list(loader)) == 6
        assert caplog.messages == [
            "epoch 1 is iterated again, in the same order: call set_epoch(epoch) before each epoch"
        ]
    validation = DataLoader(larder.torch.IterableDataset(ds, 50, shuffle="none"), None, **workers)
    caplog.clear()
    assert [len(list(validation)) for _ in range(2)] == [6, 6]
    assert caplog.messages == []
