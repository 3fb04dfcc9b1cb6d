"""`to_arrow()` of a batch in memory: its CPU time, and that pyarrow sees the same addresses."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import numpy as np

import larder

from report import Report

#: Rows of the batch.
ROWS = 256

#: Calls of a round.
CALLS = 2000


def measure(report: Report, folder: Path, rounds: int) -> None:
    """Numbers, lists of numbers and texts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(3)
    vectors = pa.FixedSizeListArray.from_arrays(rng.standard_normal(ROWS * 32, np.float32), 32)
    texts = ["word " * int(words) for words in rng.integers(20, 100, ROWS)]
    table = {"id": np.arange(ROWS), "score": rng.standard_normal(ROWS)}
    folder.mkdir()
    pq.write_table(pa.table({**table, "vector": vectors, "text": texts}), folder / "0.parquet")
    larder.index(f"file://{folder}")
    batch = larder.open(f"file://{folder}").take(np.arange(ROWS), output="numpy")
    _check(batch)
    times = [_microseconds(batch) for _ in range(rounds)]
    report.note("to_arrow", rows=ROWS, columns=len(batch), us=round(median(times), 1), goal_us=20)


def _check(batch: larder.Samples) -> None:
    """Compares the addresses of all values."""
    import pyarrow as pa

    exported, text = pa.record_batch(batch.to_arrow()), batch["text"]
    for seen, array in (
        (exported["id"].buffers()[1], batch["id"]),
        (exported["score"].buffers()[1], batch["score"]),
        (exported["vector"].flatten().buffers()[1], batch["vector"]),
        (exported["text"].buffers()[1], text.offsets),
        (exported["text"].buffers()[2], text.data),
    ):
        if seen.address != array.ctypes.data:
            raise AssertionError("to_arrow() copied values")


def _microseconds(batch: larder.Samples) -> float:
    begun = time.process_time()
    for _ in range(CALLS):
        batch.to_arrow()
    return (time.process_time() - begun) / CALLS * 1e6
