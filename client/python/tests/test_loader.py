"""Loaders: epochs, states and figures."""

from __future__ import annotations

import dis
import itertools
import signal
import sys
import threading
import time
import warnings
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import larder
import transforms
from harness import Node
from larder.grain import DataSource

URI = "s3://data/images"


@pytest.fixture
def dataset(node: Node) -> larder.Dataset:
    return larder.open(URI, cluster=node.address)


def samples_of(batches: object) -> list[int]:
    return [sample for batch in batches for sample in batch.samples.tolist()]


def test_each_iteration_is_the_next_epoch_unless_set(dataset: larder.Dataset) -> None:
    loader = dataset.loader(50, seed=4)
    epochs = [samples_of(loader) for _ in range(3)]
    assert loader.epoch == 2
    assert epochs[0] != epochs[1] != epochs[2]
    loader.set_epoch(1)
    assert samples_of(loader) == epochs[1]
    assert samples_of(loader) == epochs[2]
    other = dataset.loader(50, seed=4)
    assert samples_of(other) == epochs[0]


@pytest.mark.parametrize("batches", [0, 1, 3, 6])
def test_state_resumes_at_its_position(dataset: larder.Dataset, batches: int) -> None:
    whole = samples_of(dataset.loader(32, seed=5, last="uneven"))
    loader = dataset.loader(32, seed=5, last="uneven")
    iterator = iter(loader)
    first = samples_of(next(iterator) for _ in range(batches))
    state = loader.state_dict()
    del iterator
    rest: list[int] = []
    for rank in range(3):
        resumed = dataset.loader(8, rank=rank, world_size=3, last="uneven")
        resumed.load_state_dict(state)
        rest += samples_of(resumed)
        assert resumed.epoch == 0
    assert sorted(first + rest) == sorted(whole) == list(range(300))


def test_batch_state_resumes_after_the_batch(dataset: larder.Dataset) -> None:
    loader = dataset.loader(32, seed=6)
    batches = list(loader)
    resumed = dataset.loader(32)
    resumed.load_state_dict(batches[3].state_dict())
    assert samples_of(resumed) == samples_of(batches[4:])


OPTIONS = [{}, {"transform": transforms.same}, {"transform": transforms.same, "workers": 2}]


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "transform", "threads"])
def test_batch_that_fails_to_build_does_not_count(
    dataset: larder.Dataset, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    made, make = itertools.count(), larder.Batch.with_facts

    def interrupted(*facts: Any) -> larder.Batch:
        if next(made) == 3:
            signal.raise_signal(signal.SIGINT)
        return make(*facts)

    monkeypatch.setattr(larder.Batch, "with_facts", interrupted)
    loader = dataset.loader(30, seed=5, output="numpy", **options)
    iteration = iter(loader)
    handed_out = [next(iteration) for _ in range(3)]
    with pytest.raises(KeyboardInterrupt):
        next(iteration)
    assert loader.state_dict() == handed_out[-1].state_dict()
    loader.load_state_dict(loader.state_dict())
    assert samples_of([*handed_out, *loader]) == samples_of(dataset.loader(30, seed=5))
    assert loader.state_dict() == {"larder": loader._native.state_at(1)}


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "transform", "threads"])
def test_interrupt_anywhere_counts_only_delivered_batches(
    dataset: larder.Dataset, options: dict[str, Any]
) -> None:
    """Python handles signals after calls, at the start of a function and at backward jumps.

    Here a signal comes at each such place in turn.
    """
    package = str(Path(larder.__file__).parent)
    loader = dataset.loader(30, seed=5, output="numpy", **options)

    def next_batch(places: int) -> bool:
        """Asks for a batch. Returns whether it came before so many such places were passed."""
        left = itertools.count(places, -1)
        done: dict[FrameType, str] = {}

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            if not frame.f_code.co_filename.startswith(package):
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                before = done.get(frame, "")
                done[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
                if before.startswith(("CALL", "RESUME", "JUMP_BACKWARD")) and next(left) == 0:
                    raise KeyboardInterrupt
            return trace

        batches = iter(loader)
        batch = next(batches)
        sys.settrace(trace)
        try:
            for batch in batches:  # noqa: B007
                return True
        except KeyboardInterrupt:
            return False
        finally:
            sys.settrace(None)
            # Its frames hold `trace`: a cycle that could be collected, and interrupted, later.
            done.clear()
            assert loader.state_dict() == batch.state_dict(), f"at place {places}"
        raise AssertionError("there are more batches")

    # CPython 3.12 traces the steps of a function only after a call that asks for it.
    assert next_batch(1_000_000)
    assert next(places for places in itertools.count() if next_batch(places)) > 20


def test_epoch_resumes_after_workers_failed_to_start(
    dataset: larder.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, start = itertools.count(), threading.Thread.start

    def start_one(thread: threading.Thread) -> None:
        if next(started):
            raise RuntimeError("can't start new thread")
        start(thread)

    loader = dataset.loader(30, seed=5, transform=transforms.same, workers=2)
    loader.set_epoch(3)
    batches = list(loader)
    loader.load_state_dict(batches[3].state_dict())
    saved = loader.state_dict()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_one)
        with pytest.raises(RuntimeError, match="new thread"):
            next(iter(loader))
    assert loader.state_dict() == saved
    assert samples_of(loader) == samples_of(batches[4:])
    assert loader.epoch == 3
    next(iter(loader))
    assert loader.epoch == 4


def test_resumed_epoch_is_kept_after_a_failed_start(
    dataset: larder.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(_: int) -> None:
        raise MemoryError("all of it is taken")

    loader = dataset.loader(30, seed=5)
    loader.set_epoch(3)
    batches = list(loader)
    loader.load_state_dict(batches[3].state_dict())
    saved = loader.state_dict()
    native = loader._native
    with monkeypatch.context() as patch:
        patch.setattr(loader, "_native", Mock(wraps=native))
        loader._native.epoch = lambda number, _: native.epoch(number, no_memory)
        with pytest.raises(MemoryError):
            next(iter(loader))
    assert loader.state_dict() == saved
    assert samples_of(loader) == samples_of(batches[4:])
    assert loader.epoch == 3
    samples_of(loader)
    assert loader.epoch == 4


def test_resume_applies_to_its_turn_in_any_start_order(
    dataset: larder.Dataset,
) -> None:
    loader = dataset.loader(30, seed=5)
    batches = list(loader)
    native = loader._native
    assert native.resume(batches[3].state_dict()["larder"]) == 0
    first, second = native.turn(), native.turn()
    assert (first, second) == (0, 1)
    assert len(native.epoch(second, None)) == 10
    native.turn_back(first)
    assert native.turn() == 2, "others came since"
    assert len(native.epoch(first, None)) == 6


NO_STATES = [{}, "x", None, {"larder": {}}, {"larder": "x"}, {"larder": None}, 7]


@pytest.mark.parametrize("wrong", NO_STATES)
def test_malformed_state_is_refused(dataset: larder.Dataset, wrong: object) -> None:
    loader = dataset.loader(32)
    with pytest.raises(larder.InvalidArgument, match="is no state of a loader") as raised:
        loader.load_state_dict(wrong)
    assert raised.value.hint == "pass what state_dict() returned"


def test_ranks_share_an_epoch_and_padding_is_marked(dataset: larder.Dataset) -> None:
    seen, padding = [], 0
    for rank in range(4):
        loader = dataset.loader(32, seed=1, rank=rank, world_size=4, last="pad")
        for batch in loader:
            assert len(batch.samples) == len(batch["image"]) == 32
            real = len(batch.samples) - batch.padding
            seen += batch.samples[:real].tolist()
            padding += batch.padding
    assert sorted(seen) == list(range(300))
    assert padding == 3 * 128 - 300


def test_repr_of_batch_shows_a_line_for_each_column(dataset: larder.Dataset) -> None:
    _, batch, last, *_ = dataset.loader(128, last="pad")
    columns = "\n  image  uint8 [128, 32, 32, 3]\n  label  int64 [128]"
    assert repr(batch) == f"<larder.Batch of 128 rows, before position 256 of epoch 0:{columns}>"
    first = "before position 0 of epoch 1"
    assert repr(last) == f"<larder.Batch of 128 rows, 84 of padding, {first}:{columns}>"
    assert repr(larder.Batch(batch)) == f"<larder.Batch without its facts:{columns}>"
    ragged = larder.Ragged.of([[1, 2], [3]])
    shown = repr(larder.Batch(text=ragged, name="a"))
    assert shown.endswith(":\n  text  2 rows of int64 [any]\n  name  str>")


def test_batch_has_requested_tensors_in_requested_order(dataset: larder.Dataset) -> None:
    batch = next(iter(dataset.loader(4, tensors=["label"])))
    assert list(batch) == ["label"]
    batch = next(iter(dataset.loader(4, tensors=["label", "image"])))
    assert list(batch) == ["label", "image"]


def test_names_of_tensors_are_a_list(dataset: larder.Dataset) -> None:
    for read in (dataset.loader, partial(dataset.rows, 0, 1), partial(DataSource, dataset)):
        with pytest.raises(larder.InvalidArgument, match="tensors is 'image'") as raised:
            read(tensors="image")
        assert raised.value.hint == "give a list: tensors=['image']"
        for wrong in (7, ["image", 7]):
            with pytest.raises(larder.InvalidArgument, match="a list of names is needed"):
                read(tensors=wrong)
    with pytest.raises(larder.InvalidArgument, match="no tensor is asked for"):
        dataset.rows(0, 1, tensors=())


def test_two_loaders_are_used_side_by_side(dataset: larder.Dataset) -> None:
    train, validation = dataset.split(0.9)
    seen = [[], []]
    for first, second in zip(train.loader(27), validation.loader(3), strict=True):
        seen[0] += first["label"].tolist()
        seen[1] += second["label"].tolist()
    assert sorted(seen[0] + seen[1]) == list(range(300))


@pytest.mark.parametrize("output", ["numpy", "jax", "auto"])
def test_batches_are_arrays_of_the_requested_framework(
    dataset: larder.Dataset, images: dict[str, np.ndarray], output: str
) -> None:
    import jax

    for batch in dataset.loader(64, output=output):
        expected = jax.Array if output == "jax" else np.ndarray
        assert isinstance(batch["image"], expected)
        np.testing.assert_array_equal(np.asarray(batch["image"]), images["image"][batch.samples])


def test_wrong_settings_are_refused_by_name(dataset: larder.Dataset) -> None:
    for wrong, says in [
        ({"batch_size": 0}, "batch_size is 0\nhint: give a whole number from 1 to 65,536"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"batch_size": 65_537}, "batch_size is 65537"),
        ({"batch_size": True}, "batch_size is True"),
        ({"batch_size": 2.0}, "batch_size is 2.0"),
        ({"seed": -1}, "seed is -1\nhint: give a whole number from 0 to 18,446,744,"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"shuffle": None}, "shuffle is None\nhint: give True, False, 'auto'"),
        ({"last": 1}, "last is 1\nhint: give 'drop', 'pad' or 'uneven'"),
        ({"locality": "x"}, "locality is 'x'\nhint: give True, False or a larder.Locality"),
        ({"prefetch": 65}, "prefetch is 65\nhint: give a whole number from 1 to 64"),
        ({"prefetch": "2"}, "prefetch is '2'"),
        ({"tensors": []}, "no tensor is asked for"),
        ({"shuffle": "some"}, "'some'"),
        ({"last": "keep"}, "'keep'"),
        ({"output": "tensorflow"}, "'tensorflow'"),
        ({"prefetch": 0}, "prefetch is 0"),
        ({"rank": 2, "world_size": 2}, "rank 2"),
        ({"pin_memory": "yes"}, "pin_memory is 'yes'"),
        ({"pin_memory": True, "output": "numpy"}, "batches of numpy can't be page-locked"),
    ]:
        with pytest.raises(larder.InvalidArgument, match=says):
            dataset.loader(**wrong)
    for epoch in (-1, 2**64, 0.0, None, False):
        with pytest.raises(larder.InvalidArgument, match=f"epoch is {epoch}"):
            dataset.loader().set_epoch(epoch)


def test_loader_without_batches_warns_at_its_call_site(
    dataset: larder.Dataset,
) -> None:
    with pytest.warns(
        UserWarning, match="300 samples do not fill a batch of batch_size=301"
    ) as said:
        assert len(dataset.loader(301)) == 0
    (warning,) = said
    assert warning.filename == __file__
    assert "last='uneven'" in str(warning.message)
    with pytest.warns(UserWarning, match="batch_size=200 on each of 2 ranks"):
        dataset.loader(200, rank=0, world_size=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(dataset.loader(301, last="uneven")) == 1
        assert len(dataset.select([]).loader(301)) == 0


def test_settings_at_their_limits_are_accepted(dataset: larder.Dataset) -> None:
    """The native module allows the same values."""
    loader = dataset.loader(65_536, prefetch=64, seed=2**64 - 1, last="uneven")
    assert samples_of(loader) == samples_of(dataset.loader(np.int16(300), seed=2**64 - 1))
    loader.set_epoch(2**64 - 1)
    assert sorted(samples_of(loader)) == list(range(300))


def test_stats_and_explain_report_the_epoch(dataset: larder.Dataset) -> None:
    loader = dataset.loader(30)
    for _ in loader:
        pass
    stats = loader.stats()
    assert (stats["batches"], stats["samples"]) == (10, 300)
    explanation = loader.explain()
    assert len(explanation.slowest) == 10
    assert "10 batches of 300 samples: the loop waited" in str(explanation)
    assert str(dataset.loader(30).explain()) == "no batch was handed out yet"


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "transform", "threads"])
def test_stats_separate_waiting_from_using_time(
    dataset: larder.Dataset, options: dict[str, Any]
) -> None:
    loader = dataset.loader(30, output="numpy", **options)
    begun = time.perf_counter()
    for _ in loader:
        time.sleep(0.01)
    took, stats = time.perf_counter() - begun, loader.stats()
    assert 0.1 <= stats["loop_using_seconds"] < took
    assert 0 < stats["loop_waiting_seconds"] < took
    assert stats["loop_waiting_seconds"] + stats["loop_using_seconds"] < took


def test_an_epoch_is_iterated_by_one_thread_at_a_time(dataset: larder.Dataset) -> None:
    epoch = dataset.loader(1)._native.epoch(0, None)
    failures, counts = [], []

    def run() -> None:
        count = 0
        while True:
            try:
                next(epoch)
                count += 1
            except StopIteration:
                break
            except RuntimeError as error:
                failures.append(str(error))
        counts.append(count)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 300
    assert all("iterate it in one thread" in failure for failure in failures)
