"""Batches in page-locked memory. A GPU copies from it while the program continues.

torch owns the memory. Its allocator notes which copies to a device read from a block, also through
views of it. It reuses the block only after they are done. So a batch is gathered into a block of
torch, and its tensors are views of that block. The block is written to once, and returns to torch
when the last view is gone. In memory that torch does not know, the next batch would overwrite
bytes that a copy still reads.

Thread rule: any thread. Nothing here begins to use a GPU unless the program did, or asks for it.
Non-goals: other frameworks, which copy from any memory in their own way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from larder._errors import InvalidArgument, ResourceExhausted
from larder._output import Output, to_torch
from larder._ragged import Ragged

if TYPE_CHECKING:
    from larder._larder import Array

#: Whether batches are page-locked; ``"auto"``: if the program uses a GPU by torch.
PinMemory = bool | Literal["auto"]


@dataclass(frozen=True)
class Pinning:
    """Whether the batches of a loader are page-locked."""

    asked: PinMemory
    #: The framework of the loader's arrays.
    output: Output

    def __post_init__(self) -> None:
        if self.asked is not True:
            return
        if self.output != "torch":
            raise InvalidArgument(
                f"batches of {self.output} can't be page-locked",
                "it is torch that copies from page-locked memory",
                "say output='torch', or leave pin_memory out",
            )
        import torch

        # The driver is asked for this count only, so that the program may still fork.
        if torch.cuda.device_count() == 0:
            raise InvalidArgument(
                "batches can't be page-locked",
                "torch finds no GPU here that would copy from such memory",
                "leave pin_memory out: batches are then page-locked where the program uses a GPU",
            )

    @property
    def on(self) -> bool:
        """Whether the batches of an epoch that begins now are page-locked."""
        if self.asked is not True and (self.asked is False or self.output != "torch"):
            return False
        import torch

        # A check for a GPU may begin to use it, and then the program can't fork.
        return self.asked is True or torch.cuda.is_initialized()


def allocate(size: int) -> Any:
    """A new uint8 tensor of ``size`` bytes in page-locked memory."""
    import torch

    try:
        return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)
    except RuntimeError as error:
        raise ResourceExhausted(
            f"no {size} bytes of page-locked memory for a batch",
            str(error),
            "lower batch_size or prefetch, or say pin_memory=False",
        ) from error


def to_pinned(array: Array) -> Any:
    """A tensor of an array: a view of its batch's page-locked memory, else a page-locked copy."""
    if array.given is None:
        return pinned(to_torch(array))
    import torch

    base, begin = array.given
    part = base[begin : begin + array.nbytes]
    return part.view(getattr(torch, array.dtype)).view(array.shape)


def pinned(value: Any) -> Any:
    """A page-locked copy of a tensor in memory of the host. Other values stay as they are."""
    import torch

    if isinstance(value, Ragged):
        return value._with(pinned(value.data), pinned(value.offsets))
    of_the_host = isinstance(value, torch.Tensor) and value.device.type == "cpu"
    if of_the_host and value.layout == torch.strided:
        return value.pin_memory()
    return value
