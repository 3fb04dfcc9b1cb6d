"""Parquet files, read in place: each row equals that of pyarrow."""

from __future__ import annotations

import decimal
import os
import random
import shutil
import string
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import larder
from harness import BINARIES, Node, S3Server

FULL = "LARDER_TEST_FULL" in os.environ

#: Small files by other writers than pyarrow.
WRITTEN = Path(__file__).parents[3] / "proto/formats/tests/files/parquet_writers"

TYPES: dict[str, pa.DataType] = {
    "few": pa.string(),
    "text": pa.large_string(),
    "binary": pa.binary(),
    "bool": pa.bool_(),
    "fixed": pa.binary(12),
    "half": pa.float16(),
    "list": pa.list_(pa.int16()),
    "fixed_list": pa.list_(pa.float32(), 4),
    "image": pa.struct([("bytes", pa.binary()), ("size", pa.int64())]),
    "float": pa.float32(),
    "double": pa.float64(),
    "byte": pa.uint8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "word": pa.uint32(),
    "long": pa.int64(),
}
#: The encodings of a type beside the plain one and the dictionary.
ENCODINGS = {
    "few": ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"],
    "text": ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"],
    "binary": ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"],
    "bool": ["RLE"],
    "fixed": ["DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"],
    "float": ["BYTE_STREAM_SPLIT"],
    "double": ["BYTE_STREAM_SPLIT"],
    "int": ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"],
    "long": ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"],
}


def value(rng: random.Random, kind: str) -> Any:
    """A random value of a column."""
    if kind in {"few", "text"}:
        letters = rng.choices(string.ascii_letters, k=rng.randrange(40))
        return rng.choice(["cat", "dog", ""]) if kind == "few" else "".join(letters)
    if kind == "binary":
        return rng.randbytes(rng.choice([0, 1, 100, 9000]))
    if kind == "fixed":
        return rng.randbytes(12)
    if kind == "half":
        return np.float16(rng.random())
    if kind == "list":
        return [rng.randrange(100) for _ in range(rng.randrange(6))]
    if kind == "fixed_list":
        return [rng.random() for _ in range(4)]
    if kind == "image":
        return {"bytes": rng.randbytes(rng.randrange(50)), "size": rng.randrange(9)}
    if kind in {"bool", "float", "double"}:
        return rng.random() < 0.5 if kind == "bool" else rng.random()
    bits, below = TYPES[kind].bit_width, pa.types.is_signed_integer(TYPES[kind])
    return rng.randrange(2**bits) - (2 ** (bits - 1) if below else 0)


def table(rng: random.Random, kinds: list[str], rows: int, nulls: float = 0.0) -> pa.Table:
    """A table of random values, some of them null."""

    def column(kind: str) -> pa.Array:
        some = [None if rng.random() < nulls else value(rng, kind) for _ in range(rows)]
        return pa.array(some, TYPES[kind])

    return pa.table({kind: column(kind) for kind in kinds})


def options(rng: random.Random, kinds: list[str], rows: int) -> dict[str, Any]:
    """Random options of the writer."""
    chosen: dict[str, Any] = {
        "compression": rng.choice(["snappy", "zstd", "gzip", "lz4", "none"]),
        "row_group_size": rng.choice([1 << 20, max(1, rows // 3)]),
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "data_page_size": rng.choice([64, 1000, 1 << 20]),
        "write_batch_size": rng.choice([7, 100, 1024]),
        "write_statistics": rng.random() < 0.7,
        "write_page_checksum": rng.random() < 0.5,
        "write_page_index": rng.random() < 0.3,
        "use_dictionary": rng.random() < 0.5,
    }
    if not chosen["use_dictionary"]:
        encodings = {kind: rng.choice(ENCODINGS[kind]) for kind in kinds if kind in ENCODINGS}
        chosen["column_encoding"] = encodings
    return chosen


def columns_of(read: pa.Table) -> dict[str, list[Any]]:
    """The values of each column, those of a struct by dotted name."""
    columns = {}
    for name in read.column_names:
        kind, values = read.schema.field(name).type, read[name].to_pylist()
        if pa.types.is_struct(kind):
            for field in kind:
                columns[f"{name}.{field.name}"] = [row and row[field.name] for row in values]
        else:
            columns[name] = values
    return columns


def check(ds: larder.Dataset, written: pa.Table, order: list[int]) -> None:
    """Every value of these rows is that of pyarrow."""
    batch = ds.take(order)
    wanted = columns_of(written)
    masks = {f"{name}.valid" for name, values in wanted.items() if None in values}
    assert set(wanted) | masks <= set(batch) <= set(wanted) | {f"{name}.valid" for name in wanted}
    for name, values in wanted.items():
        column, mask = batch[name], batch.get(f"{name}.valid")
        for at, row in enumerate(order):
            found = np.asarray(column.row(at) if hasattr(column, "row") else column[at])
            want = values[row]
            assert mask is None or bool(mask[at]) == (want is not None), (name, row)
            if want is None:
                assert not found.any(), (name, row)
            elif isinstance(want, (bytes, str)):
                assert found.tobytes() == (want.encode() if isinstance(want, str) else want)
            else:
                assert np.array_equal(found, np.asarray(want, found.dtype)), (name, row)


@pytest.mark.parametrize("seed", range(100 if FULL else 8))
def test_random_files_have_the_rows_of_pyarrow(
    seed: int, s3: S3Server, opened: Callable[[str], larder.Dataset]
) -> None:
    rng = random.Random(seed)
    rows, kinds = rng.choice([1, 7, 300, 3000]), rng.sample(sorted(TYPES), rng.randrange(1, 6))
    nulls, folder = rng.choice([0.0, 0.2, 1.0]), s3.folder / "data" / f"parquet-{seed}"
    written = []
    for number in range(rng.randrange(1, 4)):
        written.append(table(rng, kinds, rows, nulls if rng.random() < 0.7 else 0.0))
        if not (path := folder / f"{number:03}.parquet").exists():
            folder.mkdir(exist_ok=True)
            pq.write_table(written[-1], path, **options(rng, kinds, rows))
        else:
            options(rng, kinds, rows)
    whole = pa.concat_tables(written)
    ds = opened(f"s3://data/parquet-{seed}")
    assert len(ds) == whole.num_rows
    check(ds, whole, random.Random(seed).sample(range(len(whole)), min(len(whole), 200)))


def test_a_thousand_shards_are_the_same_on_a_node_and_a_client(
    s3: S3Server, node: Node, tmp_path: Path
) -> None:
    """The client pins what it makes. A node that makes other bytes refuses the shard."""
    rng, kinds = random.Random(11), ["text", "long", "list", "fixed_list", "image", "bool"]
    shards = 1000 if FULL else 40
    written = table(rng, kinds, 30 * shards, nulls=0.1)
    folder = s3.folder / "data" / "parquet-thousand"
    folder.mkdir()
    pq.write_table(written, folder / "all.parquet", row_group_size=30, compression="zstd")
    report = larder.index("s3://data/parquet-thousand", checksum=True, shard_bytes=4096)
    made = larder.open("s3://data/parquet-thousand", cluster=node.address, local=False)
    alone = larder.open("s3://data/parquet-thousand", cluster="none")
    assert report.shards == shards
    order = list(range(len(written)))
    check(made, written, order)
    check(alone, written, order[::100])
    verified = subprocess.run(
        [BINARIES / "larder", "dataset", "verify", "s3://data/parquet-thousand"],
        capture_output=True,
        text=True,
        env=os.environ | {"LARDER_CLUSTER": "none"},
        check=False,
    )
    assert verified.returncode == 0, verified.stderr


def write_many(folder: Path, rows: int = 400) -> pa.Table:
    """Write two files of pictures and labels, in row groups of 50 rows."""
    folder.mkdir(parents=True)
    rng, parts = random.Random(3), []
    for number in range(2):
        parts.append(table(rng, ["image", "long", "list"], rows // 2, nulls=0.1))
        pq.write_table(parts[-1], folder / f"{number}.parquet", row_group_size=50)
    return pa.concat_tables(parts)


def test_columns_are_chosen_with_their_masks(tmp_path: Path) -> None:
    written = write_many(tmp_path / "data")
    uri = f"file://{tmp_path}/data"
    larder.index(uri, columns=["image.bytes", "long"])
    ds = larder.open(uri, cluster="none")
    assert list(ds.tensors) == ["image.bytes", "image.bytes.valid", "long", "long.valid"]
    assert ds[7]["long"].tolist() == (written["long"][7].as_py() or 0)
    with pytest.raises(larder.Error, match="there is no column 'label'"):
        larder.index(uri, columns=["label"])


def test_a_file_without_a_column(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), folder / "0.parquet")
    pq.write_table(pa.table({"a": [3]}), folder / "1.parquet")
    uri = f"file://{folder}"
    with pytest.raises(larder.Error, match=r"sample 0 of '1.parquet' has no 'b'"):
        larder.index(uri)
    larder.index(uri, missing="empty")
    ds = larder.open(uri, cluster="none")
    rows = ds.take([0, 1, 2])
    assert [bytes(rows["b"].row(row)) for row in range(3)] == [b"x", b"y", b""]
    assert rows["a"].tolist() == [1, 2, 3]
    larder.index(uri, missing="skip")
    assert len(larder.open(uri, cluster="none")) == 2


def test_bad_files_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path, uri = folder / "0.parquet", f"file://{folder}"
    pq.write_table(pa.table({"text": ["word"] * 1000}), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    with pytest.raises(larder.Error, match=r"0.parquet: footer: is missing: the file does not"):
        larder.index(uri)
    path.write_bytes(whole[:-8] + (1 << 20).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(larder.Error, match=r"0.parquet: footer: has 1048576 bytes where"):
        larder.index(uri)
    # The first page says that it decompresses to another size.
    path.write_bytes(whole[:8] + b"\xff\x7f" + whole[10:])
    with pytest.raises(larder.Error, match=r"0.parquet: row group 0 column 'text'"):
        larder.index(uri)
    # Few bytes that stand for many.
    pq.write_table(pa.table({"zero": np.zeros(1 << 26, np.int64)}), path)
    with pytest.raises(larder.Error, match="decodes to 536870912 bytes"):
        larder.index(uri)


def test_a_page_that_cannot_be_decoded_is_an_error_that_names_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path, uri = folder / "0.parquet", f"file://{folder}"
    numbers = np.arange(100_000)
    pq.write_table(pa.table({"n": numbers}), path, use_dictionary=False, write_page_checksum=True)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    path.write_bytes(damaged)
    larder.index(uri)
    for cluster in ["none", None]:
        ds = larder.open(uri, cluster=cluster)
        with pytest.raises(larder.DataLoss, match=r"'n' in bytes .*: page is damaged") as raised:
            ds.take([0])
        assert "write the file again" in str(raised.value)
        assert "index" not in str(raised.value)


@pytest.mark.parametrize("path", sorted(WRITTEN.glob("*.parquet")), ids=lambda path: path.stem)
def test_files_of_other_writers_have_the_rows_of_pyarrow(
    path: Path, s3: S3Server, opened: Callable[[str], larder.Dataset]
) -> None:
    folder = s3.folder / "data" / path.stem
    folder.mkdir(exist_ok=True)
    shutil.copy(path, folder)
    check(opened(f"s3://data/{path.stem}"), pq.read_table(path), list(range(60)))


def test_decimals_are_text_and_int96_a_time(
    s3: S3Server, opened: Callable[[str], larder.Dataset]
) -> None:
    folder = s3.folder / "data" / "parquet-decimals"
    folder.mkdir(exist_ok=True)
    written = {
        "price": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-12.05")]),
        "time": pa.array([10**18 + 1, 0, -1], pa.timestamp("ns")),
    }
    path = folder / "0.parquet"
    pq.write_table(pa.table(written), path, use_deprecated_int96_timestamps=True)
    rows = opened("s3://data/parquet-decimals").take([2, 1, 0])
    assert rows["price"].tolist() == ["-12.05", "", "1.50"]
    assert rows["price.valid"].tolist() == [True, False, True]
    assert rows["time"].tolist() == [-1, 0, 10**18 + 1]


def test_damaged_files_are_left_out_on_request(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ["a", "b", "c"]:
        pq.write_table(pa.table({"n": [1, 2]}), folder / f"{name}.parquet")
    (folder / "b.parquet").write_bytes((folder / "c.parquet").read_bytes()[:-9])
    uri = f"file://{folder}"
    with pytest.raises(larder.DataLoss, match=r"b\.parquet: footer: is missing"):
        larder.index(uri)
    report = larder.index(uri, bad="skip")
    assert report.samples == 4
    [(name, column, why)] = report.left_out
    assert (name, column) == ("b.parquet", None)
    assert why.startswith("is damaged: footer: is missing")
    with pytest.raises(larder.InvalidArgument, match="bad='drop' is not known"):
        larder.index(uri, bad="drop")


def test_columns_without_a_name_of_their_own_are_left_out(tmp_path: Path) -> None:
    named = pa.table([pa.array([row]) for row in range(4)], ["a", "", "b", "b"])
    pq.write_table(named, tmp_path / "a.parquet")
    report = larder.index(f"file://{tmp_path}")
    assert list(report.tensors) == ["a"]
    assert report.left_out == [
        ("a.parquet", "", "has no name"),
        ("a.parquet", "b", "is the name of several columns: give each its own"),
    ]


def test_cold_parquet_takes_few_requests(s3: S3Server, start_node: Callable[..., Node]) -> None:
    written = write_many(s3.folder / "data" / "parquet-cold")
    larder.index("s3://data/parquet-cold")
    own = start_node()
    ds = larder.open("s3://data/parquet-cold", cluster=own.address)
    before = s3.counts()["object_reads"]
    check(ds, written, list(range(len(written))))
    # One for each file, and the leaf: for the node, and for the listing of added objects.
    assert s3.counts()["object_reads"] - before <= 4


def test_parquet_beyond_memory_gives_the_right_rows(
    s3: S3Server, start_node: Callable[..., Node]
) -> None:
    folder = s3.folder / "data" / "parquet-large"
    folder.mkdir()
    rng = random.Random(5)
    written = pa.table({"data": [rng.randbytes(20_000) for _ in range(600)], "n": range(600)})
    pq.write_table(written, folder / "0.parquet", row_group_size=50)
    larder.index("s3://data/parquet-large", shard_bytes=1 << 20)
    own = start_node(memory="8MiB")
    ds = larder.open("s3://data/parquet-large", cluster=own.address)
    for shuffle in ["global", "auto"]:
        rows = 0
        for batch in ds.loader(50, shuffle=shuffle, seed=1):
            assert batch["n"].tolist() == batch.samples.tolist()
            for at, row in enumerate(batch["n"].tolist()):
                assert bytes(batch["data"].row(at)) == written["data"][row].as_py()
            rows += len(batch.samples)
        assert rows == 600
