"""Programs that the tests of devices run as children: ``python -m device_programs NAME JSON``.

A process loads the driver once, so each program has its own process and driver. A program prints
its findings as JSON in its last line, and its test compares them.

Thread rule: each program runs on its process's main thread. Non-goals: judging. Programs assert
only facts that are long to return, such as bytes.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np

import device_frameworks
import larder
from cuda_driver import Driver, Imported, Landing
from device_rows import BATCH, BATCHES, EVEN, SHARD_BYTES, all_rows, bytes_of, check, host, opened
from device_tools import LOADER, checked, copied, delta, first, on_device, settled, told

# The matrix.


@settled
def matrix(uri: str, way: str, devices: int) -> dict[str, Any]:
    """Every column alone and all together, side by side and scattered, for two epochs.

    The second epoch counts, because the first may register pages.
    """
    dataset = opened(uri)
    epochs = []
    for shuffle in (False, "global"):
        for names in (None, *([name] for name in (*EVEN, "ragged"))):
            loaders = [
                on_device(dataset, f"cuda:{n}", shuffle=shuffle, tensors=names, device_way=way)
                for n in range(devices)
            ]
            for number in range(2):
                with delta() as grown:
                    batches = _checked_epoch(loaders)
                epochs.append({"names": names, "batches": batches, "epoch": number, **grown})
    return {"epochs": epochs}


@settled
def mixture_and_windows(uri: str, mixed: list[str], tokens: str, way: str) -> dict[str, Any]:
    """Rows of two datasets in one batch, and windows of tokens that overlap."""
    datasets = [larder.open(each) for each in mixed]
    written = [np.load(f"{each.removeprefix('file://')}/row.npy") for each in mixed]
    mixture = larder.mix(list(zip(datasets, (0.6, 0.4), strict=True)))

    def mixed_epoch() -> None:
        for batch in mixture.loader(16, seed=3, device="cuda:0", device_way=way):
            rows = zip(batch.sources, batch.samples, strict=True)
            expected = np.stack([written[source][sample] for source, sample in rows])
            assert np.array_equal(batch["row"].numpy(), expected)

    windows = larder.open(tokens)
    stream = np.fromfile(f"{tokens.removeprefix('file://')}/a.bin", np.uint16)

    def epoch_of_windows(shuffle: str) -> None:
        for batch in windows.loader(8, shuffle=shuffle, device="cuda:0", device_way=way):
            (rows,) = (column.numpy() for column in batch.values())
            size, step = rows.shape[1], rows.shape[1] // 2
            for row, sample in zip(rows, batch.samples, strict=True):
                assert np.array_equal(row, stream[sample * step :][:size])

    epochs = (mixed_epoch, partial(epoch_of_windows, "none"), partial(epoch_of_windows, "global"))
    return {"viewed": [_viewed(epoch, way) for epoch in epochs]}


@settled
def formats(uri: str, files: dict[str, str], way: str) -> dict[str, Any]:
    """Files of people, as they are and decoded: a device gets what the host gets."""
    compared = 0
    for each in files.values():
        dataset = larder.open(each)
        for decode in (None, {"jpg": larder.Image(24, crop="random", flip=True)}):
            settings: dict[str, Any] = {"shuffle": "global", "decode": decode, **LOADER}
            on_host = dataset.loader(BATCH, output="numpy", **settings)
            there = dataset.loader(BATCH, device="cuda:0", device_way=way, **settings)
            for ours, theirs in zip(on_host, there, strict=True):
                assert ours.samples.tolist() == theirs.samples.tolist()
                for name, column in ours.items():
                    _assert_equal(column, theirs[name])
                compared += 1
    return {"compared": compared}


def _assert_equal(ours: Any, theirs: Any) -> None:
    if isinstance(ours, larder.Ragged):
        _assert_equal(ours.offsets, theirs.offsets)
        ours, theirs = ours.data, theirs.data
    theirs = host(theirs)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    assert ours.tobytes() == theirs.tobytes()


def _viewed(epoch: Callable[[], None], way: str) -> bool:
    """Whether rows of an epoch went directly: with `way` direct, once their shards are mapped."""
    for _ in range(600):
        with delta() as grown:
            epoch()
        if grown["viewed_bytes"] > 0 or way == "staged":
            break
        time.sleep(0.05)
    return grown["viewed_bytes"] > 0


def _checked_epoch(loaders: list[larder.Loader]) -> int:
    batches = 0
    for together in zip(*loaders, strict=True):
        for ordinal, batch in enumerate(together):
            leaf = next(iter(batch.values()))
            leaf = leaf.data if isinstance(leaf, larder.Ragged) else leaf
            assert leaf.device == f"cuda:{ordinal}"
            check(batch)
        batches += 1
    return batches


@settled
def copies(
    uri: str, way: str, names: list[str], batch: int = BATCH, shuffle: Any = False
) -> dict[str, Any]:
    """One epoch without a look at its bytes, so that all copies are those of batches."""
    dataset = opened(uri)
    shards = larder.index(uri, shard_bytes=SHARD_BYTES).shards
    loader = dataset.loader(
        batch, **LOADER, shuffle=shuffle, tensors=names, device="cuda:0", device_way=way
    )
    batches = sum(1 for _ in loader)
    return {"batches": batches, "shards": shards}


# Tensors.


@settled
def tensors(uri: str) -> dict[str, Any]:
    """The facts of a tensor of each type."""
    from conftest import all_types

    (batch,) = larder.open(uri).loader(5, shuffle=False, device="cuda:0")
    facts = {}
    for name, expected in all_types().items():
        tensor = batch[name]
        assert isinstance(tensor, larder.DeviceTensor)
        host = tensor.numpy()
        assert host.dtype == expected.dtype
        assert host.tobytes() == expected.tobytes(), name
        old, new = Imported(tensor.__dlpack__()), Imported(tensor.__dlpack__(max_version=(1, 1)))
        assert (old.is_versioned, new.is_versioned) == (False, True)
        assert old.address == new.address
        assert old.address % 64 == 0
        assert old.fields() == new.fields()
        assert list(new.managed.version) == [1, 1]
        assert new.managed.flags == 0
        old.delete()
        new.delete()
        facts[name] = {
            "shape": tensor.shape,
            "dtype": tensor.dtype,
            "device": tensor.device,
            "nbytes": tensor.nbytes,
            "len": len(tensor),
            "repr": repr(tensor),
            "dlpack_device": tensor.__dlpack_device__(),
            "dlpack": old_fields(tensor),
            "interface": interface(tensor),
        }
    refused = {
        "stream": told(tensor.__dlpack__, stream=0),
        "device": told(tensor.__dlpack__, dl_device=(1, 0)),
        "copy": told(tensor.__dlpack__, copy=True),
    }
    assert tensor.__dlpack__(dl_device=(2, 0), copy=False) is not None
    return {"facts": facts, "refused": refused}


def old_fields(tensor: larder.DeviceTensor) -> dict[str, Any]:
    imported = Imported(tensor.__dlpack__(stream=1))
    fields = imported.fields()
    imported.delete()
    return fields


def interface(tensor: larder.DeviceTensor) -> Any:
    """The CUDA array interface, with whether its address is that of DLPack; or its error."""
    error = told(getattr, tensor, "__cuda_array_interface__")
    if error is not None:
        return error
    facts = tensor.__cuda_array_interface__
    imported = Imported(tensor.__dlpack__())
    address, read_only = facts.pop("data")
    assert address == imported.address
    imported.delete()
    return {**facts, "read_only": read_only}


@settled
def consumer(uri: str) -> dict[str, Any]:
    """Consumers read each batch on the stream that they named, without a wait in between."""
    dataset, driver = opened(uri), Driver()
    driver.use()
    own = driver.stream()
    landing = Landing(driver, bytes_of(["f32"]))
    rows = all_rows()["f32"]
    for asked, used in ((own, own), (None, 1), (1, 1), (2, 2)):
        for batch in on_device(dataset, tensors=["f32"], prefetch=1):
            imported = Imported(batch["f32"].__dlpack__(stream=asked))
            landing.queue(imported.address, batch["f32"].nbytes, used)
            driver.finish(used)
            imported.delete()
            expected = rows[batch.samples]
            assert landing.bytes(expected.nbytes) == expected.tobytes()
    # Without a wait: the consumer has another reason to know that the bytes are there.
    for batch in on_device(dataset, tensors=["f32"], prefetch=1):
        batch["f32"].numpy()
        imported = Imported(batch["f32"].__dlpack__(stream=-1))
        landing.queue(imported.address, batch["f32"].nbytes, own)
        driver.finish(own)
        imported.delete()
        assert landing.bytes(batch["f32"].nbytes) == rows[batch.samples].tobytes()
    # The interface names the default stream.
    for batch in on_device(dataset, tensors=["f32"], prefetch=1):
        facts = batch["f32"].__cuda_array_interface__
        landing.queue(facts["data"][0], batch["f32"].nbytes, facts["stream"])
        driver.finish(facts["stream"])
        assert landing.bytes(batch["f32"].nbytes) == rows[batch.samples].tobytes()
    landing.free()
    driver.destroy(own)
    driver.release()
    return {}


@settled
def early_deleter(uri: str) -> dict[str, Any]:
    """A consumer calls the deleter while its read is queued: many batches in few blocks."""
    dataset, driver = opened(uri), Driver()
    driver.use()
    own = driver.stream()
    loader = on_device(dataset, tensors=["f32"], prefetch=1)
    landings, batches = [], 0
    for _ in range(8):
        for batch in loader:
            tensor = batch["f32"]
            imported = Imported(tensor.__dlpack__(stream=own))
            landings.append((Landing(driver, tensor.nbytes), batch.samples))
            landings[-1][0].queue(imported.address, tensor.nbytes, own)
            imported.delete()
            del tensor, batch
            batches += 1
    driver.finish(own)
    for landing, samples in landings:
        assert landing.bytes(landing.nbytes) == all_rows()["f32"][samples].tobytes()
        landing.free()
    allocated = driver.report()["calls"]["cuMemAlloc_v2"]
    driver.destroy(own)
    driver.release()
    return {"batches": batches, "allocated": allocated}


# Bad input.


def no_loader(uri: str, device: str = "cuda:0") -> dict[str, Any]:
    """The error of a program that can't have a device; the host goes on."""
    dataset = larder.open(uri)
    said = told(on_device, dataset, device)
    try:
        listed: Any = larder.devices()
    except larder.Error:
        listed = told(larder.devices)
    checked(dataset.loader(BATCH, **LOADER, output="numpy"))
    return {"loader": said, "devices": listed}


@settled
def out_of_memory(uri: str) -> dict[str, Any]:
    """More batches are kept than fit the device."""
    dataset = opened(uri)
    loader = on_device(dataset, tensors=["f32"])
    said = told(list, loader)
    state = loader.state_dict()
    del loader
    # Smaller batches fit after the device has done its copies.
    driver, deadline = Driver(), time.monotonic() + 60
    while driver.report()["left"]["device_allocations"] and time.monotonic() < deadline:
        time.sleep(0.005)
    checked(dataset.loader(1, tensors=["f32"], device="cuda:0", prefetch=1))
    return {"said": said, "state": state["larder"]}


@settled
def out_of_pages(uri: str) -> dict[str, Any]:
    """The host has no page-locked memory at first."""
    dataset = opened(uri)
    loader = on_device(dataset, tensors=["f32"], device_way="staged")
    said = told(first, loader)
    state = loader.state_dict()
    checked(loader)
    return {"said": said, "state": state["larder"]}


@settled
def refused(uri: str) -> dict[str, Any]:
    dataset = opened(uri)
    loader = on_device(dataset, tensors=["f32"], shuffle=False)
    with warnings.catch_warnings(record=True) as caught, delta() as grown:
        warnings.simplefilter("always")
        for _ in range(3):
            for batch in loader:  # the line that is warned of
                check(batch)
    staged = on_device(dataset, tensors=["f32"], shuffle=False, device_way="staged")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checked(staged)
    direct = on_device(dataset, tensors=["f32"], shuffle=False, device_way="direct")
    return {
        "warnings": [[one.category.__name__, str(one.message), one.filename] for one in caught],
        "explained": str(loader.explain()),
        "refused": loader.explain().refused,
        "staged_refused": staged.explain().refused,
        "direct": told(list, direct),
        "staged_share": grown["staged_bytes"] / grown["device_bytes"],
    }


def lost(uri: str, way: str) -> dict[str, Any]:
    """The device is lost in the midst of a loop."""
    dataset = opened(uri)
    loader = on_device(dataset, tensors=["f32"], device_way=way, prefetch=1)
    batches = []

    def train() -> None:
        while True:
            for batch in loader:
                batches.append(batch)
                del batches[:-2]
                batch["f32"].numpy()

    said = told(train)
    again = told(list, loader)
    another = told(on_device, dataset, tensors=["f32"], device_way="staged")
    read = told(batches[0]["f32"].numpy) if batches else None
    state = loader.state_dict()["larder"]
    host = dataset.loader(BATCH, **LOADER, output="numpy", shuffle="global")
    host.load_state_dict({"larder": state})
    checked(host)
    return {"said": said, "again": again, "another": another, "read": read, "state": state}


# Processes.


@settled
def forked(uri: str) -> dict[str, Any]:
    """A forked child calls every function of its device."""
    dataset = opened(uri)
    loader = on_device(dataset, tensors=["f32"])
    batches = iter(loader)
    batch = next(batches)
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        tensor = batch["f32"]
        said = {
            "next": told(next, batches),
            "loop": told(first, loader),
            "made": told(on_device, dataset),
            "devices": told(larder.devices),
            "numpy": told(tensor.numpy),
            "dlpack": told(tensor.__dlpack__),
            "interface": told(getattr, tensor, "__cuda_array_interface__"),
        }
        checked(dataset.loader(BATCH, **LOADER, output="numpy"))
        del tensor, batch, batches, loader, dataset
        gc.collect()
        os.write(send, json.dumps(said).encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as pipe:
        said = json.loads(pipe.read() or "null")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    check(batch)
    for batch in batches:
        check(batch)
    return {"said": said, "code": code, "process": os.getpid()}


def forked_first(uri: str) -> dict[str, Any]:
    """A child uses the device of which its parent has not asked."""
    dataset = opened(uri)
    child = os.fork()
    if child == 0:
        try:
            checked(on_device(dataset, tensors=["f32"], shuffle=False))
            del dataset
            driver = Driver()
            deadline = time.monotonic() + 60
            # Threads of the parent may have had rows in use when the child was forked: then the
            # child keeps those pages, and their registration.
            kept = {"registrations", "contexts"}
            while any(n for what, n in driver.report()["left"].items() if what not in kept):
                assert time.monotonic() < deadline, driver.report()["left"]
                time.sleep(0.005)
            assert driver.report()["mistakes"] == []
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return {"code": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}


@settled
def worker(uri: str) -> dict[str, Any]:
    import recording_torch

    dataset, gpu = larder.open(uri), recording_torch.install()
    loader = on_device(dataset)
    gpu.worker = SimpleNamespace(id=1, num_workers=4)
    said = {
        "made": told(on_device, dataset),
        "made_with_rank": told(on_device, dataset, rank=0, world_size=1),
        "unpickled": told(copied, loader),
    }
    gpu.close()
    return said


@settled
def resumed(uri: str) -> dict[str, Any]:
    """Copies and resumed loaders bring the batches of the host's loader."""
    dataset = opened(uri)
    host = dataset.loader(BATCH, **LOADER, shuffle="global", output="numpy")
    expected = [batch.samples.tolist() for batch in host]
    for cut in (1, 3):
        loader = on_device(dataset)
        assert len(loader) == len(host) == BATCHES
        batches = iter(loader)
        for _ in range(cut):
            batch = next(batches)
        states = [batch.state_dict(), loader.state_dict()]
        copy = copied(loader)
        fresh = on_device(dataset)
        fresh.load_state_dict(states[1])
        assert states[0] == states[1]
        for other in (copy, fresh):
            assert checked(other) == expected[cut:]
            assert other.state_dict()["larder"].split("/")[4::3] == ["1", "0"]
        # A state saved on the host goes on on the device, and the other way.
        host = dataset.loader(BATCH, **LOADER, shuffle="global", output="numpy")
        host.load_state_dict(states[0])
        assert [batch.samples.tolist() for batch in host] == expected[cut:]
        host = dataset.loader(BATCH, **LOADER, shuffle="global", output="numpy")
        first(host)
        fresh.load_state_dict(host.state_dict())
        assert checked(fresh) == expected[1:]
    return {}


# Leaving.


@settled
def left_early(uri: str) -> dict[str, Any]:
    dataset = opened(uri)

    def left_by_error() -> None:
        for batch in on_device(dataset, device_way="direct", shuffle=False):
            raise RuntimeError(f"{len(batch)}")

    def batches_outlive_their_loader() -> None:
        loader = on_device(dataset, prefetch=4)
        kept = list(islice(loader, 3))
        del loader
        gc.collect()
        for batch in kept:
            check(batch)

    def a_tensor_outlives_its_batch() -> None:
        batch = next(iter(on_device(dataset)))
        samples, tensor = batch.samples, batch["f32"]
        imported = Imported(batch["u8"].__dlpack__())
        del batch
        gc.collect()
        assert tensor.numpy().tobytes() == all_rows()["f32"][samples].tobytes()
        del tensor
        driver = Driver()
        driver.use()
        landing = Landing(driver, len(samples) * all_rows()["u8"].shape[1])
        landing.queue(imported.address, landing.nbytes, 1)
        driver.finish(1)
        assert landing.bytes(landing.nbytes) == all_rows()["u8"][samples].tobytes()
        imported.delete()
        landing.free()
        driver.release()

    def two_epochs_side_by_side() -> None:
        loader = on_device(dataset, prefetch=4)
        for one, other in islice(zip(iter(loader), iter(loader), strict=True), 2):
            check(one)
            check(other)

    for _ in on_device(dataset):
        break
    error = told(left_by_error)
    batches_outlive_their_loader()
    a_tensor_outlives_its_batch()
    iter(on_device(dataset))
    two_epochs_side_by_side()
    return {"error": error}


@settled
def all_goes_at_once(uri: str, way: str) -> dict[str, Any]:
    """Batches, loader and dataset go while copies are queued, and the device with them."""
    dataset = opened(uri)
    loader = on_device(dataset, tensors=["f32"], device_way=way)
    batches = list(loader)
    return {"batches": len(batches)}


def ended(uri: str, way: str) -> dict[str, Any]:
    """The interpreter ends with everything alive and copies running."""
    global KEPT
    dataset = opened(uri)
    loader = on_device(dataset, device_way=way, prefetch=8)
    batches = iter(loader)
    KEPT = (dataset, loader, batches, [next(batches), next(batches)])
    return {}


KEPT: Any = None


# Facts.


@settled
def facts(uri: str) -> dict[str, Any]:
    dataset = opened(uri)
    listed = larder.devices()
    with delta() as grown:
        loader = on_device(dataset, device_way="staged", tensors=["f32"])
        checked(loader)
    stats = loader.stats()
    sums = {name: stats[name] for name in ("device_bytes", "staged_bytes", "bytes")}
    refused = loader.explain().refused
    return {"devices": listed, "process": grown, "loader": sums, "refused": refused}


if __name__ == "__main__":
    program, arguments = sys.argv[1:]
    print(json.dumps({**vars(device_frameworks), **globals()}[program](**json.loads(arguments))))
