"""Which objects under a prefix are data: those that the owner of a folder means."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import larder
from harness import S3Server

#: What `datasets.Dataset.save_to_disk` writes beside its Arrow files.
STATE = {
    "_fingerprint": "0123456789abcdef",
    "_format_columns": None,
    "_format_kwargs": {},
    "_format_type": None,
    "_output_all_columns": False,
    "_split": None,
}


def opened(folder: Path | str) -> larder.Dataset:
    return larder.open(f"file://{folder}", cluster="none")


def save(folder: Path, parts: list[list[int]]) -> None:
    """Write a dataset as `datasets` saves it: streams, and a state that names them."""
    folder.mkdir(exist_ok=True)
    names = [f"data-{n:05d}-of-{len(parts):05d}.arrow" for n in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        write_stream(folder / name, part)
    state = {"_data_files": [{"filename": name} for name in names], **STATE}
    (folder / "state.json").write_text(json.dumps(state))


def write_stream(path: Path, values: list[int]) -> None:
    table = pa.table({"x": values})
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)


def values(ds: larder.Dataset, column: str = "x") -> list[int]:
    return [int(value) for value in ds.take(range(len(ds)), output="numpy")[column]]


def test_saved_dataset_has_the_files_that_its_state_names(tmp_path: Path) -> None:
    save(tmp_path, [[0, 1], [2], [3], [4]])
    save(tmp_path, [[10], [11, 12]])
    write_stream(tmp_path / "cache-1f2e3d.arrow", [99])
    report = larder.index(f"file://{tmp_path}")
    assert values(opened(tmp_path)) == [10, 11, 12]
    assert report.reasons == {
        "is not named in its state.json": 4,
        "is a cache that Hugging Face datasets can make again": 1,
    }
    assert not report.warnings


def test_state_orders_its_files_and_misses_those_that_are_not_there(tmp_path: Path) -> None:
    save(tmp_path, [[0], [1], [2]])
    state = json.loads((tmp_path / "state.json").read_text())
    state["_data_files"].reverse()
    (tmp_path / "state.json").write_text(json.dumps(state))
    assert values(opened(tmp_path)) == [2, 1, 0]
    (tmp_path / "data-00001-of-00003.arrow").unlink()
    with pytest.raises(larder.DataLoss, match=r"data-00001-of-00003\.arrow.*is not there"):
        larder.index(f"file://{tmp_path}")


def test_partitions_of_pyarrow_are_columns(tmp_path: Path) -> None:
    table = pa.table(
        {
            "x": [1, 2, 3, 4],
            "label": ["cat", "cat", "dog ö/=", None],
            "year": [2024, 2025, 2024, 2024],
        }
    )
    pq.write_to_dataset(table, tmp_path, partition_cols=["label", "year"])
    ds = opened(tmp_path)
    theirs = pa.dataset.dataset(tmp_path, partitioning="hive").to_table().to_pydict()
    rows = ds.take(range(4), output="numpy")
    assert rows["x"].tolist() == theirs["x"]
    assert rows["year"].tolist() == theirs["year"]
    labels = [bytes(rows["label"].row(row)).decode() or None for row in range(4)]
    assert labels == theirs["label"]
    assert rows["label.valid"].tolist() == [label is not None for label in theirs["label"]]
    assert list(larder.index(f"file://{tmp_path}", columns=["year"]).tensors) == ["year"]


def test_leftovers_of_spark_are_no_rows(tmp_path: Path) -> None:
    table = pa.table({"x": list(range(4))})
    for name in (
        "part-0.parquet",
        "_temporary/0/task_1/part-1.parquet",
        ".spark-staging-1/p.parquet",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
    assert len(opened(tmp_path)) == pa.dataset.dataset(tmp_path).count_rows() == 4
    report = larder.index(f"file://{tmp_path}")
    assert report.reasons == {"is a leftover of a Spark job": 2}


def arrays(folder: Path, names: dict[str, int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in names.items():
        (folder / name).parent.mkdir(exist_ok=True)
        np.save(folder / name, np.full(2, value))


def test_files_are_opened_by_their_addresses(s3: S3Server) -> None:
    arrays(s3.folder / "data" / "named", {f"x-{n}.npy": n for n in range(4)})
    uri = "s3://data/named"

    def first(uris: str | list[str]) -> list[int]:
        return [int(value) for value in values(larder.open(uris, cluster="none"), "x")[::2]]

    assert first(f"{uri}/x-2.npy") == [2]
    assert first(f"{uri}/x-{{1..3}}.npy") == [1, 2, 3]
    assert first([f"{uri}/x-3.npy", f"{uri}/x-0.npy"]) == [0, 3]
    assert first(uri) == [0, 1, 2, 3], "files have tags of their own"
    one = larder.open(f"{uri}/x-2.npy")
    assert (values(one, "x"), one.metadata["include"]) == ([2, 2], "x-2.npy")
    again = larder.open(f"{uri}/x-2.npy", cluster="none")
    assert again.snapshot == one.snapshot
    with pytest.raises(larder.NotFound, match=r"there is no object 'x-4\.npy'"):
        larder.open(f"{uri}/x-{{3..4}}.npy", cluster="none")
    with pytest.raises(larder.InvalidArgument, match="another bucket"):
        larder.open([f"{uri}/x-0.npy", "s3://other/x-1.npy"], cluster="none")


def test_folder_with_the_name_of_a_file_is_a_prefix(tmp_path: Path) -> None:
    folder = tmp_path / "table.parquet"
    folder.mkdir()
    pq.write_table(pa.table({"x": [1, 2]}), folder / "part-0.parquet")
    assert values(opened(folder)) == [1, 2]
    assert opened(folder).uri == f"file://{folder}"


def test_columns_without_a_value_in_one_file_agree_with_any(tmp_path: Path) -> None:
    for number, (s, i) in enumerate([(["x", "y"], pa.nulls(2)), (pa.nulls(2), [5, 6])]):
        pq.write_table(pa.table({"s": s, "i": i}), tmp_path / f"{number}.parquet")
    rows = opened(tmp_path).take(range(4), output="numpy")
    assert rows["s.valid"].tolist() == [True, True, False, False]
    assert [bytes(rows["s"].row(row)) for row in range(4)] == [b"x", b"y", b"", b""]
    assert rows["i.valid"].tolist() == [False, False, True, True]
    assert rows["i"].tolist() == [0, 0, 5, 6]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([1], pa.timestamp("ms")), pa.array([1], pa.timestamp("us"))),
        (pa.array([1], pa.date32()), pa.array([1], pa.int32())),
        (pa.array([1], pa.time32("s")), pa.array([1], pa.date32())),
        (pa.array(["a"]), pa.array([b"a"])),
    ],
)
@pytest.mark.parametrize("extension", ["parquet", "arrow"])
def test_columns_with_other_meanings_are_refused(
    tmp_path: Path, one: pa.Array, other: pa.Array, extension: str
) -> None:
    for name, array in (("a", one), ("b", other)):
        table = pa.table({"t": array})
        if extension == "parquet":
            pq.write_table(table, tmp_path / f"{name}.parquet")
        else:
            with pa.ipc.new_file(tmp_path / f"{name}.arrow", table.schema) as writer:
                writer.write_table(table)
    with pytest.raises(larder.InvalidArgument, match=rf"in 'a\.{extension}'.* in 'b\.{extension}'"):
        larder.index(f"file://{tmp_path}")


def test_own_column_with_the_name_of_a_mask_is_told_from_it(tmp_path: Path) -> None:
    table = pa.table({"x": [1, 2], "x.valid": [False, True]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert values(opened(tmp_path), "x.valid") == [0, 1]
    pq.write_table(pa.table({"x": [1, None], "x.valid": [False, True]}), tmp_path / "b.parquet")
    with pytest.raises(larder.InvalidArgument, match=r"which rows of 'x' have a value"):
        larder.index(f"file://{tmp_path}")


def test_mask_with_a_batch_of_nulls_alone_agrees_with_other_files(tmp_path: Path) -> None:
    for name, rows in {"a": [None, None, 3, None], "b": [5, 6, 7, 8], "c": [9, None]}.items():
        table = pa.table({"x": pa.array(rows, pa.int64())})
        with pa.ipc.new_file(tmp_path / f"{name}.arrow", table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    ds = opened(tmp_path)
    assert values(ds, "x") == [0, 0, 3, 0, 5, 6, 7, 8, 9, 0]
    assert values(ds, "x.valid") == [0, 0, 1, 0, 1, 1, 1, 1, 1, 0]


def test_mask_of_a_column_that_one_file_cannot_give_is_left_out_with_it(tmp_path: Path) -> None:
    kind = pa.list_(pa.timestamp("ns"))
    for name, times in {"a": [[1], [2]], "b": [[3, None], None]}.items():
        table = pa.table({"id": [1, 2], "at": pa.array(times, kind)})
        options = {"use_deprecated_int96_timestamps": name == "a"}
        pq.write_table(table, tmp_path / f"{name}.parquet", **options)
    report = larder.index(f"file://{tmp_path}")
    assert list(report.tensors) == ["id"]
    assert [name for name, column, _ in report.left_out if column == "at"] == ["a.parquet"]
