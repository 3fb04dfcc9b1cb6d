"""Rows that a program chooses by number, by each way that rows come."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import larder
from conftest import flat
from harness import Node, S3Server, ring

URI = "s3://data/images"
RAGGED = "s3://data/ragged"

Images = dict[str, np.ndarray]


@pytest.fixture(params=["local", "remote", "origin"])
def dataset(request: pytest.FixtureRequest, node: Node) -> larder.Dataset:
    if request.param == "origin":
        return larder.open(URI, cluster="none")
    return larder.open(URI, cluster=node.address, local=request.param == "local")


def check(rows: dict[str, Any], indices: Any, images: Images) -> None:
    """Every byte of stacked rows is that of the source."""
    assert list(rows) == list(images)
    for name, column in rows.items():
        np.testing.assert_array_equal(np.asarray(column), images[name][indices])


CHOICES: list[Any] = [
    [3, 17, 5],
    [7, 7, -1, -300, 299],
    (4, 2),
    range(290, 10, -7),
    range(-5, 5),
    range(10**30, 5),
    np.array([200, 3], dtype=np.uint8),
    np.array([-1, -2], dtype=np.int8),
    np.arange(0, 300, dtype=np.uint64)[::-3],
    np.arange(300, dtype=">i4"),
    np.arange(300) % 7 == 0,
    [True] + [False] * 299,
    [],
    np.zeros(300, bool),
]


@pytest.mark.parametrize("indices", CHOICES, ids=repr)
def test_chosen_rows_come_stacked_in_their_order(
    dataset: larder.Dataset, images: Images, indices: Any
) -> None:
    chosen = np.asarray(indices)
    chosen = chosen if chosen.size else chosen.astype(int)
    check(dataset.take(indices), chosen, images)
    if not isinstance(indices, tuple):
        check(dataset[indices], chosen, images)


def test_number_of_any_kind_is_one_sample(dataset: larder.Dataset, images: Images) -> None:
    for index in (5, -1, np.int64(5), np.uint8(7), np.array(9)):
        check(dataset[index], int(index), images)
    for name, row in dataset[np.int32(3)].items():
        assert row.shape == images[name].shape[1:]


def test_part_of_a_dataset_has_its_own_numbers(dataset: larder.Dataset, images: Images) -> None:
    part = dataset.select(range(1, 300, 3))
    check(part[[0, 5, -1]], [1, 16, 298], images)
    with pytest.raises(IndexError, match="no sample 100, which is index 1 of the list"):
        part[[0, 100]]


def test_chosen_tensors_come_in_the_asked_order(dataset: larder.Dataset, images: Images) -> None:
    rows = dataset.take([9, 2], tensors=["label", "image"])
    assert list(rows) == ["label", "image"]
    np.testing.assert_array_equal(rows["label"], images["label"][[9, 2]])
    assert list(dataset.take([9], tensors=["label"])) == ["label"]
    with pytest.raises(larder.NotFound, match="no tensor 'depth'"):
        dataset.take([9], tensors=["depth"])


def made_for(images: Images, rows: int) -> Images:
    return {name: np.full((rows, *of.shape[1:]), 77, of.dtype) for name, of in images.items()}


def test_rows_come_into_given_arrays(dataset: larder.Dataset, images: Images) -> None:
    out = made_for(images, 3)
    before = {name: array.ctypes.data for name, array in out.items()}
    rows = dataset.take([3, 299, 3], out=out)
    check(rows, [3, 299, 3], images)
    assert {name: array.ctypes.data for name, array in rows.items()} == before
    larger = np.zeros((5, *images["image"].shape[1:]), images["image"].dtype)
    dataset.take([1, 2], tensors=["image"], out={"image": larger[1:3]})
    np.testing.assert_array_equal(larger[1:3], images["image"][1:3])
    assert not larger[[0, 3, 4]].any()
    dataset.take([], out=made_for(images, 0))


def wrong_outs(images: Images) -> list[tuple[Callable[[Images], Any], str]]:
    """Changes of a fitting ``out``, and the reasons for which they are refused."""

    def replaced(name: str, change: Callable[[np.ndarray], Any]) -> Callable[[Images], Any]:
        return lambda out: {**out, name: change(out[name])}

    def frozen(array: np.ndarray) -> np.ndarray:
        array.flags.writeable = False
        return array

    def overlapping(out: Images) -> Images:
        memory = np.zeros(sum(array.nbytes for array in out.values()), np.uint8)
        image = memory[: out["image"].nbytes].reshape(out["image"].shape)
        label = memory[8 : 8 + out["label"].nbytes].view(out["label"].dtype)
        return {"image": image, "label": label}

    return [
        (replaced("label", lambda array: array.astype(np.float32)), "is float32 of shape"),
        (replaced("label", lambda array: array.astype(">i8")), "in the other byte order"),
        (replaced("image", lambda array: array[:-1]), "of shape"),
        (replaced("image", lambda array: np.asfortranarray(array)), "not in C order"),
        (replaced("image", frozen), "it is read-only"),
        (replaced("image", lambda array: array.tolist()), "it is a list"),
        (lambda out: {**out, "depth": 1}, "the difference is 'depth'"),
        (lambda out: {"image": out["image"]}, "the difference is 'label'"),
        (lambda out: list(out.values()), "out is a list"),
        (overlapping, "share memory"),
    ]


def test_unfit_arrays_are_refused_untouched(dataset: larder.Dataset, images: Images) -> None:
    for change, reason in wrong_outs(images):
        out = made_for(images, 4)
        with pytest.raises(larder.InvalidArgument, match=reason):
            dataset.take([0, 1, 2, 3], out=change(out))
        assert all((array == 77).all() for array in out.values()), reason
    with pytest.raises(larder.InvalidArgument, match="leave output= out"):
        dataset.take([0], out=made_for(images, 1), output="numpy")
    out = made_for(images, 2)
    with pytest.raises(IndexError, match="no sample 300, which is index 1 of the list"):
        dataset.take([5, 300], out=out)
    assert all((array == 77).all() for array in out.values())


@pytest.mark.parametrize(
    ("indices", "reason"),
    [
        ([0.5, 1.0], "array of float64"),
        ([[1, 2]], r"array of int64 of shape \(1, 2\)"),
        (["a"], "array of <U1"),
        ([None], "array of object"),
        ([[1], [2, 3]], "samples can't be chosen by this"),
        ("image", "samples can't be chosen by 'image'\nhint: for one tensor"),
        (None, "(samples can't be chosen|needs indices or keys)"),
        ({3, 4}, "array of object"),
        (np.zeros(7, bool), r"a mask of shape \(7,\) does not fit a dataset of 300 samples"),
    ],
)
def test_choices_that_make_no_sense_are_refused(
    dataset: larder.Dataset, indices: Any, reason: str
) -> None:
    for read in (dataset.take, dataset.__getitem__):
        with pytest.raises(larder.InvalidArgument, match=reason):
            read(indices)
    with pytest.raises(larder.InvalidArgument, match="give a list"):
        dataset[3, 17]


@pytest.mark.parametrize(
    ("indices", "what"),
    [
        ([0, 300, 400], "no sample 300, which is index 1 of the list"),
        ([-301], "no sample -301"),
        (range(298, 10**12), "no sample 300, which is index 2 of the list"),
        (range(-(10**30), 5), f"no sample -{10**30}, which is index 0 of the list"),
        (np.array([1, 2**63], np.uint64), f"no sample {2**63}, which is index 1 of the list"),
        (2**70, f"no sample {2**70}"),
        (300, "no sample 300"),
    ],
)
def test_first_index_outside_is_named(dataset: larder.Dataset, indices: Any, what: str) -> None:
    with pytest.raises(IndexError, match=f"{what}\nhint: the dataset has 300, counted from 0"):
        dataset[indices]


def test_ragged_rows_come_stacked_but_not_into_given_arrays(
    node: Node, ragged: dict[str, list[np.ndarray]]
) -> None:
    dataset = larder.open(RAGGED, cluster=node.address)
    rows = dataset.take([7, 3, 7], tensors=["text"])["text"]
    assert isinstance(rows, larder.Ragged)
    for row, index in zip(rows.rows(), [7, 3, 7], strict=True):
        np.testing.assert_array_equal(row, ragged["text"][index])
    with pytest.raises(larder.InvalidArgument, match="its rows differ in length"):
        dataset.take([7], tensors=["text"], out={"text": np.zeros(5)})


def test_loop_that_drops_its_result_takes_the_same_memory(dataset: larder.Dataset) -> None:
    addresses = set()
    for _ in range(20):
        addresses.add(dataset.take(range(100), output="numpy")["image"].ctypes.data)
    assert len(addresses) == 1


def test_kept_results_are_never_written_to(dataset: larder.Dataset, images: Images) -> None:
    kept = [dataset.take(range(at, at + 20)) for at in range(0, 280, 10)]
    for at, rows in zip(range(0, 280, 10), kept, strict=True):
        check(rows, range(at, at + 20), images)


def test_many_threads_take_at_once(dataset: larder.Dataset, images: Images) -> None:
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        out = made_for(images, 64)
        try:
            for _ in range(20):
                indices = rng.integers(-300, 300, 64)
                check(dataset.take(indices, out=out), indices, images)
                check(dataset[indices], indices, images)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_other_threads_run_while_one_waits(node: Node, images: Images) -> None:
    """A read that held the interpreter would wait for ever: this thread wakes the node."""
    dataset = larder.open(URI, cluster=node.address, local=False, patience=30)
    out = made_for(images, 300)
    dataset.take([0], output="numpy")
    with node.silent():
        thread = threading.Thread(target=lambda: dataset.take(range(300), out=out))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join()
    check(out, range(300), images)


def test_ctrl_c_ends_a_read_into_given_arrays(node: Node, images: Images) -> None:
    """After the exception nothing writes to the arrays any more."""
    dataset = larder.open(URI, cluster=node.address, local=False, patience=3600)
    out = made_for(images, 300)
    dataset.take(range(300), out=out)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    with node.silent():
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            dataset.take(range(300), out=out)
        for array in out.values():
            ctypes.memset(array.ctypes.data, 77, array.nbytes)
    check(dataset.take(range(299, -1, -1)), range(299, -1, -1), images)
    assert all((array.view(np.uint8) == 77).all() for array in out.values())


def random_part(dataset: larder.Dataset, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
    """A part of a part of a dataset, and the numbers of its samples."""
    numbers = np.arange(len(dataset))
    for _ in range(rng.integers(0, 3)):
        if len(dataset) < 2:
            break
        chosen = rng.random(len(dataset)) < 0.7
        chosen[rng.integers(len(dataset))] = True
        kind = rng.integers(3)
        if kind == 0:
            dataset, numbers = dataset.select(chosen), numbers[chosen]
        elif kind == 1:
            begin = int(rng.integers(len(dataset)))
            dataset, numbers = dataset.select(range(begin, len(dataset))), numbers[begin:]
        else:
            part = dataset.split(0.5, seed=int(rng.integers(100)))[0]
            if len(part):
                taken = part.take(range(len(part)), tensors=["number"], output="numpy")["number"]
                dataset, numbers = part, np.asarray(taken).astype(np.int64)
    return dataset, numbers


def random_indices(samples: int, rng: np.random.Generator) -> Any:
    """Indices of a random kind, with duplicates and negative numbers."""
    if rng.random() < 0.2:
        return rng.random(samples) < 0.3
    small = np.int16 if samples < 2**15 else np.int32
    dtype = rng.choice([np.int64, np.int32, small])
    indices = rng.integers(-samples, samples, rng.integers(0, 60)).astype(dtype)
    return indices.tolist() if rng.random() < 0.3 else indices


@pytest.fixture(scope="module")
def random_sets(s3: S3Server) -> list[dict[str, Any]]:
    """Datasets of random types and shapes, each with its own number and a ragged column."""
    rng = np.random.default_rng(42)
    sets = []
    for number in range(4):
        samples = int(rng.integers(40, 300))
        rows: dict[str, Any] = {"number": np.arange(samples, dtype=np.int32)}
        for column in range(rng.integers(1, 4)):
            shape = (samples, *rng.integers(1, 9, rng.integers(0, 4)))
            dtype = rng.choice(["uint8", "int16", "float32", "float64", "uint64"])
            noise = rng.integers(
                0, 256, (int(np.prod(shape)) * np.dtype(dtype).itemsize,), np.uint8
            )
            rows[f"c{column}"] = noise.view(dtype).reshape(shape)
        texts = [rng.integers(0, 256, rng.integers(0, 50), np.uint8) for _ in range(samples)]
        folder = s3.folder / f"data/random{number}"
        folder.mkdir()
        save_file({**rows, **flat("text", texts)}, folder / "all.safetensors")
        larder.index(f"s3://data/random{number}", shard_bytes=4096)
        sets.append({**rows, "text": texts})
    return sets


@pytest.mark.parametrize("way", ["local", "remote", "origin"])
def test_take_agrees_with_numpy(node: Node, random_sets: list[dict[str, Any]], way: str) -> None:
    rng = np.random.default_rng(7)
    how: Any = {"cluster": "none"} if way == "origin" else {"cluster": node.address}
    for number, rows in enumerate(random_sets):
        whole = larder.open(f"s3://data/random{number}", local=way == "local", **how)
        for _ in range(12):
            part, numbers = random_part(whole, rng)
            indices = random_indices(len(part), rng)
            chosen = numbers[indices] if len(indices) else numbers[:0]
            taken = part.take(indices, output="numpy")
            for name, column in rows.items():
                if name == "text":
                    for row, index in zip(taken[name].rows(), chosen, strict=True):
                        np.testing.assert_array_equal(row, column[index])
                else:
                    np.testing.assert_array_equal(taken[name], column[chosen])
            even = [name for name in rows if name != "text"]
            out = {
                name: np.empty((len(chosen), *rows[name].shape[1:]), rows[name].dtype)
                for name in even
            }
            part.take(indices, tensors=even, out=out)
            for name, array in out.items():
                np.testing.assert_array_equal(array, rows[name][chosen])


def test_rows_stay_right_while_a_node_dies(s3: S3Server, images: Images, tmp_path: Path) -> None:
    with ring(tmp_path, "a", "b", origin="s3://data") as nodes:
        addresses = ",".join(node.address for node in nodes)
        dataset = larder.open(URI, cluster=addresses, local=False)
        rng = np.random.default_rng(3)
        for number in range(60):
            if number == 20:
                nodes[1].kill()
            indices = rng.integers(-300, 300, 200)
            check(dataset.take(indices, output="numpy"), indices, images)


def test_result_beyond_memory_says_its_bytes(tmp_path: Path) -> None:
    np.zeros(1 << 26, np.uint8).tofile(tmp_path / "tokens.bin")
    larder.index(f"file://{tmp_path}", dtype="uint8", window=1 << 24, stride=1)
    dataset = larder.open(f"file://{tmp_path}", cluster="none")
    with pytest.raises(
        larder.ResourceExhausted, match=f"there is no memory for {10**6 << 24} bytes"
    ):
        dataset.take(np.zeros(10**6, np.int64))
