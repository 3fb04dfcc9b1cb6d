"""Batches and samples as Arrow data, read by pyarrow."""

from __future__ import annotations

import datetime
import gc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import larder

ROWS = 300


def table() -> pa.Table:
    start = datetime.datetime(2026, 1, 1)
    rows = range(ROWS)
    return pa.table(
        {
            "caption": [f"capti\u00f3n {row}" for row in rows],
            "picture": pa.array([bytes([row % 256]) * (row % 7) for row in rows], pa.binary()),
            "label": pa.array(rows, pa.int64()),
            "part": pa.array([row / 7 for row in rows], pa.float32()),
            "is_even": [row % 2 == 0 for row in rows],
            "at": pa.array(
                [start + datetime.timedelta(milliseconds=row) for row in rows], pa.timestamp("us")
            ),
            "day": [datetime.date(2026, 1, 1) + datetime.timedelta(days=row) for row in rows],
            "ids": pa.array([list(range(row % 5)) for row in rows], pa.list_(pa.int32())),
            "maybe": pa.array([None if row % 3 == 0 else row for row in rows], pa.int32()),
            "name": [None if row % 4 == 0 else f"n{row}" for row in rows],
        }
    )


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> larder.Dataset:
    folder = tmp_path_factory.mktemp("arrow")
    pq.write_table(table(), folder / "a.parquet", row_group_size=64)
    return larder.open(f"file://{folder}", cluster="none")


def test_samples_are_those_of_the_writer(dataset: larder.Dataset) -> None:
    read = pa.record_batch(dataset[:].to_arrow())
    read.validate(full=True)
    written = table()
    assert read.schema.names == written.schema.names
    for name in written.schema.names:
        assert read.column(name).to_pylist() == written.column(name).to_pylist(), name
    types = {field.name: str(field.type) for field in read.schema}
    assert types == {
        "caption": "large_string",
        "picture": "large_binary",
        "label": "int64",
        "part": "float",
        "is_even": "bool",
        "at": "timestamp[us]",
        "day": "date32[day]",
        "ids": "large_list<item: int32>",
        "maybe": "int32",
        "name": "large_string",
    }


def test_batches_are_exported_with_their_own_rows(dataset: larder.Dataset) -> None:
    for batch in dataset.loader(64, seed=2, last="uneven", output="numpy"):
        read = pa.table(batch.to_arrow())
        assert read.column("label").to_pylist() == batch["label"].tolist()
        assert read.column("caption").to_pylist() == batch["caption"].tolist()
        assert read.num_rows == len(batch.to_arrow()) == len(batch["label"])


def test_values_are_the_same_memory(dataset: larder.Dataset) -> None:
    taken = dataset.take(range(256), output="numpy")
    read = pa.record_batch(taken.to_arrow())
    assert read.column("label").buffers()[1].address == taken["label"].ctypes.data
    assert read.column("maybe").buffers()[1].address == taken["maybe"].ctypes.data
    _, offsets, data = read.column("caption").buffers()
    assert offsets.address == taken["caption"].offsets.ctypes.data
    assert data.address == taken["caption"].data.ctypes.data
    assert read.column("ids").values.buffers()[1].address == taken["ids"].data.ctypes.data


def test_arrays_outlive_their_batch_and_are_released_once(dataset: larder.Dataset) -> None:
    column = pa.record_batch(dataset[:].to_arrow()).column("caption")
    exported = dataset[:].to_arrow()
    capsules = exported.__arrow_c_array__()
    del exported
    gc.collect()
    assert column[7].as_py() == "capti\u00f3n 7"
    twice = pa.RecordBatch._import_from_c_capsule(*capsules)
    del capsules
    gc.collect()
    assert twice.column("label")[9].as_py() == 9
    del twice, column
    gc.collect()


def test_each_type_of_numbers_and_shape_is_exported(
    opened: Any, types: dict[str, np.ndarray]
) -> None:
    read = pa.record_batch(opened("s3://data/types")[:].to_arrow())
    read.validate(full=True)
    for name, array in types.items():
        kind = str(read.schema.field(name).type)
        assert kind.startswith("fixed_size_list<item: fixed_size_list<item: "), kind
        flat = read.column(name).flatten().flatten()
        if array.dtype.kind in "biuf" and "float8" not in name:
            assert flat.to_pylist() == array.ravel().tolist(), name
        else:
            assert [item.as_py() for item in flat] == [item.tobytes() for item in array.ravel()], (
                name
            )


def test_ragged_rows_with_a_shape_are_lists_of_lists() -> None:
    column = larder.Ragged.of([np.zeros((2, 3), np.float32), np.ones((1, 3), np.float32)])
    read = pa.record_batch(larder.Samples(box=column).to_arrow())
    assert read.column("box").to_pylist() == [[[0.0] * 3] * 2, [[1.0] * 3]]


def test_slices_and_arrays_with_gaps_are_exported() -> None:
    texts = larder.Ragged.of(["a", "\u00e9\u00e9", "", "d"])[1:]
    odd = np.arange(6)[::2]
    read = pa.record_batch(larder.Samples(text=texts, odd=odd).to_arrow())
    assert read.to_pydict() == {"text": ["\u00e9\u00e9", "", "d"], "odd": [0, 2, 4]}


def test_json_is_text_with_the_type_of_json(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a":1}\n{"a":[2]}\n')
    ds = larder.open(f"file://{tmp_path}", cluster="none")
    read = pa.record_batch(ds[:].to_arrow())
    (field,) = read.schema
    assert str(field.type) == "extension<arrow.json>"
    assert read.column(0).to_pylist() == ['{"a":1}', '{"a":[2]}']


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"a": np.zeros(3), "b": np.zeros(2)}, "column 'b' does not have the rows of the others"),
        ({"a": np.zeros(3), "a.valid": np.ones(2, bool)}, "column 'a' does not have the rows"),
        ({"a": np.array(["x", "yy"])}, "Arrow has no type for column 'a' of <U2"),
        ({"a": np.array(1)}, "column 'a' has one value in all"),
        ({"a": larder.Ragged(np.zeros(3), np.array([0, 5]))}, "does not have the rows"),
        ({"a": larder.Ragged(np.zeros(3), np.array([0, 2, 1]))}, "does not have the rows"),
        ({"a": larder.Ragged(np.zeros(3), np.array([-1, 2]))}, "does not have the rows"),
        ({"a\0b": np.zeros(3)}, "Arrow has no column"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns: dict[str, Any], says: str) -> None:
    with pytest.raises(larder.InvalidArgument, match=says):
        larder.Samples(columns).to_arrow()


def test_text_cut_within_a_letter_is_refused() -> None:
    whole = np.frombuffer("\u00e9".encode(), np.uint8)
    column = larder.Ragged(whole, np.array([0, 1, 2]), "text", "t")
    with pytest.raises(ValueError, match="row 0 of column 't' is not UTF-8"):
        larder.Samples(t=column).to_arrow()


def test_no_rows_are_exported(dataset: larder.Dataset) -> None:
    read = pa.record_batch(dataset[3:3].to_arrow())
    assert (read.num_rows, read.num_columns) == (0, 10)
