"""The expected batches of each rank, from the order of the Rust client.

Tests compare every way to iterate with it, for each number of ranks in `WORLDS`, number of workers
and start method. `make test` has most combinations, `make test-full` has all:

    way                        arrays         workers                      file
    own loader                 numpy, jax     0; 2, 4 threads              test_loader_order
      its ranks as processes   numpy, jax     fork, spawn, forkserver      test_loader_order
      by torch                 torch          0                            test_data_loaders
      with transforms          torch          2 threads                    test_torch_transforms
    map style                  numpy, jax     0; 2, 4 of each start        test_map_style
      DataLoader, stateful     torch, numpy   0; 2, 4 of each start        test_data_loaders
    iterable, stateful         torch          0; 2, 4 of each start        test_data_loaders
      of a mixture             torch          0; 2, 4 of each start        test_mixtures
    Grain                      numpy          0; 2, 4 as Grain starts them test_grain

Other combinations make no sense. JAX's runtime does not survive a fork, so forked processes read
numpy's arrays. Iterable datasets and StatefulDataLoader are torch's and have only torch's arrays.
Grain has its own order, sharding and worker processes, so only its unshuffled order equals the Rust
client's. It hands out numpy's arrays, and turns them into JAX's without our code. Without workers
there is no start method.

Jobs have `last="uneven"`: all ranks together have each sample exactly once. States, and our own
loader with `"window:2"`, are also compared with `"drop"`.
"""

from __future__ import annotations

import functools
import json
import subprocess
from typing import NamedTuple

import numpy as np

from harness import BINARIES

#: How many ranks a job has.
WORLDS = (1, 2, 4, 3)
#: Samples of the dataset.
SAMPLES = 300


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
    last: str = "drop"
    uri: str = "s3://data/images"

    def order(self, epoch: int = 0) -> list[int]:
        return rust_order(self.uri, self.cluster, self.shuffle, self.seed, epoch)

    def batches(self, rank: int, epoch: int = 0) -> list[list[int]]:
        """The batches of a rank: the ranks walk the order together.

        Samples that do not fill a batch of each rank are dropped, or divided among the ranks as
        evenly as possible, the longer parts first.
        """
        order, size = self.order(epoch), self.batch_size
        left = len(order) % (size * self.world)
        starts = range(rank * size, len(order) - left, size * self.world)
        batches = [order[start : start + size] for start in starts]
        if self.last == "uneven":
            each, longer = divmod(left, self.world)
            start = len(order) - left + rank * each + min(rank, longer)
            rest = order[start : start + each + (rank < longer)]
            batches += [rest] if rest else []
        return batches

    def check(self, ranks: list[list[list[int]]], epoch: int = 0) -> None:
        """Compares the batches of all ranks with the order. Fails if a sample is missing."""
        assert ranks == [self.batches(rank, epoch) for rank in range(self.world)]
        seen = sorted(sample for batches in ranks for batch in batches for sample in batch)
        if self.last == "uneven":
            assert seen == list(range(SAMPLES))
        else:
            assert len(set(seen)) == len(seen) == SAMPLES - SAMPLES % (self.world * self.batch_size)

    def options(self, rank: int) -> dict[str, object]:
        return {
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "last": self.last,
            "rank": rank,
            "world_size": self.world,
        }


def check_bytes(batch: dict[str, object], images: dict[str, np.ndarray]) -> list[int]:
    """Compares every byte of a batch with the data as written; returns its labels as samples."""
    labels = np.asarray(batch["label"]).tolist()
    np.testing.assert_array_equal(np.asarray(batch["image"]), images["image"][labels])
    return labels
