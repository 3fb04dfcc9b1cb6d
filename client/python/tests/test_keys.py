"""Rows that a program chooses by key."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import larder
from harness import Node, S3Server

ROWS = 5000
PREFIX = "s3://data/products"

Rows = dict[str, np.ndarray]


def texts_of(rows: Rows) -> list[str]:
    """The ragged column as strings."""
    ends = rows["sku.offsets"]
    return [rows["sku"][begin:end].tobytes().decode() for begin, end in pairwise(ends)]


@pytest.fixture(scope="module")
def products(s3: S3Server) -> Rows:
    """Rows with a key of each kind, in two files and many shards."""
    rng = np.random.default_rng(3)
    numbers = rng.permutation(10 * ROWS)[:ROWS]
    skus = [f"sku-{number:x}-ü".encode() for number in numbers]
    rows = {
        "id": numbers.astype(np.int64) * 1_000_003 - 2**40,
        "hash": numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15),
        "code": np.array([f"c{number}" for number in numbers], "S12")
        .view(np.uint8)
        .reshape(-1, 12),
        "sku": np.frombuffer(b"".join(skus), np.uint8),
        "sku.offsets": np.cumsum([0, *map(len, skus)]),
        "row": np.arange(ROWS, dtype=np.int32),
        "twice": np.arange(ROWS, dtype=np.uint16) % 4000,
        "price": rng.random(ROWS),
    }
    folder = s3.folder / "data/products"
    folder.mkdir()
    half = ROWS // 2
    cut = int(rows["sku.offsets"][half])
    for name, part, text, offsets in (
        ("a", slice(half), slice(cut), rows["sku.offsets"][: half + 1]),
        ("b", slice(half, None), slice(cut, None), rows["sku.offsets"][half:] - cut),
    ):
        even = {key: column[part].copy() for key, column in rows.items() if "sku" not in key}
        even |= {"sku": rows["sku"][text].copy(), "sku.offsets": offsets.copy()}
        save_file(even, folder / f"{name}.safetensors")
    larder.index(PREFIX, shard_bytes=20_000)
    return rows


def keyed(column: str, tag: str) -> None:
    # A snapshot has one key, so each column gets a snapshot of its own.
    larder.index(PREFIX, key=column, shard_bytes=20_000 + len(column) * 100, tag=tag)


@pytest.fixture(params=["local", "remote", "origin"])
def way(request: pytest.FixtureRequest, node: Node) -> dict[str, Any]:
    if request.param == "origin":
        return {"cluster": "none"}
    return {"cluster": node.address, "local": request.param == "local"}


@pytest.mark.parametrize("column", ["id", "hash", "code", "sku"])
def test_samples_are_found_by_each_kind_of_key(
    products: Rows, way: dict[str, Any], column: str
) -> None:
    keyed(column, column)
    dataset = larder.open(f"{PREFIX}@{column}", **way)
    keys: Any = products.get(column)
    if column == "sku":
        keys = np.array(texts_of(products))
    elif column == "code":
        keys = np.ascontiguousarray(keys).view("S12").reshape(-1)
    order = np.random.default_rng(1).permutation(ROWS)
    positions = dataset.positions(keys[order])
    assert positions.dtype == np.int64
    np.testing.assert_array_equal(positions, order)
    for given in (keys[[7, 7, 4999]], keys[[7, 7, 4999]].tolist(), tuple(keys[[7, 7, 4999]])):
        assert dataset.take(keys=given, tensors=["row"])["row"].tolist() == [7, 7, 4999]
    assert dataset.positions([]).tolist() == []
    out = {"row": np.zeros(2, np.int32)}
    dataset.take(keys=keys[[3, 1]], tensors=["row"], out=out)
    assert out["row"].tolist() == [3, 1]


@pytest.fixture
def dataset(products: Rows, way: dict[str, Any]) -> larder.Dataset:
    keyed("id", "id")
    return larder.open(f"{PREFIX}@id", **way)


def test_missing_key_is_an_error_or_left_out_by_a_mask(
    dataset: larder.Dataset, products: Rows
) -> None:
    keys = products["id"][:6].copy()
    keys[[1, 4]] += 1
    what = f"there is no sample whose 'id' is {keys[1]}, nor for 1 more of 6 keys"
    with pytest.raises(larder.NotFound, match=what):
        dataset.positions(keys)
    with pytest.raises(LookupError, match=what):
        dataset.take(keys=keys)
    positions, found = dataset.positions(keys, missing="mask")
    assert positions.tolist() == [0, 2, 3, 5]
    assert found.tolist() == [True, False, True, True, False, True]
    for odd in ([2**64 - 1], ["a text"], np.array([2**63], np.uint64)):
        assert dataset.positions(odd, missing="mask")[1].tolist() == [False]


def test_part_of_a_dataset_counts_and_has_its_own_samples(
    dataset: larder.Dataset, products: Rows
) -> None:
    part = dataset.select(range(1, ROWS, 2))
    assert part.positions(products["id"][[1, 4999]]).tolist() == [0, 2499]
    assert part.take(keys=products["id"][[4999]], tensors=["row"])["row"].tolist() == [4999]
    with pytest.raises(larder.NotFound, match="there is no sample whose 'id' is"):
        part.positions(products["id"][[2]])


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ([0.5], "these are no keys: 'float' object"),
        (np.array([0.5]), "array of float64"),
        ([[1]], "array of int64 of shape"),
        ([1, "a"], "array of <U"),
        ([None], "array of object"),
        ("a", "keys is one text"),
        ([True], "array of bool"),
        (5, "array of int64 of shape"),
    ],
)
def test_what_is_no_key_is_refused(dataset: larder.Dataset, keys: Any, why: str) -> None:
    with pytest.raises(larder.InvalidArgument, match=why):
        dataset.positions(keys)
    for both in ({}, {"indices": [1], "keys": [1]}):
        with pytest.raises(larder.InvalidArgument, match="needs indices or keys"):
            dataset.take(**both)


def test_dataset_without_keys_says_how_to_make_them(
    products: Rows, way: dict[str, Any], tmp_path: Path
) -> None:
    larder.index(PREFIX, shard_bytes=4096, tag="plain")
    dataset = larder.open(f"{PREFIX}@plain", **way)
    hint = rf'larder.index\("{PREFIX}", key="COLUMN"\)'
    with pytest.raises(larder.NotFound, match=f"(?s)has no key table.*{hint}"):
        dataset.positions([1])


@pytest.mark.parametrize(
    ("column", "why"),
    [
        ("twice", "samples 0 and 4000 both have 0 in 'twice'"),
        ("price", "'price' is float64"),
        ("picture", "has no column 'picture'; it has: "),
    ],
)
def test_column_that_holds_no_keys_ends_the_index(products: Rows, column: str, why: str) -> None:
    with pytest.raises(larder.InvalidArgument, match=why):
        larder.index(PREFIX, key=column, tag="never")
    with pytest.raises(larder.NotFound, match="never"):
        larder.open(f"{PREFIX}@never", cluster="none")


def test_texts_that_are_long_or_come_twice_end_the_index(tmp_path: Path) -> None:
    def index(*texts: bytes) -> None:
        offsets = np.cumsum([0, *map(len, texts)])
        tensors = {"id": np.frombuffer(b"".join(texts), np.uint8), "id.offsets": offsets}
        save_file(tensors | {"x": np.zeros(len(texts))}, tmp_path / "all.safetensors")
        larder.index(f"file://{tmp_path}", key="id")

    index(b"", b"a" * 1024, b"a\0", b"a")
    dataset = larder.open(f"file://{tmp_path}", cluster="none")
    assert dataset.positions([b"a", b"a\0", b"", b"a" * 1024]).tolist() == [3, 2, 0, 1]
    with pytest.raises(larder.InvalidArgument, match="sample 1 has 1025 bytes in 'id'"):
        index(b"a", b"a" * 1025)
    with pytest.raises(
        larder.InvalidArgument, match="samples 1 and 2 both have 'it\\\\'s' in 'id'"
    ):
        index(b"a", b"it's", b"it's")


def test_lookup_asks_no_node(products: Rows, node: Node) -> None:
    keyed("id", "id")
    dataset = larder.open(f"{PREFIX}@id", cluster=node.address, patience=5)
    dataset.positions(products["id"][:1])
    with node.silent():
        np.testing.assert_array_equal(dataset.positions(products["id"]), np.arange(ROWS))


def test_key_tables_are_no_snapshots_of_their_own(products: Rows, tmp_path: Path) -> None:
    save_file({"id": np.arange(9)}, tmp_path / "all.safetensors")
    report = larder.index(f"file://{tmp_path}", key="id")
    with pytest.raises(larder.InvalidArgument, match="a name for Larder's own use"):
        larder.index(f"file://{tmp_path}", tag=f"keys-of-{report.snapshot}")
