"""A training job that compares every row it gets, epoch by epoch, until a file appears.

Arguments: the address of the cluster, its seed, the least number of epochs, and the file.
"""

from __future__ import annotations

import sys
import time
from itertools import count
from pathlib import Path

import numpy as np
import numpy.typing as npt

import larder

SAMPLES = 640
ROW_BYTES = 65_536
URI = "s3://data/planned"


def rows(samples: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """The rows of these samples."""
    place = np.arange(ROW_BYTES, dtype=np.int64)
    return ((samples[:, None] * 7919 + place * 31) % 251).astype(np.uint8)


def main() -> None:
    cluster, seed, epochs, end = sys.argv[1:]
    ds = larder.open(URI, cluster=cluster)
    loader = ds.loader(8, seed=int(seed), shuffle="window:4", job=f"job-{seed}")
    for epoch in count():
        loader.set_epoch(epoch)
        seen: list[int] = []
        for batch in loader:
            np.testing.assert_array_equal(batch["row"], rows(batch.samples))
            seen.extend(batch.samples.tolist())
            time.sleep(0.02)
        assert sorted(seen) == list(range(SAMPLES)), "an epoch had not every sample once"
        print(epoch, flush=True)
        if epoch + 1 >= int(epochs) and Path(end).exists():
            return


if __name__ == "__main__":
    main()
