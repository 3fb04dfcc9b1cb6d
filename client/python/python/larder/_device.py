"""Batches in the memory of a GPU.

For torch, each batch is copied into a block of torch's own allocator, and its tensors are views of
that block. torch's streams wait for the copy, so torch may use the block again by its own rules.
For other frameworks a batch has :class:`larder.DeviceTensor` in memory that Larder owns.

Thread rule: any thread, in the process that made the loader. Nothing here waits for the GPU.
Non-goals: transforms, which run on the host.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar

from larder import _distributed
from larder._errors import InvalidArgument
from larder._frameworks import imported
from larder._output import convert_all, unknown

if TYPE_CHECKING:
    from larder import _larder
    from larder._larder import DeviceTensor, Part
    from larder._output import Output
    from larder._samples import Samples

#: How bytes get to a device.
DeviceWay = Literal["auto", "staged", "direct"]

_DEVICE = re.compile(r"cuda(?::(\d+))?")
#: DLPack's number of the default stream, which torch calls 0.
_DEFAULT_STREAM = 1


class _Movable(Protocol):
    """A value that torch can copy."""

    def to(self, *args: Any, **kwargs: Any) -> Self: ...


_MovableT = TypeVar("_MovableT", bound=_Movable)


@dataclass(frozen=True)
class Target:
    """The device of a loader's batches, and the way of their bytes."""

    ordinal: int
    way: DeviceWay

    @classmethod
    def of(cls, device: Any, way: Any, *, output: Output, pin_memory: object) -> Target | None:
        """Checks a user's choice of device; None without a device. ``way`` is checked already."""
        if device is None:
            return None
        if pin_memory is True:
            raise InvalidArgument(
                "pin_memory=True beside a device",
                "batches on a device are not in the memory of the host",
                "leave pin_memory out",
            )
        if output == "numpy":
            raise InvalidArgument(
                "arrays of numpy are in the memory of the host",
                hint="say output='torch', 'jax' or 'device', or leave device out",
            )
        if output not in ("torch", "jax", "device"):
            raise unknown(output)
        return cls(_ordinal(device), way)

    @staticmethod
    def check_transforms(output: Output, *transforms: object) -> None:
        """Raises if there are transforms with results that can't reach the device."""
        if output != "torch" and any(transform is not None for transform in transforms):
            raise InvalidArgument(
                f"a transform beside a device and output={output!r}",
                "transforms run on the host, and it is torch that copies what they return",
                "say output='torch', or leave device out and copy what the loader brings",
            )

    def move(self, batch: _MovableT) -> _MovableT:
        """A transformed batch on the device, copied by torch. The loop does not wait for it."""
        return batch.to(f"cuda:{self.ordinal}", non_blocking=True)


def _ordinal(device: Any) -> int:
    """The number of a device as users write it: `"cuda"`, `"cuda:1"` or a torch device."""
    found = _DEVICE.fullmatch(str(device))
    if found is None:
        raise InvalidArgument(
            f"device is {device!r}",
            "batches go to the memory of NVIDIA GPUs",
            "say device='cuda' or 'cuda:0', or leave it out for the memory of the host",
        )
    if found[1] is not None:
        return int(found[1])
    torch = imported("torch")
    return 0 if torch is None or not torch.cuda.is_initialized() else torch.cuda.current_device()


def place_of(target: Target, native: _larder.Loader, output: Output) -> Place:
    """Makes the place of a loader's batches on its device."""
    pump = native.pump(target.ordinal, target.way)
    return _InTorch(pump) if output == "torch" else _InOwnMemory(pump, output)


def refuse_in_worker(target: Target) -> None:
    """Raises `InvalidArgument` in a DataLoader's worker: workers do not use the GPU."""
    info = _distributed.worker_info()
    if info is not None:
        raise InvalidArgument(
            f"device 'cuda:{target.ordinal}' in DataLoader worker {info.id} of {info.num_workers}",
            "a worker hands its batches over in the memory of the host",
            "iterate the loader without a DataLoader: it fetches ahead by itself",
        )


class _Base:
    """Batches on a device: :meth:`epoch` begins an epoch, :meth:`values` has a batch's tensors."""

    def __init__(self, pump: _larder.Pump) -> None:
        self._pump = pump
        self._has_warned = False

    @property
    def refused(self) -> str | None:
        """Why pages of the cache are not registered."""
        return self._pump.refused

    def warn_if_refused(self) -> None:
        """Warns once if the driver refused direct copies, so that batches are staged."""
        if not self._has_warned and (why := self._pump.refused) is not None:
            self._has_warned = True
            warnings.warn(
                f"batches are copied through page-locked memory: {why}; "
                "device_way='staged' says so without this warning",
                stacklevel=7,
            )


class _InOwnMemory(_Base):
    """Tensors in memory of Larder's own."""

    def __init__(self, pump: _larder.Pump, output: Output) -> None:
        super().__init__(pump)
        self._output = output

    def epoch(self, native: _larder.Loader, number: int) -> _larder.Epoch:
        return native.epoch_on(number, self._pump, None)

    def values(self, native: _larder.Batch) -> Samples:
        self.warn_if_refused()
        convert = _to_jax if self._output == "jax" else _same
        return convert_all(native.tensors, convert)


class _InTorch(_Base):
    """Views of blocks that torch allocates."""

    def __init__(self, pump: _larder.Pump) -> None:
        super().__init__(pump)
        import torch

        self._device = torch.device(pump.device)

    def epoch(self, native: _larder.Loader, number: int) -> _larder.Epoch:
        return native.epoch_on(number, self._pump, self)

    def allocate(self, size: int) -> tuple[Any, int]:
        """Returns a new block, and the stream that it belongs to."""
        import torch

        return torch.empty(size, dtype=torch.uint8, device=self._device), self.stream()

    def stream(self) -> int:
        """The stream that the program uses now, as DLPack counts."""
        import torch

        return torch.cuda.current_stream(self._device).cuda_stream or _DEFAULT_STREAM

    def values(self, native: _larder.Batch) -> Samples:
        import torch

        self.warn_if_refused()
        block = native.block
        # A block belongs to the stream that was current when it was made. It may differ from now.
        block.record_stream(torch.cuda.current_stream(self._device))

        def view(part: Part) -> Any:
            content = block[part.begin : part.begin + part.nbytes]
            return content.view(getattr(torch, part.dtype)).view(tuple(part.shape))

        return convert_all(native.tensors, view)


#: How a framework takes the batches of a device.
Place = _InOwnMemory | _InTorch


def _same(tensor: DeviceTensor) -> DeviceTensor:
    return tensor


def _to_jax(tensor: DeviceTensor) -> Any:
    from jax import dlpack

    return dlpack.from_dlpack(tensor)
