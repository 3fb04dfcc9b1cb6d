"""A node that fills itself from Parquet and Arrow, beside pyarrow reading the same columns.

    python -m formats.fill larder|pyarrow|kept FOLDER

prints the CPU seconds. All read from the page cache and use one thread for each core. Larder's are
those of its node alone, which also hashes the rows and writes them to memory that it shares.
`pyarrow` reads file after file into the same memory; `kept` keeps all rows, as the node does.
Of chat messages all make a JSON text for each row: pyarrow by `to_pylist` and `json.dumps`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import usage

#: Files of a dataset.
FILES = 8

#: Words of a text, and most words of a chat message.
WORDS = 60
MESSAGE_WORDS = 20

#: Seconds in which the node must hold all rows.
FILL_SECONDS = 120

#: A node that does nothing for so long has filled its shards.
QUIET_SECONDS = 0.5


@dataclass(frozen=True)
class Source:
    """Files of one kind.

    Attributes:
        suffix: that of a Parquet file or of an Arrow file.
        codec: the compression.
        chat: whether rows are lists of messages, rather than numbers and texts.
        goal: the wanted ratio of pyarrow's CPU time to that of the node.
    """

    suffix: str
    codec: str
    chat: bool
    goal: float

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"fill-{'chat' if self.chat else 'columns'}-{self.suffix}-{self.codec}"


#: Codecs are the defaults of the writers, zstd, and none.
SOURCES = (
    Source("parquet", "snappy", chat=False, goal=0.8),
    Source("parquet", "zstd", chat=False, goal=0.8),
    Source("arrow", "lz4", chat=False, goal=0.8),
    Source("arrow", "zstd", chat=False, goal=0.8),
    Source("parquet", "snappy", chat=True, goal=3),
    Source("arrow", "uncompressed", chat=True, goal=3),
)


def tables(rows: int, *, chat: bool) -> list[Any]:
    """The rows of each file."""
    rng, count = np.random.default_rng(9), rows // FILES
    if chat:
        return [_chat(rng, count) for _ in range(FILES)]
    return [_columns(rng, number * count, count) for number in range(FILES)]


def write(folder: Path, files: list[Any], source: Source) -> None:
    """Writes the files of a source, with the defaults of pyarrow but the codec."""
    import pyarrow.feather
    import pyarrow.parquet as pq

    folder.mkdir()
    for number, table in enumerate(files):
        path = folder / f"{number}.{source.suffix}"
        if source.suffix == "parquet":
            pq.write_table(table, path, compression=source.codec)
        else:
            pyarrow.feather.write_feather(table, str(path), compression=source.codec)


def _columns(rng: np.random.Generator, first: int, count: int) -> Any:
    """Numbers, lists of numbers and texts."""
    import pyarrow as pa

    vectors = rng.standard_normal(count * 32, np.float32)
    table = {
        "id": np.arange(first, first + count),
        "label": rng.integers(0, 1000, count),
        "score": rng.standard_normal(count),
        "vector": pa.FixedSizeListArray.from_arrays(vectors, 32),
        "text": [" ".join(row) for row in _words(rng, (count, WORDS))],
    }
    return pa.table(table)


def _chat(rng: np.random.Generator, count: int) -> Any:
    """Lists of two to six messages, with a role and a content. Some need escapes in JSON."""
    import pyarrow as pa

    messages = 2 * rng.integers(1, 4, count)
    ends = np.cumsum(messages, dtype=np.int32)
    total = int(ends[-1])
    lengths = rng.integers(3, MESSAGE_WORDS, total).tolist()
    words = _words(rng, (total, MESSAGE_WORDS))
    columns = {
        "role": ["user", "assistant"] * (total // 2),
        "content": [
            " ".join(row[:length]) + ('\n"' if length % 4 == 0 else "")
            for row, length in zip(words, lengths, strict=True)
        ],
    }
    offsets = np.concatenate([np.zeros(1, np.int32), ends])
    structs = pa.StructArray.from_arrays([*map(pa.array, columns.values())], [*columns])
    return pa.table({"messages": pa.ListArray.from_arrays(pa.array(offsets), structs)})


def _words(rng: np.random.Generator, shape: tuple[int, int]) -> list[list[str]]:
    spelled = rng.integers(97, 123, (4096, 10), np.uint8).view("S10").ravel().astype(str)
    known = np.array(
        [word[:length] for word, length in zip(spelled, rng.integers(2, 11, 4096), strict=True)]
    )
    # Frequent words are frequent, as in a language.
    drawn = known[np.minimum(rng.zipf(1.3, shape), len(known)) - 1]
    words: list[list[str]] = drawn.tolist()
    return words


def _larder(folder: Path) -> float:
    import larder

    dataset = larder.open(f"file://{folder}")
    started = dataset._native.started_node
    assert started is not None, "the node is not ours"
    node = [started[0]]
    before = usage.cpu_seconds(node)
    # Some rows of each file are in all of its shards, and a node fills whole shards.
    dataset.take(np.arange(0, len(dataset), len(dataset) // (8 * FILES)), output="numpy")
    used, deadline = usage.cpu_seconds(node), time.monotonic() + FILL_SECONDS
    while time.monotonic() < deadline:
        time.sleep(QUIET_SECONDS)
        if (now := usage.cpu_seconds(node)) - used < QUIET_SECONDS / 100:
            return now - before
        used = now
    raise AssertionError("the node is still busy")


def _pyarrow(folder: Path, *, keep: bool = False) -> float:
    import pyarrow as pa
    import pyarrow.dataset  # noqa: F401  (read_table imports it at its first call)
    import pyarrow.feather
    import pyarrow.parquet as pq

    pa.set_cpu_count(os.cpu_count() or 1)
    kept, before = [], time.process_time()
    for path in sorted(folder.glob("[0-9].*")):
        read = pq.read_table if path.suffix == ".parquet" else pyarrow.feather.read_table
        table = read(str(path))
        if keep:
            kept.append(table)
        if "messages" in table.column_names:
            for messages in table["messages"].to_pylist():
                json.dumps(messages, ensure_ascii=False, separators=(",", ":"))
    return time.process_time() - before


#: What a process of its own measures.
WAYS = {"larder": _larder, "pyarrow": _pyarrow, "kept": partial(_pyarrow, keep=True)}

if __name__ == "__main__":
    print(WAYS[sys.argv[1]](Path(sys.argv[2])))
