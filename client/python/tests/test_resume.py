"""A job that ends after any batch continues in another process, at another world size and batch
size. No sample is lost or comes twice, and random numbers stay the same."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import larder
import transforms
from harness import Node
from order import check_bytes

#: Jobs of each kind: some in `make test`, all in `make test-full`.
SEEDS = 200 if "LARDER_TEST_FULL" in os.environ else 60
EVERYTHING = 1_000_000


def in_a_new_process(node: Node, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, Path(__file__).parent / "resume_part.py", node.address],
        input=json.dumps(parts),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    return json.loads(done.stdout)


def choice(seed: int, mixed: bool, transform: bool) -> dict[str, Any]:
    """A random job that stops after a random number of batches."""
    rng = random.Random(seed)
    world, batch_size = rng.choice([1, 2, 3, 4]), rng.randint(1, 40)
    return {
        "world_size": world,
        "batch_size": batch_size,
        "shuffle": rng.choice(["none", "window:1", "window:2", "global"]),
        "seed": seed,
        "last": "uneven",
        "state": None,
        "epoch": 0,
        "stop": rng.randint(0, 300 // (world * batch_size)),
        "mixed": mixed,
        "transform": transform,
        "workers": rng.choice([0, 2]) if transform else 0,
    }


def resumed(before: dict[str, Any], done: dict[str, Any]) -> dict[str, Any]:
    """The same job at random other sizes. It names another seed and shuffle: the state has them."""
    rng = random.Random(before["seed"] + SEEDS)
    return {
        **before,
        "world_size": rng.choice([1, 2, 3, 4]),
        "batch_size": rng.randint(1, 40),
        "shuffle": "none",
        "seed": 0,
        "last": rng.choice(["uneven", "pad"]),
        "state": done["state"],
        "stop": EVERYTHING,
    }


def undisturbed(before: dict[str, Any], epoch: int) -> dict[str, Any]:
    """The same job without a break, on one rank."""
    return {**before, "world_size": 1, "batch_size": 60, "epoch": epoch, "stop": EVERYTHING}


@pytest.mark.parametrize(
    ("mixed", "transform"), [(False, False), (False, True), (True, False), (True, True)]
)
def test_resume_at_another_world_size_loses_no_sample(
    node: Node, mixed: bool, transform: bool
) -> None:
    before = [choice(seed, mixed, transform) for seed in range(SEEDS)]
    first = in_a_new_process(node, before)
    second = in_a_new_process(node, [resumed(*pair) for pair in zip(before, first, strict=True)])
    whole = in_a_new_process(
        node, [undisturbed(b, s["epoch"]) for b, s in zip(before, second, strict=True)]
    )
    middles = 0
    for seed, (one, two, all_) in enumerate(zip(first, second, whole, strict=True)):
        assert len(all_["delivered"]) == (400 if mixed else 300)
        delivered = two["delivered"]
        if two["epoch"] == 0:
            delivered = one["delivered"] + delivered
            middles += bool(one["delivered"])
        else:
            # It ended at the end of an epoch, and continued in the next.
            assert len(one["delivered"]) == len(all_["delivered"]), seed
        assert sorted(delivered) == sorted(all_["delivered"]), seed
    assert middles > SEEDS // 2, "most resumes are in mid-epoch"


OPTIONS: dict[str, Any] = {"shuffle": "global", "seed": 3, "last": "uneven", "output": "numpy"}
IN_THREADS = {"transform": transforms.noise, "workers": 2}


def rows(batches: Any) -> list[tuple[int, ...]]:
    """Sample and random numbers of each row."""
    return [
        (int(label), *batch.get("noise", np.empty((len(batch.samples), 0)))[row].tolist())
        for batch in batches
        for row, label in enumerate(batch["label"])
    ]


@pytest.mark.parametrize("transformed", [{}, IN_THREADS])
@pytest.mark.parametrize("mixed", [False, True])
def test_pickled_loader_continues_at_its_position(
    mixed: bool, transformed: dict[str, Any], node: Node
) -> None:
    dataset = larder.open("s3://data/images", cluster=node.address)
    parts = dataset.split(0.5)
    loads = larder.mix({part: 1.0 for part in parts}) if mixed else dataset
    loader = loads.loader(16, rank=0, world_size=1, **OPTIONS, **transformed)
    unused = pickle.dumps(loader)
    batches = iter(loader)
    begun = [next(batches) for _ in range(4)]
    middle = pickle.dumps(loader)
    epochs = [[*rows(begun), *rows(batches)], rows(loader)]
    end = pickle.dumps(loader)
    loader.set_epoch(7)
    epochs.append(rows(loader))

    assert rows(pickle.loads(unused)) == epochs[0]
    copy = pickle.loads(middle)
    assert len(copy) == len(loader)
    assert rows(begun) + rows(copy) == epochs[0]
    assert rows(copy) == epochs[1]
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert rows(begun) + pool.submit(rows, pickle.loads(middle)).result() == epochs[0]
    last = pickle.loads(end)
    last.set_epoch(7)
    assert rows(last) == epochs[2]


def test_a_pickled_loader_keeps_all_its_settings(
    node: Node, images: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = larder.open("s3://data/images", cluster=node.address).select(range(100, 250))
    ranks = [dataset.loader(16, rank=rank, world_size=2, **OPTIONS) for rank in range(2)]
    copies = [pickle.loads(pickle.dumps(loader)) for loader in ranks]
    seen = [label for loader in copies for batch in loader for label in check_bytes(batch, images)]
    assert sorted(seen) == list(range(100, 250))
    (label,) = next(iter(pickle.loads(pickle.dumps(dataset.loader(10, tensors=["label"])))))
    assert label == "label"
    found = pickle.dumps(dataset.loader(16))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(larder.InvalidArgument, match="has changed since the loader was made"):
        next(iter(pickle.loads(found)))
