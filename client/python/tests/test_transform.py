"""Transforms: their arguments and results, their workers and their errors."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import larder
import transforms
from harness import Node

URI = "s3://data/images"
TESTS = Path(__file__).parent
#: Where transforms run.
PLACES = [
    {"workers": 0},
    {"workers": 3},
]
#: A wait that takes longer is a hang.
HANG_SECONDS = 120


@pytest.fixture
def dataset(node: Node) -> larder.Dataset:
    return larder.open(URI, cluster=node.address)


def wait_until(true: Any) -> None:
    end = time.monotonic() + HANG_SECONDS
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("where", PLACES)
def test_samples_are_transformed_in_order(
    dataset: larder.Dataset, images: dict[str, np.ndarray], where: dict[str, Any]
) -> None:
    plain = [batch.samples.tolist() for batch in dataset.loader(16, seed=3, last="uneven")]
    loader = dataset.loader(
        16, seed=3, last="uneven", transform=transforms.augment, output="numpy", **where
    )
    batches = list(loader)
    assert [batch.samples.tolist() for batch in batches] == plain
    for batch in batches:
        assert list(batch) == ["image", "label", "noise"]
        np.testing.assert_array_equal(batch["label"], batch.samples)
        first = batch["noise"][:, 0].astype(np.float32)[:, None, None, None]
        np.testing.assert_array_equal(
            batch["image"], images["image"][batch.samples].astype(np.float32) + first
        )
    assert loader.stats()["transform_seconds"] > 0
    explanation = loader.explain()
    assert "transforms worked" in str(explanation)
    told = {(batch["epoch"], batch["batch"]) for batch in explanation.slowest}
    assert told == {(0, number) for number in range(len(batches))}
    assert all(batch["hops"]["transform"] > 0 for batch in explanation.slowest)
    assert explanation.slowest == sorted(
        explanation.slowest, key=lambda batch: -int(batch["waiting_seconds"] * 1000)
    )


def test_random_numbers_depend_on_seed_epoch_and_sample_only(dataset: larder.Dataset) -> None:
    def drawn(batch_size: int, seed: int, epoch: int, **options: Any) -> dict[int, bytes]:
        loader = dataset.loader(
            batch_size, seed=seed, transform=transforms.noise, last="uneven", **options
        )
        loader.set_epoch(epoch)
        rows = [zip(b["label"].tolist(), b["noise"], strict=True) for b in loader]
        return {label: row.tobytes() for batch in rows for label, row in batch}

    one = drawn(32, 1, 0)
    assert len(set(one.values())) == len(one) == 300
    assert one == drawn(7, 1, 0, workers=3, shuffle="none")
    ranks = [drawn(9, 1, 0, rank=rank, world_size=3) for rank in range(3)]
    assert one == ranks[0] | ranks[1] | ranks[2]
    assert not set(one.values()) & set(drawn(32, 1, 1).values())
    assert not set(one.values()) & set(drawn(32, 2, 0).values())


def test_random_numbers_match_their_documented_stream(dataset: larder.Dataset) -> None:
    """A job resumed with another version of the package goes on with the same numbers."""
    loader = dataset.loader(150, seed=7, shuffle="none", transform=transforms.noise, output="numpy")
    loader.set_epoch(3)
    for batch in loader:
        for sample, numbers in zip(batch.samples.tolist(), batch["noise"], strict=True):
            philox = np.random.Philox(key=[7, 0], counter=[0, 0, 3, sample])
            expected = np.random.Generator(philox).integers(0, 2**63, size=2)
            np.testing.assert_array_equal(numbers, expected)


@pytest.mark.parametrize("where", PLACES)
def test_batches_are_transformed_after_their_samples(
    dataset: larder.Dataset, images: dict[str, np.ndarray], where: dict[str, Any]
) -> None:
    options = {"batch_transform": transforms.flip, "output": "numpy", **where}
    for batch in dataset.loader(32, **options):
        assert batch["names"] == [f"image-{sample}" for sample in batch.samples]
        np.testing.assert_array_equal(batch["image"], images["image"][batch.samples][:, :, ::-1])
    once = set()
    for batch in dataset.loader(32, transform=transforms.augment, **options):
        assert batch["image"].dtype == np.float32
        assert list(batch) == ["names", "image", "label", "noise", "once"]
        once.add(batch["once"].item())
    assert len(once) == 9


@pytest.mark.parametrize("where", PLACES)
def test_held_transformed_batches_keep_their_values(
    dataset: larder.Dataset, images: dict[str, np.ndarray], where: dict[str, Any]
) -> None:
    loader = dataset.loader(20, transform=transforms.in_place, output="numpy", **where)
    epochs = [list(loader), list(loader)]
    del loader
    gc.collect()
    for batch in epochs[0] + epochs[1]:
        np.testing.assert_array_equal(batch["image"], images["image"][batch.samples] // 2)
    np.testing.assert_array_equal(dataset[:100]["image"], images["image"][:100])


@pytest.mark.parametrize("where", PLACES)
def test_state_counts_delivered_batches_only(
    dataset: larder.Dataset, where: dict[str, Any]
) -> None:
    options = {"transform": transforms.noise, "last": "uneven", **where}
    whole = [batch.samples.tolist() for batch in dataset.loader(16, **options)]
    loader = dataset.loader(16, **options)
    batches = iter(loader)
    for count in range(len(whole) + 1):
        resumed = dataset.loader(16, last="uneven")
        resumed.load_state_dict(loader.state_dict())
        if count == len(whole):
            assert next(batches, None) is None
            assert loader.state_dict() == resumed.state_dict()
            next(iter(resumed))
            assert resumed.epoch == 1
        else:
            assert [batch.samples.tolist() for batch in resumed] == whole[count:]
            batch = next(batches)
            assert batch.state_dict() == loader.state_dict()


@pytest.mark.parametrize("where", PLACES)
def test_transform_error_names_its_sample(dataset: larder.Dataset, where: dict[str, Any]) -> None:
    loader = dataset.loader(16, shuffle="none", transform=transforms.fail_at_40, **where)
    seen = []
    with pytest.raises(larder.TransformError, match="sample 40 in epoch 0") as raised:
        seen.extend(batch.samples.tolist() for batch in loader)
    assert seen == [list(range(16)), list(range(16, 32))]
    assert raised.value.samples == [40]
    cause = raised.value.__cause__
    assert isinstance(cause, KeyError)
    assert cause.args == ("no caption",)
    # Batches before the failed one are done, and another transform may continue from there.
    resumed = dataset.loader(16, shuffle="none")
    resumed.load_state_dict(loader.state_dict())
    assert next(iter(resumed)).samples.tolist() == list(range(32, 48))


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (transforms.ragged, "'caption' is float64 of shape"),
        (transforms.wrong, "returned a ndarray where a dict of arrays"),
    ],
)
def test_values_that_cannot_be_stacked_are_refused(
    dataset: larder.Dataset, where: dict[str, Any], transform: Any, says: str
) -> None:
    with pytest.raises(larder.TransformError) as raised:
        list(dataset.loader(16, transform=transform, output="numpy", **where))
    assert says in str(raised.value.__cause__)


@pytest.mark.parametrize("where", PLACES)
def test_value_invalid_for_the_output_names_its_sample(
    dataset: larder.Dataset, where: dict[str, Any]
) -> None:
    options = {"shuffle": "none", "output": "jax", **where}
    loader = dataset.loader(16, transform=transforms.name, **options)
    with pytest.raises(larder.TransformError, match="sample 0 in epoch 0: 'name' is <U4") as raised:
        next(iter(loader))
    assert (raised.value.samples, raised.value.epoch) == ([0], 0)
    assert "output='numpy'" in raised.value.hint
    assert isinstance(raised.value.__cause__, TypeError)
    loader = dataset.loader(16, batch_transform=transforms.name, **options)
    with pytest.raises(larder.TransformError, match="'name' is <U4") as raised:
        next(iter(loader))
    assert raised.value.samples == list(range(16))
    plain = dataset.loader(16, transform=transforms.name, **{**options, "output": "numpy"})
    assert next(iter(plain))["name"].tolist() == ["some"] * 16


@pytest.mark.parametrize("where", PLACES)
def test_a_batch_transform_returns_a_dict_of_anything(
    dataset: larder.Dataset, where: dict[str, Any]
) -> None:
    loader = dataset.loader(16, batch_transform=transforms.wrong, output="numpy", **where)
    with pytest.raises(larder.TransformError) as raised:
        next(iter(loader))
    assert "a ndarray where a dict, of anything, is needed" in str(raised.value.__cause__)


def test_ctrl_c_ends_the_wait_for_a_transform_that_hangs(dataset: larder.Dataset) -> None:
    loader = dataset.loader(16, shuffle="none", transform=transforms.hang_at_40, workers=3)
    timer = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))
    seen = 0
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            for _ in loader:
                seen += 1
    finally:
        timer.cancel()
    assert seen <= 2


@pytest.mark.parametrize("where", PLACES)
def test_custom_container_stays_unconverted(dataset: larder.Dataset, where: dict[str, Any]) -> None:
    loader = dataset.loader(50, batch_transform=transforms.table, output="numpy", **where)
    assert all(isinstance(batch["table"], transforms.Table) for batch in loader)


def test_program_exits_cleanly_in_mid_epoch(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), *sys.path]))
    (tmp_path / "program.py").write_text(
        "import larder, transforms\n"
        "if __name__ == '__main__':\n"
        f"    dataset = larder.open({URI!r}, cluster={node.address!r})\n"
        "    loader = dataset.loader(2, transform=transforms.noise, workers=3, output='numpy')\n"
        "    batches = iter(loader)\n"
        "    print(len(next(batches).samples))\n"
    )
    command = [sys.executable, tmp_path / "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


def test_two_iterations_of_a_loader_are_independent(dataset: larder.Dataset) -> None:
    loader = dataset.loader(50, seed=1, transform=transforms.noise, workers=2, output="numpy")
    loader.set_epoch(4)
    first = iter(loader)
    next(first)
    second = list(loader)
    assert loader.epoch == 5
    assert len(list(first)) == 5
    loader.set_epoch(5)
    again = list(loader)
    for one, two in zip(second, again, strict=True):
        np.testing.assert_array_equal(one["noise"], two["noise"])


def test_workers_run_ahead_only_up_to_the_limit(dataset: larder.Dataset) -> None:
    begun = []

    def count(batch: dict[str, Any]) -> dict[str, Any]:
        begun.append(1)
        return batch

    batches = iter(dataset.loader(10, batch_transform=count, workers=3))
    next(batches)
    wait_until(lambda: len(begun) >= 1 + 6)
    assert len(begun) == 1 + 6
    batches.close()


def test_started_workers_end_when_another_fails_to_start(
    dataset: larder.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = threading.Thread.start, []

    def limited(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        next(iter(dataset.loader(50, transform=transforms.same, workers=3)))
    for thread in started:
        thread.join(HANG_SECONDS)
        assert not thread.is_alive()


def test_invalid_transform_settings_are_refused(dataset: larder.Dataset) -> None:
    for options, says in [
        ({"workers": 2}, "nothing to do"),
        ({"workers": -1, "transform": dict}, "workers is -1"),
        ({"transform": "resize"}, "transform is 'resize'\nhint: give a function"),
    ]:
        with pytest.raises(larder.InvalidArgument, match=says):
            dataset.loader(**options)


def test_transforms_return_arrays_of_jax(dataset: larder.Dataset) -> None:
    import jax

    batch = next(iter(dataset.loader(16, transform=transforms.augment, output="jax")))
    assert all(isinstance(value, jax.Array) for value in batch.values())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stray_end_of_iteration_does_not_end_the_epoch(
    dataset: larder.Dataset, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stray(*_: Any) -> None:
        raise StopIteration

    loader = dataset.loader(30, transform=transforms.same, workers=workers)
    monkeypatch.setattr("larder._transform.Transform.apply", stray)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_signal_handler_can_call_explain(dataset: larder.Dataset, workers: int) -> None:
    loader = dataset.loader(2, transform=transforms.same, workers=workers)
    asked = []
    before = signal.signal(signal.SIGALRM, lambda *_: asked.append(str(loader.explain())))
    signal.setitimer(signal.ITIMER_REAL, 1e-3, 2e-4)
    try:
        while len(asked) < 300:
            assert len(list(loader)) == 150
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_workers_end_when_their_iterator_is_dropped(dataset: larder.Dataset) -> None:
    before = set(threading.enumerate())
    loader = dataset.loader(2, transform=transforms.same, workers=2)
    batches = loader._transformed.batches(loader._native.epoch(0, None), 0, 0, None)
    next(batches)
    assert set(threading.enumerate()) > before
    del batches
    wait_until(lambda: set(threading.enumerate()) <= before)
