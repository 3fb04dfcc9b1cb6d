"""Datasets: parts of them, copies of them, and where they come from."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import larder
from conftest import all_images
from harness import Node, S3Server

URI = "s3://data/images"


@pytest.fixture
def dataset(node: Node) -> larder.Dataset:
    return larder.open(URI, cluster=node.address)


def labels(dataset: larder.Dataset) -> list[int]:
    return dataset[:]["label"].tolist()


def test_getitems_returns_samples_in_requested_order(
    dataset: larder.Dataset, images: dict[str, np.ndarray]
) -> None:
    indices = [7, 299, 7, -1, np.int64(3)]
    samples = dataset.__getitems__(indices)
    assert [int(sample["label"]) for sample in samples] == [7, 299, 7, 299, 3]
    for index, sample in zip(indices, samples, strict=True):
        np.testing.assert_array_equal(sample["image"], images["image"][index])
    with pytest.raises(IndexError, match="no sample 300"):
        dataset.__getitems__([0, 300])


def test_a_selection_is_a_dataset(dataset: larder.Dataset) -> None:
    assert labels(dataset.select(range(10, 14))) == [10, 11, 12, 13]
    assert labels(dataset.select([0, 5, -1])) == [0, 5, 299]
    assert labels(dataset.select(np.arange(300) % 100 == 0)) == [0, 100, 200]
    odd = dataset.select(range(1, 300, 2))
    assert labels(odd.select(slice(2, 4))) == [5, 7]
    assert int(odd[-1]["label"]) == 299
    for wrong in (np.zeros(7, bool), [[1]], [0.5], [3, 3], [[1], [2, 3]], ["a"], None):
        with pytest.raises(larder.InvalidArgument):
            dataset.select(wrong)


def test_select_accepts_indices_of_any_integer_type(dataset: larder.Dataset) -> None:
    for dtype in (np.uint8, np.int16, np.uint64, np.int64):
        assert labels(dataset.select(np.array([5, 200], dtype=dtype))) == [5, 200]
    assert labels(dataset.select(np.array([-100, -1], dtype=np.int8))) == [200, 299]
    assert labels(dataset.select(range(-5, 0))) == [295, 296, 297, 298, 299]
    assert labels(dataset.select(range(-5, -300))) == []
    for wrong, sample in [
        (np.array([2**63], dtype=np.uint64), 2**63),
        ([2**64 - 1], 2**64 - 1),
        ([300], 300),
        ([-301], -301),
        (range(-301, 0), -301),
    ]:
        with pytest.raises(larder.InvalidArgument, match=f"no sample {sample}") as raised:
            dataset.select(wrong)
        assert "the dataset has 300" in str(raised.value)
    with pytest.raises(larder.InvalidArgument, match="can't be chosen"):
        dataset.select([2**64])


def test_select_over_the_limit_is_refused_without_listing(
    dataset: larder.Dataset,
) -> None:
    for wrong in (range(0, 2**40, 2), np.broadcast_to(np.uint8(5), 2**40)):
        with pytest.raises(larder.InvalidArgument, match="at most 67,108,864"):
            dataset.select(wrong)
    with pytest.raises(larder.InvalidArgument, match="can't be chosen"):
        dataset.select(range(-5, 2**80))


def test_arguments_out_of_range_are_refused_by_name(
    dataset: larder.Dataset, tmp_path: Path
) -> None:
    for wrong, says in [
        (lambda: dataset.rows(-5, -1), "start is -5: a whole number from 0 to 300 is needed"),
        (lambda: dataset.rows(5, 1), "stop is 1: a whole number from 5 to 300 is needed"),
        (lambda: dataset.rows(0, 301), "stop is 301"),
        (lambda: dataset.rows(0, None), "stop is None"),
        (lambda: dataset.split(0.5, seed=-1), "seed is -1"),
        (lambda: larder.index(f"file://{tmp_path}", shard_bytes=-1), "shard_bytes is -1"),
        (lambda: larder.index(f"file://{tmp_path}", window="9"), "window is '9'"),
        (lambda: larder.index(f"file://{tmp_path}", tag=3), "tag is 3"),
        (lambda: larder.mix({dataset: 1}, seed=-1), "seed is -1"),
        (lambda: larder.mix({dataset: 1}, stop=1.5), "stop is 1.5"),
        (lambda: larder.mix({dataset: 1}, stop=None), "stop is None"),
    ]:
        with pytest.raises(larder.InvalidArgument, match=says):
            wrong()


def test_parts_of_a_split_are_disjoint_and_cover_all(dataset: larder.Dataset) -> None:
    train, validation = dataset.split(0.9, seed=1)
    assert (len(train), len(validation)) == (270, 30)
    assert sorted(labels(train) + labels(validation)) == list(range(300))
    assert dataset.split(0.9, seed=1) == (train, validation)
    assert train != dataset.split(0.9, seed=2)[0]
    assert len(dataset.split(0.5, 0.25, 0.25)) == 3
    samples = [s for batch in validation.loader(7, last="uneven") for s in batch["label"].tolist()]
    assert sorted(samples) == sorted(labels(validation))


def test_pickled_dataset_has_the_same_samples(dataset: larder.Dataset) -> None:
    part = dataset.split(0.5, seed=3)[1].select(range(20)).select([1, 4, 9])
    for original in (dataset, part):
        text = pickle.dumps(original)
        assert len(text) < 2000
        copy = pickle.loads(text)
        assert copy == original
        assert hash(copy) == hash(original)
        assert labels(copy) == labels(original)
        assert (copy.uri, copy.snapshot) == (original.uri, original.snapshot)


def test_pickled_dataset_keeps_its_snapshot_when_tag_moves(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/data"
    (tmp_path / "data").mkdir()
    save_file({"label": np.arange(5)}, tmp_path / "data/a.safetensors")
    before = pickle.dumps(larder.open(uri, cluster="none"))
    save_file({"label": np.arange(7)}, tmp_path / "data/b.safetensors")
    larder.index(uri)
    assert len(larder.open(uri, cluster="none")) == 12
    assert len(pickle.loads(before)) == 5


def test_index_reports_its_results_and_progress(tmp_path: Path) -> None:
    part = {name: array[:30] for name, array in all_images().items()}
    save_file(part, tmp_path / "a.safetensors")
    (tmp_path / "notes.txt").write_text("not a tensor")
    steps: list[larder.Progress] = []
    uri = f"file://{tmp_path}"
    report = larder.index(uri, tag="v1", checksum=True, progress=steps.append)
    assert (report.samples, report.shards) == (30, 1)
    assert report.bytes == sum(array.nbytes for array in part.values())
    assert report.tensors["label"] == larder.TensorSpec("int64", ())
    assert [what for what, _, _ in report.left_out] == ["notes.txt"]
    assert {step.what for step in steps} == {
        "listing", "indexing", "reading for checksums", "writing the manifest",
    }  # fmt: skip
    opened = larder.open(f"file://{tmp_path}@v1", cluster="none")
    assert opened.snapshot == report.snapshot


def test_exception_in_progress_callback_ends_indexing(tmp_path: Path) -> None:
    save_file({"label": np.arange(5)}, tmp_path / "a.safetensors")

    def progress(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        larder.index(f"file://{tmp_path}", progress=progress)


def test_index_refuses_prefix_that_reads_as_a_version(tmp_path: Path) -> None:
    (tmp_path / "data@v1").mkdir()
    save_file({"label": np.arange(5)}, tmp_path / "data@v1/a.safetensors")
    uri = f"file://{tmp_path}/data@v1"
    with pytest.raises(larder.InvalidArgument, match="names a version, not a prefix") as raised:
        larder.index(uri)
    assert f"to index 'file://{tmp_path}/data' as the version 'v1'" in str(raised.value)
    assert larder.index(uri + "/").samples == 5
    dataset = larder.open(uri + "/", cluster="none")
    assert len(dataset) == len(pickle.loads(pickle.dumps(dataset))) == 5


@pytest.mark.parametrize("cluster", [None, "none"])
def test_open_makes_no_manifest_at_a_given_address(cluster: str | None, tmp_path: Path) -> None:
    data, home = tmp_path / "data", tmp_path / "manifests"
    for folder in (data, home):
        folder.mkdir()
    save_file({"label": np.arange(5)}, data / "a.safetensors")
    uri, manifest = f"file://{data}", f"file://{home}"
    with pytest.raises(larder.NotFound, match="there is no manifest of") as raised:
        larder.open(uri, manifest=manifest, cluster=cluster)
    assert f'larder.index("{uri}", manifest="{manifest}"' in str(raised.value)
    assert not list(home.iterdir())
    larder.index(uri, manifest=manifest)
    assert len(larder.open(uri, manifest=manifest, cluster=cluster)) == 5


@pytest.mark.parametrize("cluster", [None, "none"])
def test_dataset_moved_after_indexing_is_refused(cluster: str | None, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    save_file({"label": np.arange(5)}, old / "a.safetensors")
    larder.index(f"file://{old}")
    old.rename(new)
    with pytest.raises(larder.DataChanged, match="was made of the data at") as raised:
        larder.open(f"file://{new}", cluster=cluster)
    assert f'larder.index("file://{new}")' in str(raised.value)
    larder.index(f"file://{new}")
    assert len(larder.open(f"file://{new}", cluster=cluster)) == 5


def test_tokens_are_windows_of_a_flat_file(tmp_path: Path) -> None:
    tokens = np.arange(1000, dtype=np.uint16)
    tokens.tofile(tmp_path / "tokens.bin")
    report = larder.index(f"file://{tmp_path}", dtype="uint16", window=17, stride=16)
    dataset = larder.open(f"file://{tmp_path}", cluster="none")
    assert report.samples == len(dataset) == 62
    (name,) = dataset.tensors
    np.testing.assert_array_equal(dataset[3][name], tokens[48:65])
    with pytest.raises(larder.InvalidArgument, match="need both dtype and window"):
        larder.index(f"file://{tmp_path}", dtype="uint16")


def test_slice_may_have_more_rows_than_one_request(tmp_path: Path) -> None:
    np.arange(200_000, dtype=np.uint32).tofile(tmp_path / "tokens.bin")
    larder.index(f"file://{tmp_path}", dtype="uint32", window=1, stride=1)
    dataset = larder.open(f"file://{tmp_path}", cluster="none")
    for wanted in (slice(None), slice(None, None, 2), slice(None, None, -3)):
        expected = np.arange(200_000, dtype=np.uint32)[wanted, None]
        np.testing.assert_array_equal(dataset[wanted]["tokens"], expected)


def test_plain_path_is_refused_with_its_file_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    hint = f"for the local folder write file://{tmp_path}/data"
    for path in (f"{tmp_path}/data", "./data", "data", "~/data", tmp_path / "data"):
        for read in (larder.open, larder.index):
            with pytest.raises(
                larder.InvalidArgument, match="not the address of a dataset"
            ) as raised:
                read(path)
            assert raised.value.hint == hint
    with pytest.raises(larder.InvalidArgument, match="uri is None"):
        larder.open(None)


@pytest.mark.parametrize("way", ["cluster", "none"])
def test_read_error_has_what_why_and_hint(way: str, node: Node, s3: S3Server) -> None:
    folder = s3.folder / "data" / f"changed-{way}"
    folder.mkdir()
    save_file({"label": np.arange(5)}, folder / "a.safetensors")
    uri = f"s3://data/{folder.name}"
    dataset = larder.open(uri, cluster=node.address if way == "cluster" else "none")
    save_file({"label": np.arange(6)}, folder / "a.safetensors")
    for read in (lambda: dataset[3], lambda: next(iter(dataset.loader(5)))):
        with pytest.raises(larder.DataChanged) as raised:
            read()
        assert raised.value.what
        assert "a.safetensors" in str(raised.value.why)
        assert "index" in str(raised.value.hint)


def test_errors_are_subclasses_of_python_errors(tmp_path: Path) -> None:
    with pytest.raises(larder.NotFound) as caught:
        larder.open(f"file://{tmp_path}/nothing-here", cluster="none")
    assert isinstance(caught.value, LookupError)
    with pytest.raises(ValueError, match="is not the address of a dataset") as caught:
        larder.open("imagenet")
    assert isinstance(caught.value, larder.Error)
    assert "hint: write s3://" in str(caught.value)
    assert str(caught.value).count("imagenet") == 1
    assert pickle.loads(pickle.dumps(caught.value)).hint == caught.value.hint


def test_split_takes_a_list_of_fractions(dataset: larder.Dataset) -> None:
    assert dataset.split([0.8, 0.1, 0.1]) == dataset.split(0.8, 0.1, 0.1)
    assert [len(part) for part in dataset.split(np.array([0.5]))] == [150, 150]
    with pytest.raises(
        larder.InvalidArgument, match="a list of numbers above 0 that sum to 1 or less is needed"
    ):
        dataset.split("half")


def test_unsorted_selection_is_sorted_with_a_warning(
    dataset: larder.Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    assert labels(dataset.select([-1, 7, 3])) == [3, 7, 299]
    assert caplog.messages == [
        "select() has put the indices in ascending order: sample 0 of the selection is sample 3, "
        "not 299; sort them first, and let the loader shuffle"
    ]
    caplog.clear()
    assert labels(dataset.select([3, 7])) == [3, 7]
    assert caplog.messages == []
    with pytest.raises(larder.InvalidArgument, match="each once"):
        dataset.select([3, 7, 3])


@pytest.mark.parametrize("dtype", ["uint16", np.uint16, np.dtype("<u2")])
def test_dtype_of_tokens_may_be_of_numpy(dtype: object, tmp_path: Path) -> None:
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "a.bin")
    uri = f"file://{tmp_path}"
    assert larder.index(uri, dtype=dtype, window=10).samples == 10
    with pytest.raises(larder.InvalidArgument, match="a type such as 'uint16' or numpy"):
        larder.index(uri, dtype=3.5, window=10)


def test_arguments_of_other_loaders_are_named_with_ours(dataset: larder.Dataset) -> None:
    for name, ours in (("num_workers", "workers= sets"), ("drop_last", "last='drop' drops")):
        with pytest.raises(larder.InvalidArgument, match=f"loader\\(\\) has no {name}=") as raised:
            dataset.loader(10, **{name: 2})
        assert ours in raised.value.hint
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        dataset.loader(10, colour=1)
