"""What the batches of each rank must be, from the order that the Rust client hands out."""

from __future__ import annotations

import functools
import json
import subprocess
from typing import NamedTuple

import numpy as np

from harness import BINARIES


@functools.cache
def rust_order(uri: str, cluster: str, shuffle: str, seed: int, epoch: int) -> list[int]:
    """The samples of an epoch in order, by the Rust client in a process of its own."""
    command = [BINARIES / "larder-test-order", uri, cluster, shuffle, str(seed), str(epoch)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return json.loads(done.stdout)


class Job(NamedTuple):
    """A job over a dataset, as the tests run it."""

    cluster: str
    world: int
    batch_size: int = 16
    shuffle: str = "global"
    seed: int = 5
    uri: str = "s3://data/images"

    def order(self, epoch: int = 0) -> list[int]:
        return rust_order(self.uri, self.cluster, self.shuffle, self.seed, epoch)

    def batches(self, rank: int, epoch: int = 0) -> list[list[int]]:
        """The batches of a rank: the ranks walk the order together; the tail is dropped."""
        order, size = self.order(epoch), self.batch_size
        starts = range(
            rank * size, len(order) - len(order) % (size * self.world), size * self.world
        )
        return [order[start : start + size] for start in starts]

    def options(self, rank: int) -> dict[str, object]:
        return {
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "rank": rank,
            "world_size": self.world,
        }


def check_bytes(batch: dict[str, object], images: dict[str, np.ndarray]) -> list[int]:
    """Holds every byte of a batch against what was written; returns its samples by their labels."""
    labels = np.asarray(batch["label"]).tolist()
    np.testing.assert_array_equal(np.asarray(batch["image"]), images["image"][labels])
    return labels
