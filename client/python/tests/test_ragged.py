"""Rows of different lengths: from files to batches, by every way and through every step."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import larder
import transforms
from conftest import flat
from harness import Node

URI = "s3://data/ragged"

Rows = dict[str, list[np.ndarray]]


@pytest.fixture(scope="module", autouse=True)
def _small_shards(s3: object) -> None:
    report = larder.index(URI, shard_bytes=20_000, checksum=True)
    assert report.shards > 5
    assert report.tensors["box"] == larder.TensorSpec("float32", (None, 4))
    assert report.left_out == []


@pytest.fixture(params=["local", "remote", "origin"])
def dataset(request: pytest.FixtureRequest, node: Node) -> larder.Dataset:
    """The dataset by each way that rows come."""
    if request.param == "origin":
        return larder.open(URI, cluster="none")
    return larder.open(URI, cluster=node.address, local=request.param == "local")


@pytest.fixture
def mapped(node: Node) -> larder.Dataset:
    """The dataset with all its shards mapped, after the node has filled them."""
    dataset = larder.open(URI, cluster=node.address)
    deadline = time.monotonic() + 60
    while True:
        before = larder.stats()["copied_bytes"]
        for index in range(len(dataset)):
            dataset[index]
        if larder.stats()["copied_bytes"] == before:
            return dataset
        assert time.monotonic() < deadline, "not all shards are handed out"


def check(batch: Any, samples: Any, ragged: Rows) -> None:
    """Every row of a batch, or of stacked samples, is that of the source."""
    for name in ("text", "box"):
        column = batch[name]
        assert isinstance(column, larder.Ragged)
        data, offsets = np.asarray(column.data), np.asarray(column.offsets)
        assert (offsets[0], offsets[-1], len(offsets)) == (0, len(data), len(samples) + 1)
        assert data.dtype == ragged[name][0].dtype
        for row, sample in enumerate(samples):
            expected = ragged[name][int(sample)]
            np.testing.assert_array_equal(data[offsets[row] : offsets[row + 1]], expected)
            assert column.row(row).shape == expected.shape
    assert np.asarray(batch["label"]).tolist() == [int(sample) for sample in samples]


def test_ragged_shape_has_no_first_dimension(dataset: larder.Dataset) -> None:
    assert dataset.tensors == {
        "box": larder.TensorSpec("float32", (None, 4)),
        "label": larder.TensorSpec("int64", ()),
        "text": larder.TensorSpec("uint16", (None,)),
    }


def test_ragged_samples_are_single_rows(dataset: larder.Dataset, ragged: Rows) -> None:
    for index in (0, 7, 99, 100, 101, -1):
        sample = dataset[index]
        for name in ("text", "box"):
            np.testing.assert_array_equal(sample[name], ragged[name][index])
            assert sample[name].flags.writeable
        assert sample["label"] == index % len(dataset)
    samples = dataset.__getitems__([3, 0, 3, 239])
    for index, sample in zip([3, 0, 3, 239], samples, strict=True):
        np.testing.assert_array_equal(sample["text"], ragged["text"][index])
        np.testing.assert_array_equal(sample["box"], ragged["box"][index])


def test_slices_are_ragged(dataset: larder.Dataset, ragged: Rows) -> None:
    check(dataset[95:105], range(95, 105), ragged)
    check(dataset[3:30:7], range(3, 30, 7), ragged)
    check(dataset.rows(7, 8), [7], ragged)
    assert list(dataset.rows(0, 3, tensors=["box"])) == ["box"]
    part = dataset.select([0, 7, 230])
    check(part[:], [0, 7, 230], ragged)


@pytest.mark.parametrize("output", ["numpy", "jax"])
@pytest.mark.parametrize("shuffle", ["none", "global"])
def test_batches_are_those_of_the_source_in_the_loaders_order(
    dataset: larder.Dataset, ragged: Rows, output: str, shuffle: str
) -> None:
    loader = dataset.loader(16, shuffle=shuffle, seed=3, output=output, last="uneven")
    seen: list[int] = []
    for batch in loader:
        check(batch, batch.samples, ragged)
        seen += batch.samples.tolist()
    # The order is that of a loader that knows no ragged tensor.
    plain = dataset.loader(16, shuffle=shuffle, seed=3, last="uneven", tensors=["label"])
    assert seen == [sample for batch in plain for sample in batch["label"].tolist()]
    assert sorted(seen) == list(range(240))


def test_batches_of_one_empty_row(dataset: larder.Dataset, ragged: Rows) -> None:
    empty = dataset.select(range(0, 240, 7))
    for output in ("numpy", "jax"):
        for batch in empty.loader(1, shuffle="none", output=output):
            check(batch, batch.samples, ragged)
            assert batch["text"].data.shape == (0,)


def test_ragged_job_resumes_in_mid_epoch(dataset: larder.Dataset, ragged: Rows) -> None:
    whole = [batch.samples.tolist() for batch in dataset.loader(9, seed=5)]
    batches = iter(dataset.loader(9, seed=5))
    state = [next(batches) for _ in range(4)][-1].state_dict()
    resumed = dataset.loader(9)
    resumed.load_state_dict(state)
    rest = []
    for batch in resumed:
        check(batch, batch.samples, ragged)
        rest.append(batch.samples.tolist())
    assert rest == whole[4:]


def test_rows_side_by_side_are_views_and_harmless_to_write_to(
    mapped: larder.Dataset, ragged: Rows
) -> None:
    before = larder.stats()
    held = mapped.rows(1, 4)
    check(held, range(1, 4), ragged)
    for batch in mapped.select(range(10, 16)).loader(3, shuffle="none", output="numpy"):
        check(batch, batch.samples, ragged)
    after = larder.stats()
    assert after["copied_bytes"] == before["copied_bytes"]
    assert after["viewed_bytes"] > before["viewed_bytes"]
    held["text"].data[:] = 0
    del held
    check(mapped.rows(1, 4), range(1, 4), ragged)
    loader = mapped.loader(16, shuffle="global")
    for batch in loader:
        check(batch, batch.samples, ragged)
    assert loader.stats()["copies_per_byte"] == pytest.approx(1.0)


def test_batch_memory_lives_until_its_last_row_is_dropped(
    mapped: larder.Dataset, ragged: Rows
) -> None:
    kept = [(batch.samples[0], batch["text"].row(0)) for batch in mapped.loader(8, seed=1)]
    for sample, row in kept:
        np.testing.assert_array_equal(row, ragged["text"][sample])


def test_mixture_has_ragged_rows_of_each_dataset(dataset: larder.Dataset, ragged: Rows) -> None:
    mixture = larder.mix({dataset.select(range(120)): 0.5, dataset.select(range(120, 240)): 0.5})
    for batch in mixture.loader(10, output="numpy"):
        check(batch, batch.samples, ragged)


@pytest.mark.parametrize("workers", [0, 2])
def test_transforms_get_rows_and_make_ragged_columns(
    node: Node, ragged: Rows, workers: int
) -> None:
    dataset = larder.open(URI, cluster=node.address)
    loader = dataset.loader(
        16, seed=2, transform=transforms.tokenise, batch_transform=transforms.count_tokens,
        workers=workers, output="numpy",
    )  # fmt: skip
    for batch in loader:
        assert list(batch) == ["text", "pairs", "padded", "label", "tokens"]
        for row, sample in enumerate(batch.samples):
            text = ragged["text"][sample][:50].astype(np.int32)
            np.testing.assert_array_equal(batch["text"].row(row), text)
            np.testing.assert_array_equal(batch["padded"][row, : len(text)], text)
            pairs = text[: len(text) // 2 * 2].reshape(-1, 2)
            np.testing.assert_array_equal(batch["pairs"].row(row), pairs)
        assert batch["padded"].shape == (16, 50)
        np.testing.assert_array_equal(batch["tokens"], batch["text"].lengths)
    only_each = dataset.loader(16, transform=transforms.tokenise, workers=workers, output="numpy")
    kept = [(batch.samples, batch["text"]) for batch in only_each]
    for samples, texts in kept:
        for sample, text in zip(samples, texts.rows(), strict=True):
            np.testing.assert_array_equal(text, ragged["text"][sample][:50])


def test_ragged_values_that_cannot_be_joined_are_refused(node: Node) -> None:
    dataset = larder.open(URI, cluster=node.address)
    grown = iter(range(1, 100))
    cases = [
        (lambda s: {"x": s["text"]}, r"return larder.Ragged.of\(\[value\]\)"),
        (lambda s: {"text": s["label"]}, "'text' is a scalar"),
        (lambda s: {"x": larder.Ragged.of([s["text"], s["text"]])}, "a larder.Ragged of 2 rows"),
        (lambda s: {"text": np.zeros((1, next(grown)))}, "differ in their first dimension only"),
        (
            lambda s: {"x": larder.Ragged.of([s["text"]]) if s["label"] == 1 else np.zeros(1)},
            "'x' was a larder.Ragged for the first",
        ),
        (
            lambda s: {"x": larder.Ragged.of([s["text"]]) if s["label"] == 2 else np.zeros(1)},
            "'x' was no larder.Ragged for the first",
        ),
    ]
    for transform, says in cases:
        part = dataset.select(range(1, 9))
        with pytest.raises(larder.TransformError) as caught:
            list(part.loader(4, shuffle="none", transform=transform, output="numpy"))
        assert caught.value.__cause__ is not None
        assert caught.match("transform failed")
        with pytest.raises(type(caught.value.__cause__), match=says):
            raise caught.value.__cause__


def test_ragged_is_a_sequence_of_rows_and_a_node_of_jax_trees() -> None:
    import jax

    ragged = larder.Ragged.of([[1, 2], [], [3]])
    assert ragged.offsets.tolist() == [0, 2, 2, 3]
    assert ragged.lengths.tolist() == [2, 0, 1]
    assert [row.tolist() for row in ragged.rows()] == [[1, 2], [], [3]]
    assert ragged.row(-1).tolist() == ragged[-1].tolist() == [3]
    assert len(ragged) == 3
    assert [row.tolist() for row in ragged] == ragged.tolist() == [[1, 2], [], [3]]
    assert ragged[1:].tolist() == [[], [3]]
    assert np.shares_memory(ragged[1:].data, ragged.data)
    assert (len(ragged[3:]), len(ragged[2:1])) == (0, 0)
    assert repr(ragged[:1]) == "<larder.Ragged of 1 row of float64 [any]>"
    with pytest.raises(ValueError, match="no slice of step -1"):
        ragged[::-1]
    for beyond in (3, -4):
        with pytest.raises(IndexError, match=f"no row {beyond} of 3"):
            ragged.row(beyond)
        with pytest.raises(IndexError, match=f"no row {beyond} of 3"):
            ragged[beyond]
    copied = pickle.loads(pickle.dumps(ragged))
    assert (copied.data.tolist(), copied.offsets.tolist()) == ([1, 2, 3], [0, 2, 2, 3])
    doubled = jax.tree.map(lambda leaf: leaf * 2, {"x": ragged})["x"]
    assert isinstance(doubled, larder.Ragged)
    assert doubled.data.tolist() == [2, 4, 6]


def test_grain_gets_rows(mapped: larder.Dataset, ragged: Rows) -> None:
    from larder.grain import DataSource

    source = DataSource(mapped, tensors=["text"])
    np.testing.assert_array_equal(source[9]["text"], ragged["text"][9])


def test_invalid_offsets_are_refused_by_name(tmp_path: Path) -> None:
    tensors = flat("x", [np.arange(3), np.arange(4)])
    tensors["x.offsets"][1] = 9
    save_file(tensors, tmp_path / "a.safetensors")
    with pytest.raises(larder.DataLoss, match=r"a.safetensors: tensor 'x.offsets'.*entry 1"):
        larder.index(f"file://{tmp_path}")


def test_flat_npy_files_with_offsets_are_ragged(tmp_path: Path) -> None:
    rows = [np.arange(n * 3, dtype=np.float32).reshape(n, 3) for n in (2, 0, 5)]
    for name, array in flat("points", rows).items():
        np.save(tmp_path / f"{name}.npy", array)
    dataset = larder.open(f"file://{tmp_path}", cluster="none")
    assert dataset.tensors == {"points": larder.TensorSpec("float32", (None, 3))}
    for row, sample in zip(rows, dataset[:]["points"].rows(), strict=True):
        np.testing.assert_array_equal(sample, row)
