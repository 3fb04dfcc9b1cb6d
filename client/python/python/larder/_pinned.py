"""Batches in page-locked memory, which a GPU copies from while the program goes on.

The memory is torch's own. Its allocator notes which copies to a device read from a block, also by
way of views of it, and gives the block out again only once they are done. So a batch is gathered
into a block of torch's, its tensors are views of that, and it is written to only once: when the
last view is gone the block is torch's again. Memory that torch does not know of would be written to
by the next batch while a copy still reads it.

Thread rule: any thread. Nothing here begins to use a GPU unless the program did, or says so.
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
        if not (isinstance(self.asked, bool) or self.asked == "auto"):
            raise InvalidArgument(
                f"pin_memory is {self.asked!r}", hint="say pin_memory=True, False or 'auto'"
            )
        if self.asked is not True:
            return
        if self.output != "torch":
            raise InvalidArgument(
                f"batches of {self.output} can't be page-locked",
                "it is torch that copies from page-locked memory",
                "say output='torch', or leave pin_memory out",
            )
        import torch

        # Asks no driver for more than this, so that the program may still fork.
        if torch.cuda.device_count() == 0:
            raise InvalidArgument(
                "batches can't be page-locked",
                "torch finds no GPU here that would copy from such memory",
                "leave pin_memory out: batches are then page-locked where the program uses a GPU",
            )

    @property
    def on(self) -> bool:
        """Whether those of an epoch that begins now are."""
        if self.asked is not True and (self.asked is False or self.output != "torch"):
            return False
        import torch

        # To ask whether there is a GPU may begin to use it, and then the program can't fork.
        return self.asked is True or torch.cuda.is_initialized()


def allocate(size: int) -> Any:
    """A new tensor of so many bytes in page-locked memory."""
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
    """A tensor of an array: a view of the memory allocated for its batch, or else a copy."""
    if array.given is None:
        return pinned(to_torch(array))
    import torch

    base, begin = array.given
    part = base[begin : begin + array.nbytes]
    return part.view(getattr(torch, array.dtype)).view(array.shape)


def pinned(value: Any) -> Any:
    """A tensor in ordinary memory of the host as a page-locked copy; anything else as it is."""
    import torch

    if isinstance(value, Ragged):
        return Ragged(*map(pinned, value))
    of_the_host = isinstance(value, torch.Tensor) and value.device.type == "cpu"
    if of_the_host and value.layout == torch.strided:
        return value.pin_memory()
    return value
