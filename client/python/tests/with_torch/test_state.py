"""Saving and loading: torchdata's StatefulDataLoader by itself, and a batch's state for everything
else, at other numbers of ranks and workers."""

from __future__ import annotations

import copy
import json
import pickle
import random
import signal
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import larder
import larder.torch
from harness import Node
from order import Job
from test_data_loaders import iterable, iterable_of_samples, map_by_batches, map_collated

MAKE = {
    "batches": iterable,
    "samples": iterable_of_samples,
    "map": map_by_batches,
    "collated map": map_collated,
}


@pytest.mark.parametrize("wrong", [{}, "x", None, {"larder": {}}, {"larder": "x"}])
def test_malformed_state_is_refused(node: Node, wrong: object) -> None:
    ds = larder.open("s3://data/images", cluster=node.address)
    for kind in (larder.torch.IterableDataset, larder.torch.BatchSampler):
        with pytest.raises(larder.InvalidArgument, match="is no state of a loader") as raised:
            kind(ds, 32).load_state_dict(wrong)
        assert raised.value.hint == "pass what state_dict() returned"


def test_incomplete_worker_state_is_refused(node: Node) -> None:
    data = larder.torch.IterableDataset(larder.open("s3://data/images", cluster=node.address), 32)
    next(iter(data))
    state = data.state_dict()
    data.load_state_dict(state)
    with pytest.raises(larder.InvalidArgument, match="is no state of a loader"):
        data.load_state_dict({**state, "place": state["place"][:-1]})


@pytest.fixture
def stateful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the loaders of test_data_loaders StatefulDataLoaders."""
    monkeypatch.setattr("test_data_loaders.DataLoader", StatefulDataLoader)


def labels(batches: Any) -> list[list[int]]:
    return [batch["label"].tolist() for batch in batches]


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("workers", [0, 2, 4])
@pytest.mark.parametrize("kind", MAKE)
def test_stateful_data_loader_resumes_at_its_position(
    kind: str, workers: int, every: int, node: Node, stateful: None
) -> None:
    job = Job(node.address, 2, batch_size=13)
    ds = larder.open(job.uri, cluster=job.cluster)
    expected = job.batches(1)
    options = {"num_workers": workers, "snapshot_every_n_steps": every}
    for stop in (0, 1, 3, 6, 10):
        loader = MAKE[kind](ds, job, 1, options)
        iteration = iter(loader)
        first = [next(iteration)["label"].tolist() for _ in range(stop)]
        saved = pickle.dumps(loader.state_dict())
        del iteration, loader
        loader = MAKE[kind](ds, job, 1, options)
        loader.load_state_dict(pickle.loads(saved))
        assert first + labels(loader) == expected, stop


@pytest.mark.parametrize("workers", [0, 2])
def test_resumed_loader_continues_with_the_next_epoch(
    workers: int, node: Node, stateful: None
) -> None:
    job = Job(node.address, 1, batch_size=30)
    ds = larder.open(job.uri, cluster=job.cluster)
    loader = iterable(ds, job, 0, {"num_workers": workers})
    loader.dataset.set_epoch(3)
    iteration = iter(loader)
    first = [next(iteration)["label"].tolist() for _ in range(4)]
    saved = loader.state_dict()
    del iteration, loader
    loader = iterable(ds, job, 0, {"num_workers": workers})
    loader.load_state_dict(saved)
    for epoch in (3, 4, 5):
        loader.dataset.set_epoch(epoch)
        rest = labels(loader)
        assert (first + rest if epoch == 3 else rest) == job.batches(0, epoch)


def test_batch_state_resumes_at_any_count_of_ranks_and_workers(node: Node) -> None:
    for seed in range(25):
        rng = random.Random(seed)
        before = Job(node.address, rng.choice([1, 2, 3]), rng.randint(5, 20), seed=seed)
        world, batch_size = rng.choice([1, 2, 4]), rng.randint(5, 20)
        after = Job(node.address, world, batch_size, seed=seed, last="uneven")
        ds = larder.open(before.uri, cluster=before.cluster)
        stop = rng.randint(1, 4)
        delivered, states = [], []
        for rank in range(before.world):
            data = larder.torch.IterableDataset(ds, **before.options(rank))
            data.set_epoch(2)
            for number, batch in enumerate(
                DataLoader(data, None, num_workers=rng.randint(0, 4)), start=1
            ):
                delivered += batch.samples.tolist()
                if number == stop:
                    states.append(json.loads(json.dumps(batch.state_dict())))
                    break
        assert all(state == states[0] for state in states)
        for rank in range(after.world):
            data = larder.torch.IterableDataset(ds, **after.options(rank))
            data.load_state_dict(states[0])
            assert data.epoch == 2
            for batch in DataLoader(data, None, num_workers=rng.randint(0, 4)):
                delivered += batch.samples.tolist()
        assert sorted(delivered) == list(range(300)), seed


def test_loaders_samplers_and_datasets_exchange_states(node: Node) -> None:
    job = Job(node.address, 1)
    ds = larder.open(job.uri, cluster=job.cluster)
    loader = ds.loader(**job.options(0))
    next(iter(loader))
    state = loader.state_dict()
    # Seed and shuffle come from the state, not from the arguments.
    other = {**job.options(0), "seed": 99, "shuffle": "none"}
    order = larder.torch.BatchSampler(ds, **other)
    data = larder.torch.IterableDataset(ds, **other)
    again = ds.loader(**other)
    for reader in (order, data, again):
        reader.load_state_dict(state)
    rest = job.batches(0)[1:]
    assert list(order) == labels(data) == labels(again) == rest
    order.set_epoch(1), data.set_epoch(1)
    assert list(order) == labels(data) == labels(again) == job.batches(0, 1)
    assert order.state_dict() == again.state_dict()


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("every", [1, 3, 100])
@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("kind", MAKE)
def test_state_saved_at_the_last_batch_repeats_no_epoch(
    kind: str, workers: int, every: int, persistent: bool, node: Node, stateful: None
) -> None:
    job = Job(node.address, 1, batch_size=30)
    ds = larder.open(job.uri, cluster=job.cluster)
    options = {"num_workers": workers, "snapshot_every_n_steps": every}
    options["persistent_workers"] = persistent and workers > 0
    for in_the_loop in (True, False):
        loader = MAKE[kind](ds, job, 0, options)
        told(loader).set_epoch(3)
        iteration = iter(loader)
        for _ in range(10):
            next(iteration)
        if not in_the_loop:
            assert next(iteration, None) is None
        saved = pickle.dumps(loader.state_dict())
        del iteration, loader
        loader = MAKE[kind](ds, job, 0, options)
        loader.load_state_dict(pickle.loads(saved))
        if in_the_loop:
            told(loader).set_epoch(3)
            assert labels(loader) == []
        for epoch in (4, 5):
            told(loader).set_epoch(epoch)
            assert labels(loader) == job.batches(0, epoch), in_the_loop


@pytest.mark.parametrize("batched", [True, False])
def test_dataset_state_at_the_last_batch_repeats_no_epoch(batched: bool, node: Node) -> None:
    job = Job(node.address, 1, batch_size=30)
    ds = larder.open(job.uri, cluster=job.cluster)
    saved: list[Any] = []

    def loaded(*states: Any) -> tuple[larder.torch.IterableDataset, DataLoader]:
        data = larder.torch.IterableDataset(ds, **job.options(0), batched=batched)
        for state in states:
            data.load_state_dict(json.loads(json.dumps(state)))
        return data, DataLoader(data, None if batched else 30)

    data, loader = loaded()
    data.set_epoch(3)
    iteration = iter(loader)
    for _ in range(10):
        next(iteration)
    in_the_loop = data.state_dict()
    assert next(iteration, None) is None
    saved.append(data.state_dict())
    data, loader = loaded(in_the_loop)
    assert data.epoch == 3
    data.set_epoch(3)
    assert labels(loader) == []
    assert data.epoch == 4
    saved.append(data.state_dict())
    assert labels(loader) == job.batches(0, 4)
    for state in saved:
        data, loader = loaded(state)
        for epoch in (4, 5):
            data.set_epoch(epoch)
            assert labels(loader) == job.batches(0, epoch)
    # set_epoch() of the next epoch says that the state's own has ended.
    data, loader = loaded(in_the_loop)
    data.set_epoch(4)
    assert labels(loader) == job.batches(0, 4)


@pytest.mark.parametrize("kind", [larder.torch.BatchSampler, larder.torch.IterableDataset])
def test_rank_without_a_last_batch_ends_in_equal_state(kind: Any, node: Node) -> None:
    ds = larder.open("s3://data/images", cluster=node.address)

    def reader(rank: int, samples: int, state: Any = None) -> Any:
        part = ds.select(range(samples))
        made = kind(part, 3, rank=rank, world_size=2, last="uneven")
        if state is not None:
            made.load_state_dict(state)
        return made

    first = reader(0, 13)
    assert len(list(first)) == 3
    second = reader(1, 13)
    iteration = iter(second)
    next(iteration), next(iteration)
    at_the_last = second.state_dict()
    assert next(iteration, None) is None
    assert second.state_dict() == first.state_dict()
    again = reader(1, 13, at_the_last)
    again.set_epoch(0)
    assert len(list(again)) == 0
    assert again.state_dict() == first.state_dict()
    again.set_epoch(1)
    assert len(list(again)) == 2
    # A rank without any batch does so too.
    first, second = reader(0, 1), reader(1, 1)
    assert (len(list(first)), len(list(second))) == (1, 0)
    assert second.state_dict() == first.state_dict()


def test_batch_that_fails_to_build_does_not_count(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(node.address, 1, batch_size=30)
    ds = larder.open(job.uri, cluster=job.cluster)
    data = larder.torch.IterableDataset(ds, **job.options(0))
    iteration = iter(data)
    state = next(iteration).state_dict()["larder"]
    with monkeypatch.context() as patch:
        patch.setattr(larder.Batch, "of", lambda *_: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            next(iteration)
    assert data.state_dict()["larder"] == state
    data.load_state_dict(data.state_dict())
    assert labels(data) == job.batches(0)[1:]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_failed_epoch_start_keeps_the_loaded_state(
    workers: int, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(node.address, 1, batch_size=30)
    ds = larder.open(job.uri, cluster=job.cluster)
    saved = next(iter(ds.loader(**job.options(0)))).state_dict()
    data = larder.torch.IterableDataset(ds, **job.options(0))
    data.load_state_dict(saved)
    make = type(data._plan).native

    def make_but_the_last(plan: Any, worker: int, workers: int) -> Any:
        if worker + 1 == workers:
            raise MemoryError("all of it is taken")
        return make(plan, worker, workers)

    def iterated() -> Any:
        return DataLoader(data, None, num_workers=workers)

    with monkeypatch.context() as patch:
        patch.setattr(type(data._plan), "native", make_but_the_last)
        with pytest.raises(MemoryError):
            labels(iterated())
    if workers > 1:
        # A worker has begun, and the rest of the epoch can't be divided anew.
        with pytest.raises(larder.InvalidArgument, match="load the state again"):
            labels(iterated())
        data.load_state_dict(saved)
    assert labels(iterated()) == job.batches(0)[1:]
    assert labels(iterated()) == job.batches(0)


def test_state_refused_by_workers_stays_loaded(node: Node) -> None:
    ds = larder.open("s3://data/images", cluster=node.address)
    data = larder.torch.IterableDataset(ds, 30, shuffle="none", batched=False)
    samples = iter(data)
    assert [next(samples)["label"].item() for _ in range(7)] == list(range(7))
    data.load_state_dict(data.state_dict())
    with pytest.raises(larder.InvalidArgument, match="saved by one of 1 workers"):
        labels(DataLoader(data, 1, num_workers=2))
    assert labels(DataLoader(data, 1, num_workers=1))[0] == [7]


def test_state_of_one_worker_applies_to_that_worker(node: Node) -> None:
    ds = larder.open("s3://data/images", cluster=node.address)
    data = larder.torch.IterableDataset(ds, 30)
    state = next(iter(data)).state_dict()
    with pytest.raises(larder.InvalidArgument, match="saved by one of 2 workers"):
        data.load_state_dict({**state, "place": [1, 2, 0, False, 30, 1]})


COPIES = {
    "deep": copy.deepcopy,
    "pickled": lambda data: pickle.loads(pickle.dumps(data)),
    "shallow": copy.copy,
}


@pytest.mark.parametrize("how", COPIES)
def test_copied_dataset_passes_its_state_to_workers(how: str, node: Node) -> None:
    job = Job(node.address, 1, batch_size=30)
    ds = larder.open(job.uri, cluster=job.cluster)
    saved = next(iter(ds.loader(**job.options(0)))).state_dict()
    data = COPIES[how](larder.torch.IterableDataset(ds, **job.options(0)))
    loader = DataLoader(data, None, num_workers=2, multiprocessing_context="fork")
    assert labels(loader) == job.batches(0)
    data.load_state_dict(saved)
    assert labels(loader) == job.batches(0)[1:]
    assert labels(loader) == job.batches(0)
    data.set_epoch(2)
    assert labels(loader) == job.batches(0, 2)


@pytest.mark.parametrize("context", ["fork", "forkserver"])
def test_a_state_loaded_after_workers_started_is_refused(context: str, node: Node) -> None:
    job = Job(node.address, 1, batch_size=30)
    ds = larder.open(job.uri, cluster=job.cluster)
    saved = next(iter(ds.loader(**job.options(0)))).state_dict()
    data = larder.torch.IterableDataset(ds, **job.options(0))
    workers = {"num_workers": 2, "multiprocessing_context": context, "persistent_workers": True}
    loader = DataLoader(data, None, **workers)
    assert labels(loader) == job.batches(0)
    data.load_state_dict(saved)
    for _ in range(2):
        with pytest.raises(larder.InvalidArgument, match="make a new DataLoader"):
            labels(loader)
    loader = DataLoader(data, None, **workers)
    assert labels(loader) == job.batches(0)[1:]
    for epoch in (0, 1):
        data.set_epoch(epoch)
        assert labels(loader) == job.batches(0, epoch)


def test_state_loaded_during_iteration_applies_to_the_next(node: Node) -> None:
    job = Job(node.address, 1, batch_size=30)
    ds = larder.open(job.uri, cluster=job.cluster)
    data = larder.torch.IterableDataset(ds, **job.options(0))
    loader = DataLoader(data, None, num_workers=2)
    iteration = iter(loader)
    # Of both workers, so that both have begun.
    first = [next(iteration) for _ in range(2)]
    data.load_state_dict(first[0].state_dict())
    assert labels(first) + labels(iteration) == job.batches(0)
    assert labels(loader) == job.batches(0)[1:]
    assert labels(loader) == job.batches(0)


def told(loader: Any) -> Any:
    """The object that set_epoch() is for."""
    made = (loader.dataset, loader.sampler, loader.batch_sampler)
    return next(one for one in made if hasattr(one, "set_epoch"))


def test_batch_sampler_state_after_its_last_batch(node: Node) -> None:
    job = Job(node.address, 1, batch_size=30)
    ds = larder.open(job.uri, cluster=job.cluster)
    order = larder.torch.BatchSampler(ds, **job.options(0))
    named = iter(order)
    for _ in range(10):
        next(named)
    saved = order.state_dict()
    assert next(named, None) is None
    assert order.state_dict() == {"larder": saved["larder"]}
    for epoch, batches in ((0, []), (1, job.batches(0, 1))):
        order = larder.torch.BatchSampler(ds, **job.options(0))
        order.load_state_dict(saved)
        order.set_epoch(epoch)
        assert list(order) == batches
        order.set_epoch(1)
        assert list(order) == job.batches(0, 1)
    with pytest.raises(larder.InvalidArgument, match="is no state of a loader"):
        order.load_state_dict({**saved, "ended": "yes"})


@pytest.mark.parametrize("workers", [0, 2])
def test_batch_sampler_resumes_in_a_plain_data_loader(workers: int, node: Node) -> None:
    job = Job(node.address, 1, batch_size=30)
    ds = larder.open(job.uri, cluster=job.cluster)
    order = larder.torch.BatchSampler(ds, **job.options(0))
    named = iter(order)
    for _ in range(4):
        next(named)
    saved = order.state_dict()
    assert len(list(order)) == 10
    order.load_state_dict(saved)
    assert order.state_dict() == saved
    loader = DataLoader(larder.torch.Dataset(ds), None, sampler=order, num_workers=workers)
    assert labels(loader) == job.batches(0)[4:]
    assert labels(loader) == job.batches(0)


def test_worker_state_of_other_settings_is_refused_with_hint(node: Node, stateful: None) -> None:
    job = Job(node.address, 2, batch_size=13)
    ds = larder.open(job.uri, cluster=job.cluster)
    loader = iterable(ds, job, 0, {"num_workers": 2})
    iteration = iter(loader)
    next(iteration)
    saved = loader.state_dict()
    del iteration
    loader = iterable(ds, job._replace(batch_size=7), 0, {"num_workers": 2})
    loader.load_state_dict(saved)
    with pytest.raises(larder.InvalidArgument, match=r"batch_size 13 on 2 ranks(?s:.)*state_dict"):
        next(iter(loader))


@pytest.mark.parametrize("context", ["fork", "forkserver"])
def test_state_loaded_by_main_process_applies_once(context: str, node: Node) -> None:
    job = Job(node.address, 1, batch_size=30)
    ds = larder.open(job.uri, cluster=job.cluster)
    batches = list(ds.loader(**job.options(0)))
    # Seed and shuffle come from the state.
    data = larder.torch.IterableDataset(ds, **{**job.options(0), "seed": 99, "shuffle": "none"})
    workers = {"num_workers": 2, "multiprocessing_context": context}
    loader = DataLoader(data, None, **workers)
    assert labels(loader)[0] == list(range(30))
    for stop in (3, 8):
        data.load_state_dict(batches[stop].state_dict())
        assert labels(loader) == job.batches(0)[stop + 1 :]
        for _ in range(2):
            assert labels(loader) == job.batches(0)
    data.load_state_dict(batches[3].state_dict())
    data.set_epoch(0)
    with pytest.warns(UserWarning, match=r"stands in epoch 0, and set_epoch\(2\) forgets it"):
        data.set_epoch(2)
    assert labels(loader) == job.batches(0, 2)


def test_state_applies_once_if_workers_have_equal_seeds(node: Node) -> None:
    job = Job(node.address, 1, batch_size=30)
    ds = larder.open(job.uri, cluster=job.cluster)
    data = larder.torch.IterableDataset(ds, **job.options(0))
    data.load_state_dict(next(iter(data)).state_dict())
    for begin in (1, 0):
        seeded = torch.Generator().manual_seed(1)
        loader = DataLoader(data, None, num_workers=2, generator=seeded)
        assert labels(loader) == job.batches(0)[begin:]


def test_state_known_only_to_workers_is_an_error(node: Node) -> None:
    job = Job(node.address, 1)
    data = larder.torch.IterableDataset(larder.open(job.uri, cluster=job.cluster))
    next(iter(DataLoader(data, None, num_workers=1)))
    with pytest.raises(larder.InvalidArgument, match="StatefulDataLoader"):
        data.state_dict()
