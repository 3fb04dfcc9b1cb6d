"""A node that fills itself from Parquet, beside pyarrow reading the same columns.

    python -m formats.fill larder|pyarrow FOLDER

prints the CPU seconds. Both read from the page cache and use one thread for each core. Larder's
are those of its node alone, which also hashes the rows and writes them to memory that it shares.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

import usage

#: Files of a dataset.
FILES = 8

#: Words of a text.
WORDS = 60

#: Seconds in which the node must hold all rows.
FILL_SECONDS = 120

#: A node that does nothing for so long has filled its shards.
QUIET_SECONDS = 0.5


def write(folder: Path, rows: int, codec: str) -> None:
    """Writes numbers, lists of numbers and texts, with the defaults of pyarrow but the codec."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    rng = np.random.default_rng(9)
    words = np.array(["".join(map(chr, rng.integers(97, 123, length))) for length in
                      rng.integers(2, 11, 4096)])  # fmt: skip
    count = rows // FILES
    for number in range(FILES):
        vectors = rng.standard_normal(count * 32, np.float32)
        # Frequent words are frequent, as in a language.
        drawn = words[np.minimum(rng.zipf(1.3, count * WORDS), len(words)) - 1]
        table = {
            "id": np.arange(number * count, (number + 1) * count),
            "label": rng.integers(0, 1000, count),
            "score": rng.standard_normal(count),
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 32),
            "text": [" ".join(row) for row in drawn.reshape(count, WORDS).tolist()],
        }
        pq.write_table(pa.table(table), folder / f"{number}.parquet", compression=codec)


def _larder(folder: Path) -> float:
    import larder

    dataset = larder.open(f"file://{folder}")
    started = dataset._native.started_node
    assert started is not None, "the node is not ours"
    node = [started[0]]
    before = usage.cpu_seconds(node)
    # A row of each file: a shard is a row group here, and a node fills whole shards.
    dataset.take(np.arange(0, len(dataset), len(dataset) // FILES), output="numpy")
    used, deadline = usage.cpu_seconds(node), time.monotonic() + FILL_SECONDS
    while time.monotonic() < deadline:
        time.sleep(QUIET_SECONDS)
        if (now := usage.cpu_seconds(node)) - used < QUIET_SECONDS / 100:
            return now - before
        used = now
    raise AssertionError("the node is still busy")


def _pyarrow(folder: Path) -> float:
    import pyarrow as pa
    import pyarrow.dataset  # noqa: F401  (read_table imports it at its first call)
    import pyarrow.parquet as pq

    pa.set_cpu_count(os.cpu_count() or 1)
    before = time.process_time()
    for path in sorted(folder.glob("*.parquet")):
        pq.read_table(path)
    return time.process_time() - before


if __name__ == "__main__":
    print({"larder": _larder, "pyarrow": _pyarrow}[sys.argv[1]](Path(sys.argv[2])))
