"""Arrays leave by the buffer protocol and by DLPack, without a copy and with exact lifetimes."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import larder
from harness import Node


@pytest.fixture
def arrays(node: Node) -> dict[str, larder.Array]:
    """The first two samples of every type, in memory of their own."""
    dataset = larder.open("s3://data/types", cluster=node.address)
    return dataset._native.take(np.arange(2), None)


def test_every_type_reads_back_as_numpy_wrote_it(
    arrays: dict[str, larder.Array], types: dict[str, np.ndarray]
) -> None:
    from larder._output import to_numpy

    assert set(arrays) == set(types)
    for name, array in arrays.items():
        view = to_numpy(array)
        assert view.dtype == types[name].dtype, name
        assert view.shape == (2, 2, 3)
        assert view.tobytes() == types[name][:2].tobytes(), name
        assert view.flags.writeable
        assert np.shares_memory(view, to_numpy(array)), name


def test_type_without_a_buffer_format_is_refused_by_name(
    arrays: dict[str, larder.Array],
) -> None:
    with pytest.raises(BufferError, match="no bfloat16: use DLPack"):
        memoryview(arrays["bfloat16"])


def test_buffer_protocol_has_shape_and_format(arrays: dict[str, larder.Array]) -> None:
    view = memoryview(arrays["int32"])
    assert (view.format, view.itemsize, view.shape) == ("i", 4, (2, 2, 3))
    assert view.strides == (24, 12, 4)
    assert view.c_contiguous
    assert not view.readonly
    view[0, 0, 0] = 77
    assert np.asarray(arrays["int32"])[0, 0, 0] == 77


def test_numpy_imports_every_numpy_type_by_dlpack(
    arrays: dict[str, larder.Array], types: dict[str, np.ndarray]
) -> None:
    for name, array in arrays.items():
        if types[name].dtype.kind == "V" or name.startswith(("bfloat", "float8")):
            continue
        view = np.from_dlpack(array)
        assert np.array_equal(view, types[name][:2]), name
        assert view.flags.writeable
        assert np.shares_memory(view, np.asarray(array))
        copy = np.from_dlpack(array, copy=True)
        assert np.array_equal(copy, view)
        assert not np.shares_memory(copy, view)


def test_jax_imports_types_and_bfloat16_without_a_copy(
    arrays: dict[str, larder.Array], types: dict[str, np.ndarray]
) -> None:
    import jax

    for name in ("uint8", "int32", "float32", "bfloat16", "float16", "bool", "float8_e5m2"):
        imported = jax.dlpack.from_dlpack(arrays[name])
        assert imported.dtype == types[name].dtype
        assert np.asarray(imported).tobytes() == types[name][:2].tobytes(), name
    imported = jax.dlpack.from_dlpack(arrays["float32"])
    view = np.asarray(arrays["float32"])
    assert imported.unsafe_buffer_pointer() == view.ctypes.data


def test_dlpack_to_another_device_is_refused(arrays: dict[str, larder.Array]) -> None:
    assert arrays["uint8"].__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="memory of the host"):
        arrays["uint8"].__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="no stream"):
        arrays["uint8"].__dlpack__(stream=1)


@pytest.fixture
def batches(node: Node) -> Iterator[larder.Batch]:
    """Shuffled batches: each in a pooled buffer, used again once it is free."""
    dataset = larder.open("s3://data/images", cluster=node.address)
    return iter(dataset.loader(4, prefetch=1, output="numpy", shuffle="global"))


@pytest.mark.parametrize("version", [None, (1, 0), (1, 1), (2, 3)])
def test_unconsumed_dlpack_capsule_releases_its_memory(
    node: Node, version: tuple[int, int] | None
) -> None:
    loader = larder.open("s3://data/images", cluster=node.address).loader(
        64, prefetch=1, shuffle="global"
    )
    addresses = set()
    for _ in range(10):
        for batch in loader._native.epoch(0, None):
            array = batch.tensors["image"]
            addresses.add(np.asarray(array).ctypes.data)
            capsule = array.__dlpack__(max_version=version)
            assert ("dltensor_versioned" in repr(capsule)) == (version is not None)
            del capsule, array, batch
    assert len(addresses) <= 4


def test_memory_lives_until_its_last_view_is_dropped(
    batches: Iterator[larder.Batch], images: dict[str, np.ndarray]
) -> None:
    kept = []
    for number, batch in enumerate(batches):
        view = batch["image"]
        kept.append((batch.samples, np.from_dlpack(view) if number % 2 else view[1:, ::2]))
        if number == 40:
            break
    del batch, view
    gc.collect()
    for number, (samples, view) in enumerate(kept):
        expected = images["image"][samples]
        np.testing.assert_array_equal(view, expected if number % 2 else expected[1:, ::2])


def test_views_can_be_dropped_in_another_thread(batches: Iterator[larder.Batch]) -> None:
    held = [np.from_dlpack(next(batches)["image"]) for _ in range(8)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    next(batches)


def test_views_stay_valid_in_parent_and_forked_child(
    batches: Iterator[larder.Batch], images: dict[str, np.ndarray]
) -> None:
    batch = next(batches)
    child = os.fork()
    if child == 0:
        good = np.array_equal(batch["image"], images["image"][batch.samples])
        batch["image"][:] = 0
        del batch
        gc.collect()
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(batch["image"], images["image"][batch.samples])
    next(batches)
