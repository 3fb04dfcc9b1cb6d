"""Columns with their meaning: text as ``str``, JSON as documents, bytes as arrays."""

from __future__ import annotations

import datetime
import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

import larder
from test_formats import write_tar

ROWS = 40
CAPTIONS = [f"capti\u00f3n {row} \u2713" for row in range(ROWS)]
PICTURES = [bytes([row]) * (row % 7) for row in range(ROWS)]


def write(folder: Path) -> str:
    folder.mkdir()
    start = datetime.datetime(2026, 1, 1)
    table = pa.table(
        {
            "caption": CAPTIONS,
            "picture": pa.array(PICTURES, pa.binary()),
            "label": pa.array(range(ROWS), pa.int64()),
            "is_even": [row % 2 == 0 for row in range(ROWS)],
            "at": pa.array(
                [start + datetime.timedelta(seconds=row) for row in range(ROWS)],
                pa.timestamp("ms"),
            ),
            "ids": pa.array([list(range(row % 3)) for row in range(ROWS)], pa.list_(pa.int32())),
        }
    )
    pq.write_table(table, folder / "a.parquet")
    return f"file://{folder}"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> larder.Dataset:
    return larder.open(write(tmp_path_factory.mktemp("text") / "data"), cluster="none")


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> larder.Dataset:
    folder = tmp_path_factory.mktemp("lines")
    documents = "".join(json.dumps({"n": row, "t": [row]}) + "\n" for row in range(ROWS))
    (folder / "a.jsonl").write_text(documents)
    return larder.open(f"file://{folder}", cluster="none")


def test_tensors_and_schema_say_what_values_mean(dataset: larder.Dataset) -> None:
    specs = dataset.tensors
    assert specs["caption"] == larder.TensorSpec("uint8", (None,), "text")
    assert specs["picture"].logical == "bytes"
    assert specs["label"] == larder.TensorSpec("int64", ())
    assert specs["is_even"] == larder.TensorSpec("bool", (), "boolean")
    assert specs["at"] == larder.TensorSpec("int64", (), "timestamp[ms]")
    assert str(dataset.schema()).splitlines() == [
        "column   type   meaning        shape of a sample",
        "caption  uint8  text           [any]",
        "picture  uint8  bytes          [any]",
        "label    int64  number         one value",
        "is_even  bool   boolean        one value",
        "at       int64  timestamp[ms]  one value",
        "ids      int32  number         [any]",
    ]


def test_rows_of_text_are_str_wherever_they_come_alone(dataset: larder.Dataset) -> None:
    for columns in (
        next(iter(dataset.loader(ROWS, shuffle=False))),
        dataset.take(range(ROWS), output="numpy"),
        dataset[:],
        dataset.rows(0, ROWS),
        dataset[::1],
    ):
        texts = columns["caption"]
        assert texts[3] == CAPTIONS[3]
        assert type(texts[-1]) is str
        assert texts.tolist() == list(texts) == CAPTIONS
        assert texts[2:4].tolist() == CAPTIONS[2:4]
        assert bytes(texts.row(3)) == CAPTIONS[3].encode()
        assert texts.data.dtype == np.uint8
    assert dataset[5]["caption"] == CAPTIONS[5]
    assert [sample["caption"] for sample in dataset.__getitems__([4, 9])] == [
        CAPTIONS[4],
        CAPTIONS[9],
    ]


def test_rows_of_bytes_are_arrays(dataset: larder.Dataset) -> None:
    column = dataset[:]["picture"]
    assert column[5].dtype == np.uint8
    assert [bytes(row) for row in column] == column.tolist() == PICTURES
    assert bytes(dataset[5]["picture"]) == PICTURES[5]
    with pytest.raises(TypeError, match="'picture' has rows of bytes, which are no JSON"):
        column.json()


def test_json_rows_are_str_with_json(lines: larder.Dataset) -> None:
    (name,) = lines.tensors
    assert lines.tensors[name].logical == "json"
    column = lines[:][name]
    assert isinstance(column[3], str)
    assert isinstance(column[3], larder.JsonText)
    assert column[3].json() == lines[3][name].json() == {"n": 3, "t": [3]}
    assert column.json()[7] == json.loads(column[7]) == {"n": 7, "t": [7]}
    assert pickle.loads(pickle.dumps(column[3])).json() == {"n": 3, "t": [3]}
    broken = larder.Ragged.of(["{}", "no"])
    with pytest.raises(
        ValueError, match=r"row 1 of the larder\.Ragged is no JSON: Expecting value"
    ):
        broken.json()


def test_keys_and_texts_of_tars_are_str(tmp_path: Path) -> None:
    write_tar(tmp_path / "0.tar", {"a.txt": "\u00e9".encode(), "b.txt": b"b"})
    ds = larder.open(f"file://{tmp_path}", cluster="none")
    assert ds[:]["__key__"].tolist() == ["a", "b"]
    assert ds[0] == {"__key__": "a", "txt": "\u00e9"}


def test_rows_that_are_not_utf8_are_named_and_their_bytes_available(tmp_path: Path) -> None:
    write_tar(tmp_path / "0.tar", {"a.txt": b"a", "b.txt": b"ab\xe9c"})
    ds = larder.open(f"file://{tmp_path}", cluster="none")
    column = ds[:]["txt"]
    assert column[0] == "a"
    said = "row 1 of column 'txt' is not UTF-8: byte 2 is 0xe9"
    for use in (lambda: column[1], column.tolist, lambda: list(column), column.json):
        with pytest.raises(ValueError, match=said):
            use()
    with pytest.raises(ValueError, match="column 'txt' of sample 1 is not UTF-8: byte 2 is 0xe9"):
        ds[1]
    with pytest.raises(ValueError, match="row 1 of column 'txt' is not UTF-8, as Arrow's text"):
        ds[:].to_arrow()
    assert bytes(column.row(1)) == b"ab\xe9c"
    assert "ab\ufffdc" in repr(column)


def test_columns_print_text_as_text_and_bytes_as_a_length(dataset: larder.Dataset) -> None:
    batch = next(iter(dataset.loader(4, shuffle=False)))
    assert repr(batch).splitlines() == [
        "<larder.Batch of 4 rows, before position 4 of epoch 0:",
        "  caption  4 rows of text: 'capti\u00f3n 0 \u2713', 'capti\u00f3n 1 \u2713', "
        "'capti\u00f3n 2 \u2713', ...",
        "  picture  4 rows of bytes, 0 to 3 bytes",
        "  label    int64 [4]",
        "  is_even  bool [4]",
        "  at       timestamp[ms] (int64) [4]",
        "  ids      4 rows of int32 [any]>",
    ]
    long = larder.Ragged.of(["x" * 200, ""])
    assert repr(long) == f"<larder.Ragged of 2 rows of text: '{'x' * 37}...', ''>"
    assert repr(dataset.take([1], tensors=["label"])) == "<larder.Samples:\n  label  int64 [1]>"


def test_transforms_get_and_return_texts(dataset: larder.Dataset) -> None:
    def shout(sample: dict[str, Any]) -> dict[str, Any]:
        assert isinstance(sample["caption"], str)
        return {**sample, "caption": sample["caption"].upper(), "twice": sample["caption"] * 2}

    def whole(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "lengths": np.array([len(text) for text in batch["caption"]])}

    loader = dataset.loader(8, shuffle=False, transform=shout, batch_transform=whole)
    batch = next(iter(loader))
    assert batch["caption"].tolist() == [text.upper() for text in CAPTIONS[:8]]
    assert batch["twice"].tolist() == [text * 2 for text in CAPTIONS[:8]]
    assert [bytes(row) for row in batch["picture"]] == PICTURES[:8]
    assert batch["picture"].logical == "bytes"
    assert batch["lengths"].tolist() == [len(text) for text in CAPTIONS[:8]]


def test_text_that_a_transform_makes_of_some_samples_only_is_refused(
    dataset: larder.Dataset,
) -> None:
    def mixed(sample: dict[str, Any]) -> dict[str, Any]:
        odd = sample["label"] % 2
        return {"x": larder.Ragged.of([np.zeros(3, np.uint8)]) if odd else sample["caption"]}

    with pytest.raises(larder.TransformError) as raised:
        list(dataset.loader(8, shuffle=False, transform=mixed))
    assert "'x' is number, and for the first sample of the batch it was text" in str(
        raised.value.__cause__
    )


def test_columns_pickle_and_are_nodes_of_jax_trees(dataset: larder.Dataset) -> None:
    import jax

    taken = dataset.take(range(3), tensors=["caption", "at"], output="numpy")
    copy = pickle.loads(pickle.dumps(taken))
    assert copy["caption"].tolist() == CAPTIONS[:3]
    assert repr(copy) == repr(taken)
    rebuilt = jax.tree.map(lambda leaf: leaf, taken)
    assert isinstance(rebuilt, larder.Samples)
    assert repr(rebuilt) == repr(taken)
    batch = next(iter(dataset.loader(4, tensors=["label"], output="jax")))
    assert float(jax.jit(lambda batch: batch["label"].sum())(batch)) >= 0


def test_samples_whose_transform_fails_are_skipped_and_counted(
    dataset: larder.Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    def picky(sample: dict[str, Any]) -> dict[str, Any] | None:
        if sample["label"] in (3, 4, 9):
            raise KeyError("no caption")
        return None if sample["label"] == 39 else sample

    with pytest.raises(larder.TransformError, match="failed on sample 3"):
        list(dataset.loader(10, shuffle=False, transform=picky))
    for workers in (0, 2):
        loader = dataset.loader(
            10, shuffle=False, transform=picky, bad="skip", workers=workers, output="numpy"
        )
        with caplog.at_level("INFO", "larder"):
            batches = list(loader)
        wanted = list(range(ROWS))
        wanted[3], wanted[4], wanted[9], wanted[39] = 5, 5, 0, 30
        assert [sample for batch in batches for sample in batch.samples.tolist()] == wanted
        assert [label for batch in batches for label in batch["label"].tolist()] == wanted
        assert [text for batch in batches for text in batch["caption"]] == [
            CAPTIONS[sample] for sample in wanted
        ]
        assert loader.stats()["skipped"] == 4
        assert "the transform skips sample 3 in epoch 0: KeyError: 'no caption'" in caplog.text


def test_batch_without_a_good_sample_is_an_error(dataset: larder.Dataset) -> None:
    loader = dataset.loader(10, transform=lambda sample: None, bad="skip")
    with pytest.raises(larder.TransformError, match="has skipped each of them"):
        next(iter(loader))


def test_skip_without_decode_and_transform_is_refused(dataset: larder.Dataset) -> None:
    with pytest.raises(larder.InvalidArgument, match="bad='skip' has nothing to skip"):
        dataset.loader(10, bad="skip")


def test_columns_that_the_index_left_out_are_named_with_the_reason(tmp_path: Path) -> None:
    rows = {"x": np.arange(8), "rate": np.ones(3, np.float32)}
    save_file(rows, tmp_path / "a.safetensors")
    larder.index(f"file://{tmp_path}")
    ds = larder.open(f"file://{tmp_path}", cluster="none")
    why = ds.left_out["rate"]
    assert list(ds.left_out) == ["rate"]
    assert ds.metadata == {}
    batch = next(iter(ds.loader(4)))
    for columns in (batch, ds[:], ds.take([1])):
        with pytest.raises(KeyError) as raised:
            columns["rate"]
        assert raised.value.args == (f"'rate' was left out by the index: it {why}",)
        with pytest.raises(KeyError, match="there is no column 'y'; the columns are x"):
            columns["y"]
        assert columns.get("rate") is None
    said = f"the dataset has no tensor 'rate': the index left it out: it {why}"
    for use in (
        lambda: ds.loader(4, tensors=["rate"]),
        lambda: ds.take([1], tensors=["rate"]),
        lambda: ds.take([1], tensors=["rate"], out={"rate": np.ones(1, np.float32)}),
    ):
        with pytest.raises(larder.NotFound, match=re.escape(said)):
            use()


def test_mixtures_have_the_columns_of_equal_meaning(tmp_path: Path) -> None:
    for name, kind in (("a", pa.string()), ("b", pa.binary()), ("c", pa.string())):
        (tmp_path / name).mkdir()
        table = pa.table({"x": pa.array(["t"] * 8, kind), "n": pa.array(range(8), pa.int64())})
        pq.write_table(table, tmp_path / name / "0.parquet")
    a, b, c = (larder.open(f"file://{tmp_path}/{name}", cluster="none") for name in "abc")
    assert list(next(iter(larder.mix([(a, 1), (b, 1)]).loader(4)))) == ["n"]
    with pytest.raises(larder.InvalidArgument, match="tensor 'x' is bytes in some and text in"):
        larder.mix([(a, 1), (b, 1)]).loader(4, tensors=["x"])
    assert next(iter(larder.mix([(a, 1), (c, 1)]).loader(4)))["x"].tolist() == ["t"] * 4
