"""A module in torch's place, for children that load the stand-in of the driver.

It has the part of torch that batches on a device need: blocks of device memory, views and streams.
Its allocator reuses a block without a wait, on the same stream, as torch's does. The module records
each call of Larder.

Thread rule: one thread. Non-goals: computing, autograd, the host's tensors.
"""

from __future__ import annotations

import math
import sys
import weakref
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from cuda_driver import Driver, Landing


class Dtype:
    def __init__(self, name: str, itemsize: int) -> None:
        self.name, self.itemsize = name, itemsize

    def __repr__(self) -> str:
        return f"torch.{self.name}"


class Device:
    def __init__(self, name: Any) -> None:
        self.type, _, index = str(name).partition(":")
        self.index = int(index or 0)

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class Stream:
    """A stream of the program; 0 is the default stream, as torch counts."""

    def __init__(self, handle: int) -> None:
        self.cuda_stream = handle


class Storage:
    """A block of device memory. It goes back to the allocator with its last view."""

    def __init__(self, allocator: Allocator, address: int, nbytes: int, stream: int) -> None:
        self.address, self.nbytes, self.stream = address, nbytes, stream
        #: Other streams that use it.
        self.used_on: set[int] = set()
        self.finish = weakref.finalize(
            self, allocator.take_back, address, nbytes, stream, self.used_on
        )
        self.finish.atexit = False


class Tensor:
    """Bytes of a storage as elements of a type."""

    def __init__(
        self, storage: Storage, offset: int, dtype: Dtype, shape: tuple[int, ...], gpu: Gpu
    ) -> None:
        self._storage, self._offset, self._gpu = storage, offset, gpu
        self.dtype, self.shape, self.device = dtype, shape, gpu.device

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def data_ptr(self) -> int:
        return self._storage.address + self._offset

    def untyped_storage(self) -> Storage:
        return self._storage

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> Tensor:
        assert len(self.shape) == 1
        begin, end, step = part.indices(self.shape[0])
        assert step == 1
        offset = self._offset + begin * self.dtype.itemsize
        return Tensor(self._storage, offset, self.dtype, (end - begin,), self._gpu)

    def view(self, to: Any) -> Tensor:
        if isinstance(to, Dtype):
            assert self.data_ptr() % to.itemsize == 0
            assert self.nbytes % to.itemsize == 0
            shape = (*self.shape[:-1], self.shape[-1] * self.dtype.itemsize // to.itemsize)
            return Tensor(self._storage, self._offset, to, shape, self._gpu)
        shape = tuple(to)
        assert math.prod(shape) == math.prod(self.shape)
        return Tensor(self._storage, self._offset, self.dtype, shape, self._gpu)

    def record_stream(self, stream: Stream) -> None:
        self._gpu.recorded.append((self._storage.address, stream.cuda_stream))
        if stream.cuda_stream != self._storage.stream:
            self._storage.used_on.add(stream.cuda_stream)

    def read_into(self, landing: Landing) -> None:
        """Queues a copy to the host on the current stream."""
        landing.queue(self.data_ptr(), self.nbytes, self._gpu.current)

    def numpy(self) -> np.ndarray:
        """A copy in the memory of the host, after all work queued on the current stream."""
        if self.nbytes == 0:
            return np.empty(self.shape, self.dtype.name)
        landing = Landing(self._gpu.driver, self.nbytes)
        self.read_into(landing)
        self._gpu.driver.finish(self._gpu.current)
        array = landing.array(self.dtype.name, self.shape)
        landing.free()
        return array


class Allocator:
    """Blocks of a GPU. A returned block is reused on its stream, without a wait."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self._driver, self._ordinal = driver, ordinal
        self._idle: list[tuple[int, int, int, list[int]]] = []
        #: Frees a returned block at once: right only for a block that no copy uses.
        self.frees_at_once = False
        self.allocated = 0

    def block(self, nbytes: int, stream: int) -> Storage:
        for index, (address, size, of, events) in enumerate(self._idle):
            if (size, of) == (nbytes, stream) and all(map(self._driver.is_done, events)):
                del self._idle[index]
                for event in events:
                    self._driver.call("cuEventDestroy_v2", event)
                return Storage(self, address, size, stream)
        self.allocated += 1
        return Storage(self, self._driver.number("cuMemAlloc_v2", nbytes), nbytes, stream)

    def take_back(self, address: int, nbytes: int, stream: int, used_on: set[int]) -> None:
        if self.frees_at_once:
            self._driver.call("cuMemFree_v2", address)
            return
        events = [self._driver.event(other) for other in used_on]
        self._idle.append((address, nbytes, stream, events))

    def empty(self) -> None:
        """Frees idle blocks once the device is done with them."""
        for address, _, stream, events in self._idle:
            for event in [*events, self._driver.event(stream)]:
                self._driver.wait(event)
            self._driver.call("cuMemFree_v2", address)
        self._idle.clear()


class Gpu:
    """The records of the module, and the state of its GPU."""

    def __init__(self, ordinal: int = 0) -> None:
        self.driver = Driver()
        self.driver.use(ordinal)
        self.device = Device(f"cuda:{ordinal}")
        self.allocator = Allocator(self.driver, ordinal)
        #: The stream that is current, as torch counts.
        self.current = 0
        #: Bytes that were asked for, in turn.
        self.sizes: list[int] = []
        #: Addresses and streams of calls of ``record_stream``.
        self.recorded: list[tuple[int, int]] = []
        self._storages: list[weakref.ref[Storage]] = []
        #: The DataLoader worker that this process is, if it plays one.
        self.worker: Any = None
        #: How many blocks are left before memory runs out; None for any number.
        self.blocks_left: int | None = None

    def empty(self, size: int, *, dtype: Dtype, device: Any) -> Tensor:
        assert dtype.name == "uint8"
        assert device == self.device
        if self.blocks_left is not None:
            if self.blocks_left == 0:
                raise RuntimeError("CUDA out of memory")
            self.blocks_left -= 1
        storage = self.allocator.block(size, self.current)
        self.sizes.append(size)
        self._storages.append(weakref.ref(storage))
        return Tensor(storage, 0, dtype, (size,), self)

    def alive(self) -> set[int]:
        """Addresses of the blocks that some object still has."""
        storages = [storage() for storage in self._storages]
        return {storage.address for storage in storages if storage is not None}

    def close(self) -> None:
        """Gives everything back."""
        self.allocator.empty()
        self.driver.release(self.device.index)


def install(ordinal: int = 0) -> Gpu:
    """Puts the module in torch's place, in a process that has no torch."""
    assert "torch" not in sys.modules
    gpu = Gpu(ordinal)
    torch: Any = ModuleType("torch")
    for name in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
        setattr(torch, name, Dtype(name, np.dtype(name).itemsize))
    for name in ("float16", "float32", "float64"):
        setattr(torch, name, Dtype(name, np.dtype(name).itemsize))
    torch.bfloat16, torch.bool = Dtype("bfloat16", 2), Dtype("bool", 1)
    torch.Tensor, torch.device, torch.empty = Tensor, Device, gpu.empty
    torch.cuda = SimpleNamespace(
        current_stream=lambda device=None: Stream(gpu.current),
        current_device=lambda: gpu.device.index,
        device_count=lambda: 1,
        is_initialized=lambda: True,
    )
    data: Any = ModuleType("torch.utils.data")
    data.get_worker_info = lambda: gpu.worker
    utils: Any = ModuleType("torch.utils")
    utils.data = data
    torch.utils = utils
    sys.modules.update({"torch": torch, "torch.utils": utils, "torch.utils.data": data})
    return gpu
