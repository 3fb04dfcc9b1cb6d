"""A node and a client make the same bytes of the same files, shard for shard.

Each writer in `WRITERS` makes random files from a seed. They become a dataset of small shards,
whose rows are decoded: JSON of nested columns, values from pages and compressed buffers, windows
over documents. The Rust client prints the SHA-256 of each shard, once alone and twice through a
node: while it fills shards, and when it has them all.
"""

from __future__ import annotations

import decimal
import io
import json
import os
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

import larder
from harness import BINARIES, Node

FULL = "LARDER_TEST_FULL" in os.environ
#: Seeds of each writer for one node, which opens at most 256 datasets for a user.
SEEDS = 60 if FULL else 16
SHARDS_MIN = 1000

#: Types of which every nested column consists, and which are columns of their own.
FLAT = [
    *(pa.bool_(), pa.int8(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary()),
    *(pa.binary(5), pa.decimal128(12, 3), pa.decimal128(38, 0), pa.date32()),
    *(pa.timestamp("ms"), pa.timestamp("ns"), pa.time64("us"), pa.null()),
]
#: Types that Parquet has not.
OF_ARROW = [
    *(pa.string_view(), pa.binary_view(), pa.large_binary(), pa.duration("s")),
    *(pa.dictionary(pa.int16(), pa.string()), pa.dictionary(pa.int32(), pa.int64())),
]
#: Encodings of pages beside the plain one and the dictionary.
ENCODINGS = {
    "BOOLEAN": ["RLE"],
    "INT32": ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"],
    "INT64": ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"],
    "FLOAT": ["BYTE_STREAM_SPLIT"],
    "DOUBLE": ["BYTE_STREAM_SPLIT"],
    "BYTE_ARRAY": ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"],
    "FIXED_LEN_BYTE_ARRAY": ["DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"],
}


@dataclass
class Written:
    """Whether all values lie in compressed buffers, and how the files are indexed."""

    is_compressed: bool
    options: dict[str, Any] = field(default_factory=dict)


def nested(rng: random.Random, flat: list[pa.DataType], depth: int) -> pa.DataType:
    """A random type of lists, structs and maps."""
    inner = rng.choice(flat) if depth == 0 or rng.random() < 0.4 else nested(rng, flat, depth - 1)
    fields = [("a", inner), ("b ü", rng.choice(flat))][: rng.randrange(1, 3)]
    kinds = [pa.list_(inner), pa.list_(inner, 2), pa.struct(fields), pa.map_(pa.string(), inner)]
    return rng.choice(kinds)


def schema(rng: random.Random, flat: list[pa.DataType]) -> pa.Schema:
    """Columns of random types. The first is always there."""
    kinds = [nested(rng, flat, 2) for _ in range(rng.randrange(1, 3))]
    kinds += [rng.choice(flat) for _ in range(rng.randrange(1, 4))]
    return pa.schema([("id", pa.int64()), *((f"c{n}", kind) for n, kind in enumerate(kinds))])


def value(rng: random.Random, kind: pa.DataType, nulls: float) -> Any:
    """A random value, in a nested one with nulls at each level."""
    is_ = pa.types
    if rng.random() < nulls or is_.is_null(kind):
        return None
    if is_.is_dictionary(kind):
        return value(rng, kind.value_type, nulls)
    if is_.is_struct(kind):
        return {one.name: value(rng, one.type, nulls) for one in kind}
    if is_.is_map(kind):
        return [(f"k{n}", value(rng, kind.item_type, nulls)) for n in range(rng.randrange(3))]
    if is_.is_fixed_size_list(kind):
        return [value(rng, kind.value_type, nulls) for _ in range(kind.list_size)]
    if is_.is_list(kind):
        return [value(rng, kind.value_type, nulls) for _ in range(rng.randrange(5))]
    if is_.is_boolean(kind):
        return rng.random() < 0.5
    if is_.is_floating(kind):
        number = rng.choice([rng.gauss(0, 1), rng.gauss(0, 1), 0.1, -0.0, 3e4, rng.random() * 1e-5])
        return np.float16(number) if kind == pa.float16() else number
    if is_.is_decimal(kind):
        return decimal.Decimal(rng.randrange(-(10**9), 10**9)).scaleb(-kind.scale)
    if is_.is_fixed_size_binary(kind):
        return rng.randbytes(kind.byte_width)
    if kind in {pa.binary(), pa.large_binary(), pa.binary_view()}:
        return rng.randbytes(rng.choice([0, 3, 90, 3000]))
    if kind in {pa.string(), pa.large_string(), pa.string_view()}:
        words = rng.randbytes(rng.choice([1, 40, 1500])).hex()
        return rng.choice(["", "same", 'a "b"\n\\', "ü\x01\u2028🙂", words])
    if is_.is_temporal(kind):
        return rng.randrange(1 << 24)
    number = rng.randrange(2 ** rng.randrange(1, kind.bit_width))
    return number if is_.is_unsigned_integer(kind) else number - 2 ** (kind.bit_width - 1) // 2


def tables(rng: random.Random, flat: list[pa.DataType]) -> list[pa.Table]:
    """The tables of some files with the same columns, with nulls in some of the files."""
    columns, rows = schema(rng, flat), rng.choice([100, 250, 400])
    made = []
    for nulls in rng.choices([0.0, 0.0, 0.2, 0.9], k=rng.randrange(1, 5)):
        kinds = zip(columns.names, columns.types, strict=True)
        values = {
            name: [value(rng, kind, 0.0 if name == "id" else nulls) for _ in range(rows)]
            for name, kind in kinds
        }
        made.append(pa.table(values, schema=columns))
    return made


def write_parquet(rng: random.Random, folder: Path) -> Written:
    codecs = ["none"] if rng.random() < 0.3 else ["snappy", "gzip", "zstd", "lz4", "brotli"]
    is_int96 = rng.random() < 0.3
    for number, table in enumerate(tables(rng, FLAT)):
        options: dict[str, Any] = {
            "compression": rng.choice(codecs),
            "row_group_size": rng.choice([3, 9, 20]),
            "data_page_version": rng.choice(["1.0", "2.0"]),
            "data_page_size": rng.choice([64, 1000, 1 << 20]),
            "write_batch_size": rng.choice([3, 1024]),
            "write_page_checksum": rng.random() < 0.5,
            "use_deprecated_int96_timestamps": is_int96,
            "store_decimal_as_integer": rng.random() < 0.3,
            "use_dictionary": rng.random() < 0.5,
        }
        if not options["use_dictionary"]:
            options["column_encoding"] = encodings(rng, table, options)
        pq.write_table(table, folder / f"{number}.parquet", **options)
    return Written(codecs != ["none"])


def encodings(rng: random.Random, table: pa.Table, options: dict[str, Any]) -> dict[str, str]:
    """An encoding of the pages of some columns, and of the parts of nested ones."""
    empty = io.BytesIO()
    pq.write_table(table[:0], empty, **options)
    leaves = pq.ParquetFile(empty).schema
    parts = [leaves.column(number) for number in range(len(leaves))]
    known = [part for part in parts if part.physical_type in ENCODINGS and rng.random() < 0.7]
    return {part.path: rng.choice(ENCODINGS[part.physical_type]) for part in known}


def write_arrow(rng: random.Random, folder: Path) -> Written:
    codecs = [None] if rng.random() < 0.3 else ["lz4", "zstd"]
    for number, table in enumerate(tables(rng, FLAT + OF_ARROW)):
        options = pa.ipc.IpcWriteOptions(compression=rng.choice(codecs))
        begin = rng.choice([pa.ipc.new_file, pa.ipc.new_stream])
        with begin(folder / f"{number}.arrow", table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=rng.choice([3, 9, 20]))
    return Written(codecs != [None])


def write_documents(rng: random.Random, folder: Path) -> Written:
    """Documents, some of them empty, to be read as windows."""
    token = rng.choice([np.uint16, np.int32, np.int64])
    codec = rng.choice([None, "zstd", "lz4"])
    form = rng.choice(["parquet", "arrow", "safetensors"])
    for number in range(rng.randrange(1, 4)):
        lengths = [rng.choice([0, 3, 90, 900]) for _ in range(rng.randrange(50, 200))]
        docs = [np.array(rng.choices(range(30_000), k=length), token) for length in lengths]
        path = folder / f"{number}.{form}"
        table = pa.table({"tokens": pa.array(docs, pa.list_(pa.from_numpy_dtype(token)))})
        if form == "parquet":
            pq.write_table(table, path, row_group_size=9, compression=codec or "none")
        elif form == "arrow":
            options = pa.ipc.IpcWriteOptions(compression=codec)
            with pa.ipc.new_file(path, table.schema, options=options) as writer:
                writer.write_table(table, max_chunksize=9)
        else:
            offsets = np.cumsum([0, *lengths], dtype=np.int64)
            save_file({"tokens": np.concatenate(docs), "tokens.offsets": offsets}, path)
    window = rng.randrange(2, 200)
    options = {"window": window, "stride": rng.randrange(window // 2 + 1, 2 * window)}
    options |= {"column": "tokens", "between": rng.choice([None, 7])}
    return Written(codec is not None and form != "safetensors", options)


WRITERS: list[Callable[[random.Random, Path], Written]] = [
    write_parquet,
    write_arrow,
    write_documents,
]


def read_shards(cluster: str, uris: list[str]) -> list[dict[str, Any]]:
    """The shards of each dataset as the Rust client reads them, in a process of its own."""
    command = [BINARIES / "larder-test-shards", cluster, *uris]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


@pytest.mark.parametrize("part", range(4 if FULL else 1))
def test_node_and_client_make_the_same_shards(part: int, tmp_path: Path) -> None:
    written: dict[str, Written] = {}
    for writer in WRITERS:
        for seed in range(part * SEEDS, (part + 1) * SEEDS):
            name = f"{writer.__name__}-{seed}"
            folder = tmp_path / "data" / name
            folder.mkdir(parents=True)
            made = written[f"file://{folder}"] = writer(random.Random(name), folder)
            checksum = seed % 2 == 0
            larder.index(f"file://{folder}", shard_bytes=4096, checksum=checksum, **made.options)
    node, uris = Node(tmp_path, origin=f"file://{tmp_path}/data"), list(written)
    try:
        ways = ["none", node.address, node.address]
        alone, filling, filled = (read_shards(way, uris) for way in ways)
    finally:
        node.stop()
    shards: list[tuple[Written, dict[str, Any]]] = []
    for uri, by_client, cold, warm in zip(uris, alone, filling, filled, strict=True):
        assert by_client["shards"] == cold["shards"] == warm["shards"], uri
        assert all(shard["pinned"] in {None, shard["sha256"]} for shard in by_client["shards"]), uri
        assert by_client["from"][:2] == [0, 0], "the client reads the origin alone"
        assert warm["from"][2] == 0, "the node has all shards"
        shards += ((written[uri], shard) for shard in by_client["shards"])
    with_json = sum(any_bytes(shard, "json") for _, shard in shards)
    decompressed = sum(made.is_compressed for made, _ in shards)
    assert len({shard["sha256"] for _, shard in shards}) >= SHARDS_MIN
    assert min(with_json, decompressed) >= SHARDS_MIN // 4


def any_bytes(shard: dict[str, Any], logical: str) -> bool:
    """Whether the shard has a column of this type that is not empty."""
    return any(kind == logical and size > 0 for kind, size, _ in shard["columns"].values())
