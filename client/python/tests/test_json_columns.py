"""Nested columns of Parquet and Arrow are JSON: each row parses to what pyarrow reads."""

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

TURN = pa.struct([("role", pa.string()), ("content", pa.string()), ("score", pa.float64())])
TYPES = {
    "messages": pa.list_(TURN),
    "captions": pa.list_(pa.string()),
    "grid": pa.list_(pa.list_(pa.int32())),
    "tags": pa.map_(pa.string(), pa.int64()),
    "deep": pa.struct(
        [("name", pa.string()), ("items", pa.list_(pa.list_(pa.struct([("x", pa.bool_())]))))]
    ),
}


def rows(count: int, seed: int) -> dict[str, list[Any]]:
    """Random values of each type, with nulls at each level, and texts that JSON must escape."""
    rng = np.random.default_rng(seed)
    texts = ['say "hi"\n\\', "", "ü\x01\u2028🙂", "plain", None]

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.1 else value

    def text() -> Any:
        return texts[rng.integers(len(texts))]

    def some(make: Any, most: int = 4) -> Any:
        return maybe([make() for _ in range(rng.integers(most))])

    def turn() -> Any:
        return maybe({"role": text(), "content": text(), "score": maybe(float(rng.normal()))})

    def grid() -> Any:
        return some(lambda: maybe(int(rng.integers(-9, 9))))

    def tags() -> Any:
        return maybe([(f"k{k}", maybe(int(rng.integers(9)))) for k in range(rng.integers(3))])

    def deep() -> Any:
        inner = some(lambda: some(lambda: maybe({"x": maybe(bool(rng.integers(2)))})))
        return maybe({"name": text(), "items": inner})

    return {
        "messages": [some(turn) for _ in range(count)],
        "captions": [some(text) for _ in range(count)],
        "grid": [some(grid) for _ in range(count)],
        "tags": [tags() for _ in range(count)],
        "deep": [deep() for _ in range(count)],
    }


def check(ds: larder.Dataset, table: pa.Table) -> None:
    taken = ds.take(range(len(ds)), output="numpy")
    wanted = {name: table[name].to_pylist() for name in TYPES}
    wanted["tags"] = [None if row is None else dict(row) for row in wanted["tags"]]
    wanted["deep.items"] = [row and row["items"] for row in wanted.pop("deep")]
    for name, values in wanted.items():
        assert ds.tensors[name].logical == "json", name
        found = [json.loads(row) if row else None for row in taken[name]]
        assert found == values, name
        valid = taken.get(f"{name}.valid")
        masked = [True] * len(found) if valid is None else valid.tolist()
        assert masked == [value is not None for value in values], name
        canonical = json.dumps(found[0], ensure_ascii=False, separators=(",", ":"))
        assert found[0] is None or taken[name][0] == canonical


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "zstd", "data_page_size": 200, "use_dictionary": False},
        {"compression": "none", "data_page_version": "2.0", "row_group_size": 70},
    ],
)
def test_nested_columns_of_parquet_are_json(tmp_path: Path, options: dict[str, Any]) -> None:
    table = pa.table(rows(300, 1), schema=pa.schema(TYPES))
    pq.write_table(table, tmp_path / "a.parquet", **options)
    check(larder.open(f"file://{tmp_path}", cluster="none"), table)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_nested_columns_of_arrow_are_json(tmp_path: Path, compression: str | None) -> None:
    table = pa.table(rows(300, 2), schema=pa.schema(TYPES))
    written = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema, options=written) as writer:
        writer.write_table(table, max_chunksize=70)
    check(larder.open(f"file://{tmp_path}", cluster="none"), table)


def test_nodes_serve_nested_columns(s3: S3Server, two_nodes: list[Node]) -> None:
    folder = s3.folder / "data" / "chats"
    folder.mkdir()
    table = pa.table(rows(200, 3), schema=pa.schema(TYPES))
    pq.write_table(table, folder / "a.parquet", row_group_size=50)
    larder.index("s3://data/chats", shard_bytes=4096)
    check(larder.open("s3://data/chats", cluster=two_nodes[0].address), table)


def test_list_with_nulls_in_one_file_is_json_in_all(tmp_path: Path) -> None:
    for number, values in enumerate([[[1, 2], [3]], [[4, None], None]]):
        table = pa.table({"x": pa.array(values, pa.list_(pa.int64()))})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    ds = larder.open(f"file://{tmp_path}", cluster="none")
    found = [str(row) for row in ds.take(range(4), output="numpy")["x"]]
    assert found == ["[1,2]", "[3]", "[4,null]", ""]
