"""Lists of lists of numbers: ragged with a shape if all inner lists have one length, else JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import larder
from harness import Node, S3Server

FLOATS = pa.list_(pa.list_(pa.float32()))
FIXED = pa.list_(pa.list_(pa.float32(), 4))
BOX = [1.5, 2.0, 3.0, 4.0]


def write(path: Path, table: pa.Table, **options: Any) -> None:
    """Writes a file in the format of its suffix."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, **options)
        return
    written = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_file(path, table.schema, options=written) as writer:
        writer.write_table(table, max_chunksize=70)


def boxes(count: int, seed: int, nulls: bool = True) -> list[Any]:
    """Rows of up to five boxes, some of them null or empty."""
    rng = np.random.default_rng(seed)

    def row() -> Any:
        if nulls and rng.random() < 0.1:
            return None
        return rng.random((rng.integers(6), 4), np.float32).tolist()

    return [row() for _ in range(count)]


def opened(folder: Path) -> larder.Dataset:
    return larder.open(f"file://{folder}", cluster="none")


def taken(ds: larder.Dataset, name: str) -> list[Any]:
    """The rows of a column as `to_pylist` has them."""
    batch = ds.take(range(len(ds)), output="numpy")
    is_json = ds.tensors[name].logical == "json"
    rows = [json.loads(row) if row else None for row in batch[name]] if is_json else batch[name]
    valid = batch.get(f"{name}.valid", np.ones(len(ds), bool))
    return [
        (row if is_json else row.tolist()) if there else None
        for row, there in zip(rows, valid, strict=True)
    ]


WAYS = [
    ("parquet", {}),
    ("parquet", {"compression": "none", "data_page_version": "2.0", "row_group_size": 70}),
    ("parquet", {"compression": "zstd", "data_page_size": 100, "write_batch_size": 7}),
    ("parquet", {"use_compliant_nested_type": False, "store_schema": False}),
    ("arrow", {}),
    ("arrow", {"compression": "lz4"}),
    ("arrow", {"compression": "zstd"}),
]


@pytest.mark.parametrize("kind", [FLOATS, FIXED], ids=["lists", "fixed"])
@pytest.mark.parametrize(("suffix", "options"), WAYS)
def test_boxes_are_ragged_with_a_shape(
    tmp_path: Path, suffix: str, options: dict[str, Any], kind: pa.DataType
) -> None:
    table = pa.table(
        {
            "boxes": pa.array(boxes(300, 1), kind),
            "full": pa.array(boxes(300, 2, nulls=False), kind),
            "object": pa.array([{"box": row} for row in boxes(300, 3)], pa.struct([("box", kind)])),
            "classes": pa.array(
                [[[row, -row]] * (row % 3) for row in range(300)],
                pa.large_list(pa.large_list(pa.int64())),
            ),
            "label": range(300),
        }
    )
    write(tmp_path / f"a.{suffix}", table, **options)
    ds = opened(tmp_path)
    for name in ["boxes", "full", "object.box"]:
        assert ds.tensors[name] == larder.TensorSpec("float32", (None, 4)), name
    assert ds.tensors["classes"] == larder.TensorSpec("int64", (None, 2))
    assert "full.valid" not in ds.tensors
    for name in ["boxes", "full", "classes"]:
        assert taken(ds, name) == table[name].to_pylist(), name
    assert taken(ds, "object.box") == [row["box"] for row in table["object"].to_pylist()]
    for batch in ds.loader(32, seed=1, last="uneven", output="numpy"):
        wanted = [table["full"][label].as_py() for label in batch["label"].tolist()]
        assert [row.tolist() for row in batch["full"]] == wanted
    read = pa.table(ds.take(range(300)).to_arrow())["boxes"]
    assert read.to_pylist() == table["boxes"].to_pylist()


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize(
    "odd",
    [[BOX, [1.0]], [[]], [BOX, []], [None], [BOX, None], [[1.0, None, 3.0, 4.0]]],
    ids=str,
)
def test_an_odd_list_makes_all_rows_json(tmp_path: Path, suffix: str, odd: list[Any]) -> None:
    rows = [*boxes(100, 4), odd, *boxes(10, 5)]
    table = pa.table({"boxes": pa.array(rows, FLOATS)})
    options = {"row_group_size": 40} if suffix == "parquet" else {}
    write(tmp_path / f"a.{suffix}", table, **options)
    ds = opened(tmp_path)
    assert ds.tensors["boxes"].logical == "json"
    assert taken(ds, "boxes") == table["boxes"].to_pylist()


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize(
    ("second", "shape"),
    [
        ([[[1.0, 2.0]]], None),  # another length
        ([[[1.0, 2.0], [3.0]]], None),  # several
        ([[BOX, BOX], [BOX]], (None, 4)),
        ([[], []], (None, 4)),  # no inner list
        ([[], None], (None, 4)),
        ([None, None], (None, 4)),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [FLOATS, FIXED], ids=["lists", "fixed"])
def test_files_agree_on_the_length_of_inner_lists(
    tmp_path: Path, suffix: str, second: list[Any], shape: Any, kind: pa.DataType
) -> None:
    rows = [*boxes(20, 6, nulls=False), [BOX]]
    write(tmp_path / f"a.{suffix}", pa.table({"boxes": pa.array(rows, kind)}))
    write(tmp_path / f"b.{suffix}", pa.table({"boxes": pa.array(second, FLOATS)}))
    ds = opened(tmp_path)
    assert taken(ds, "boxes") == [*rows, *second]
    found = ds.tensors["boxes"]
    assert (found.logical == "json") if shape is None else (found.shape == shape)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_lists_without_any_inner_list_are_json(tmp_path: Path, suffix: str) -> None:
    for number, rows in enumerate([[[], None], [[]]]):
        table = pa.table({"boxes": pa.array(rows, FLOATS), "label": range(len(rows))})
        write(tmp_path / f"{number}.{suffix}", table)
    ds = opened(tmp_path)
    assert ds.tensors["boxes"].logical == "json"
    assert taken(ds, "boxes") == [[], None, []]


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_later_file_of_another_length_makes_the_next_version_json(
    tmp_path: Path, suffix: str
) -> None:
    uri = f"file://{tmp_path}"
    write(tmp_path / f"a.{suffix}", pa.table({"boxes": pa.array([[BOX]], FLOATS)}))
    before = larder.index(uri)
    write(tmp_path / f"b.{suffix}", pa.table({"boxes": pa.array([[[1.0, 2.0]]], FLOATS)}))
    after = larder.index(uri)
    assert before.snapshot != after.snapshot
    assert taken(opened(tmp_path), "boxes") == [[BOX], [[1.0, 2.0]]]
    old = larder.open(f"{uri}@{before.snapshot}", cluster="none")
    assert taken(old, "boxes") == [[BOX]]
    assert old.tensors["boxes"].shape == (None, 4)


def test_nodes_serve_boxes(s3: S3Server, two_nodes: list[Node]) -> None:
    folder = s3.folder / "data" / "boxes"
    folder.mkdir()
    rows = boxes(200, 7)
    for begin, suffix in [(0, "zstd"), (100, "none")]:
        table = pa.table({"boxes": pa.array(rows[begin : begin + 100], FLOATS)})
        write(folder / f"{begin}.parquet", table, row_group_size=30, compression=suffix)
    larder.index("s3://data/boxes", shard_bytes=4096)
    ds = larder.open("s3://data/boxes", cluster=two_nodes[0].address)
    assert ds.tensors["boxes"] == larder.TensorSpec("float32", (None, 4))
    assert taken(ds, "boxes") == rows
