"""The rows that the tests of devices write, and that their children compare batches with."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

import larder

#: Samples; batches are of BATCH, the last is shorter.
SAMPLES, BATCH = 24, 5
BATCHES = -(-SAMPLES // BATCH)
#: Columns with rows of one length. Rows of 32 KiB are short enough for a fast test, and long enough
#: for direct copies.
EVEN = ("u8", "f16", "f32", "i64")
ROW_BYTES = 32 << 10
#: Bytes of a shard: a batch of neighbours then has rows of two.
SHARD_BYTES = 1 << 20


@functools.cache
def all_rows() -> dict[str, Any]:
    """Noise, and a ragged column with some empty rows."""
    rng = np.random.default_rng(11)
    lengths = [0 if row % 8 == 3 else int(rng.integers(40_000, 60_000)) for row in range(SAMPLES)]
    return {
        "u8": rng.integers(0, 256, size=(SAMPLES, ROW_BYTES), dtype=np.uint8),
        "f16": rng.standard_normal((SAMPLES, 128, 128)).astype(np.float16),
        "f32": rng.random((SAMPLES, 64, 128), dtype=np.float32),
        "i64": rng.integers(-(1 << 40), 1 << 40, size=(SAMPLES, 4096), dtype=np.int64),
        "ragged": [rng.integers(0, 1 << 16, size=length, dtype=np.uint16) for length in lengths],
    }


def write(folder: Path) -> str:
    """Writes the rows to a folder, and returns the address of the dataset there."""
    folder.mkdir()
    rows = all_rows()
    tensors = {name: rows[name] for name in EVEN}
    tensors["ragged"] = np.concatenate(rows["ragged"])
    tensors["ragged.offsets"] = np.cumsum([0, *map(len, rows["ragged"])])
    save_file(tensors, folder / "all.safetensors")
    uri = f"file://{folder}"
    assert larder.index(uri, shard_bytes=SHARD_BYTES).shards > 2
    return uri


def opened(uri: str) -> larder.Dataset:
    """The dataset with all its shards mapped, as they are once the node of the host has them."""
    dataset = larder.open(uri)
    deadline = time.monotonic() + 60
    while True:
        before = larder.stats()
        loader = dataset.loader(1, shuffle=False, output="numpy")
        for _ in loader:
            pass
        del loader
        if larder.stats()["copied_bytes"] == before["copied_bytes"]:
            return dataset
        assert time.monotonic() < deadline, "the shards are not handed out"
        time.sleep(0.005)


def host(value: Any) -> np.ndarray:
    """A tensor of a batch in the memory of the host."""
    return value if isinstance(value, np.ndarray) else value.numpy()


def check(batch: larder.Batch) -> None:
    """Compares every byte of a batch, by the numbers of its samples."""
    rows, samples = all_rows(), batch.samples.tolist()
    for name, value in batch.items():
        if isinstance(value, larder.Ragged):
            expected = [rows[name][sample] for sample in samples]
            offsets, data = host(value.offsets), host(value.data)
            assert offsets.tolist() == np.cumsum([0, *map(len, expected)]).tolist(), name
            assert offsets.dtype == np.int64
            wanted = np.concatenate(expected)
        else:
            data, wanted = host(value), rows[name][samples]
        assert data.dtype == wanted.dtype, name
        assert data.shape == wanted.shape, name
        assert data.tobytes() == wanted.tobytes(), f"{name} of samples {samples}"


def bytes_of(names: Any) -> int:
    """Bytes of all rows of these columns."""
    rows = all_rows()
    return sum(
        sum(row.nbytes for row in rows[name]) if name == "ragged" else rows[name].nbytes
        for name in names
    )
