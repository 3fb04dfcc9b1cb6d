"""A job that is broken off after any batch goes on in another process, at another world size and
batch size: nothing is lost, nothing comes twice."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness import Node

SEEDS = 200
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


def choice(seed: int) -> dict[str, Any]:
    """A job at random; as many batches as it may or may not have."""
    rng = random.Random(seed)
    world, batch_size = rng.choice([1, 2, 3, 4]), rng.randint(1, 40)
    return {
        "world_size": world,
        "batch_size": batch_size,
        "shuffle": rng.choice(["none", "window:1", "window:2", "global"]),
        "seed": seed,
        "last": "uneven",
        "state": None,
        "stop": rng.randint(0, 300 // (world * batch_size)),
    }


def resumed(before: dict[str, Any], done: dict[str, Any]) -> dict[str, Any]:
    """The same job at random other sizes. Seed and shuffle are in the state: others are said."""
    rng = random.Random(before["seed"] + SEEDS)
    return {
        "world_size": rng.choice([1, 2, 3, 4]),
        "batch_size": rng.randint(1, 40),
        "shuffle": "none",
        "seed": 0,
        "last": rng.choice(["uneven", "pad"]),
        "state": done["state"],
        "stop": EVERYTHING,
    }


def test_a_resume_at_another_world_size_loses_and_repeats_nothing(node: Node) -> None:
    before = [choice(seed) for seed in range(SEEDS)]
    first = in_a_new_process(node, before)
    second = in_a_new_process(node, [resumed(*pair) for pair in zip(before, first, strict=True)])
    middles = 0
    for seed, (one, two) in enumerate(zip(first, second, strict=True)):
        if two["epoch"] == 0:
            delivered = one["delivered"] + two["delivered"]
            middles += bool(one["delivered"])
        else:
            # It was broken off at the end of an epoch, and resumed into the next.
            assert sorted(one["delivered"]) == list(range(300)), seed
            delivered = two["delivered"]
        assert sorted(delivered) == list(range(300)), seed
    assert middles > SEEDS // 2, "most resumes are in mid-epoch"
