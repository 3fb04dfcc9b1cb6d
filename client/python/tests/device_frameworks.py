"""Programs of ``device_programs`` in which torch or jax takes the batches.

Thread rule: as there.
"""

from __future__ import annotations

import gc
import sys
import time
import weakref
from itertools import cycle, islice, pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

import larder
from cuda_driver import Driver, Imported, Landing
from device_rows import EVEN, bytes_of, check, opened
from device_tools import checked, first, on_device, settled, told

# torch.


@settled
def in_torch(uri: str) -> dict[str, Any]:
    """Batches in blocks of torch's: one each, with views at the right places."""
    import recording_torch

    dataset, gpu = opened(uri), recording_torch.install()
    loader = on_device(dataset, "cuda", prefetch=1)
    blocks, ends = [], []
    place, own = loader._place, gpu.driver.stream()
    assert place.stream() == 1
    gpu.current = own
    assert place.stream() == own
    gpu.current = 0
    for _ in range(2):
        batches = iter(loader)
        while (batch := next(batches, None)) is not None:
            check(batch)
            blocks.append(_block_of(batch))
            shapes = {name: list(batch[name].shape) for name in EVEN}
            types = {name: str(batch[name].dtype) for name in EVEN}
            types |= {"data": str(batch["ragged"].data.dtype)}
            types |= {"offsets": str(batch["ragged"].offsets.dtype)}
            storage = weakref.ref(batch["u8"].untyped_storage())
            del batch
            ends.append(storage() is None)
    sizes, recorded = list(gpu.sizes), [stream for _, stream in gpu.recorded]
    gpu.driver.destroy(own)
    alive = _settled(gpu, 0, dataset)
    gpu.close()
    return {
        "blocks": len(blocks),
        "sizes": len(sizes),
        "asked_too_small": sum(size < block for size, block in zip(sizes, blocks, strict=True)),
        "shapes": shapes,
        "types": types,
        "streams": sorted(set(recorded)),
        "handed_back": sum(ends),
        "alive": alive,
    }


def _block_of(batch: larder.Batch) -> int:
    """Bytes of the block that all of a batch is in, which overlap nowhere."""
    leaves = []
    for value in batch.values():
        leaves += [value.data, value.offsets] if isinstance(value, larder.Ragged) else [value]
    (block,) = {leaf.untyped_storage() for leaf in leaves}
    ranges = sorted((leaf.data_ptr(), leaf.data_ptr() + leaf.nbytes) for leaf in leaves)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ranges))
    assert all(leaf.data_ptr() % 64 == 0 for leaf in leaves)
    assert block.address <= ranges[0][0]
    return ranges[-1][1] - block.address


def _settled(gpu: Any, blocks: int, dataset: larder.Dataset) -> int:
    """The number of live blocks. Waits up to a minute until as few as these are alive."""
    deadline = time.monotonic() + 60
    while len(gpu.alive()) > blocks and time.monotonic() < deadline:
        gc.collect()
        # The begin of an epoch releases the tensors that threads have put down.
        dataset.loader(1)._native.epoch(0, None).close()
        time.sleep(0.001)
    return len(gpu.alive())


@settled
def torch_streams(uri: str) -> dict[str, Any]:
    """Blocks are allocated on one stream and used on another, which changes with each batch."""
    import recording_torch

    dataset, gpu = opened(uri), recording_torch.install()
    streams = [gpu.driver.stream(), gpu.driver.stream(), 0]
    loader = on_device(dataset, tensors=["f32", "u8"], prefetch=1)
    turns, misplaced = cycle(streams), []
    for _ in range(3):
        batches = iter(loader)
        while True:
            # A block allocated now, for a later batch, belongs to this stream.
            gpu.current = next(turns)
            if (batch := next(batches, None)) is None:
                break
            block = batch["f32"].untyped_storage()
            misplaced.append(block.stream != gpu.current)
            if block.stream != gpu.current:
                assert gpu.current in block.used_on
            check(batch)
            # The stream that the block belongs to has waited too: torch uses it there again.
            recycled = recording_torch.Tensor(
                block, 0, sys.modules["torch"].uint8, (block.nbytes,), gpu
            )
            gpu.current = block.stream
            recycled.numpy()
            del block, recycled
    gpu.current = 0
    alive = _settled(gpu, 0, dataset)
    gpu.allocator.empty()
    for stream in streams[:2]:
        gpu.driver.destroy(stream)
    gpu.close()
    return {"batches": len(misplaced), "elsewhere": sum(misplaced), "alive": alive}


@settled
def torch_left_early(uri: str) -> dict[str, Any]:
    """A loop ends while blocks are written; they come back only after that."""
    import recording_torch

    dataset, gpu = opened(uri), recording_torch.install()
    loader = on_device(dataset, tensors=["f32"], prefetch=8)
    kept = list(islice(loader, 2))
    alive = _settled(gpu, 2, dataset)
    for batch in kept:
        check(batch)
    # From here on a block that comes back is freed at once: a mistake under a copy.
    gpu.allocator.empty()
    gpu.allocator.frees_at_once = True
    kept.append(first(loader))
    alive_after_next = _settled(gpu, 3, dataset)
    gpu.allocator.frees_at_once = False
    check(kept[-1])
    del kept, batch, loader
    alive_at_end = _settled(gpu, 0, dataset)
    gpu.close()
    return {"alive": [alive, alive_after_next, alive_at_end]}


@settled
def torch_out_of_memory(uri: str) -> dict[str, Any]:
    """An error of torch for lack of memory ends the loop, and the epoch comes again."""
    import recording_torch

    dataset, gpu = opened(uri), recording_torch.install()
    loader = on_device(dataset, tensors=["f32"])
    said = []
    for allowed in (0, 2, 4):
        gpu.blocks_left = allowed
        said.append(told(checked, loader))
        loader.load_state_dict({"larder": loader.state_dict()["larder"]})
    gpu.blocks_left = None
    checked(loader)
    alive = _settled(gpu, 0, dataset)
    gpu.close()
    return {"said": said, "alive": alive}


# jax.


@settled
def in_jax(uri: str) -> dict[str, Any]:
    """A module in jax's place imports the tensors, as jax does on a GPU."""
    dataset, driver = opened(uri), Driver()
    driver.use()
    own = driver.stream()
    landing = Landing(driver, max(bytes_of([name]) for name in (*EVEN, "ragged")))
    taken: list[Any] = []

    class Array:
        def __init__(self, tensor: Any) -> None:
            assert isinstance(tensor, larder.DeviceTensor)
            assert tensor.__dlpack_device__() == (2, 0)
            self.dtype, self.shape, self.nbytes = tensor.dtype, tensor.shape, tensor.nbytes
            self._imported = Imported(tensor.__dlpack__(stream=own))
            taken.append(1)

        def numpy(self) -> np.ndarray:
            landing.queue(self._imported.address, self.nbytes, own)
            driver.finish(own)
            return landing.array(self.dtype, self.shape)

        def __del__(self) -> None:
            self._imported.delete()

    jax: Any = ModuleType("jax")
    jax.dlpack = SimpleNamespace(from_dlpack=Array)
    jax.distributed = SimpleNamespace(is_initialized=lambda: False)
    sys.modules["jax"] = jax
    batches = iter(on_device(dataset, output="jax"))
    while (batch := next(batches, None)) is not None:
        assert {type(batch[name]) for name in EVEN} == {Array}
        check(batch)
    landing.free()
    driver.destroy(own)
    driver.release()
    return {"taken": len(taken)}
