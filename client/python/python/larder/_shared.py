"""What the main process tells a DataLoader's workers once, also those that run already.

A worker is a copy of the main process: of what changes there later it learns through memory that
both see.

Thread rule: the main process writes while no worker begins an iteration; a worker writes only in
its own place, and what all workers of its iteration write alike.
"""

from __future__ import annotations

import torch
import torch.utils.data

from larder import _arguments
from larder._errors import InvalidArgument

#: Bytes of a text: a state is some hundred at most.
_TEXT_BYTES = 4096
#: Workers of a DataLoader: many times the cores of any host.
_WORKERS_MAX = 4096

#: Which iteration takes the text, where it is not the base seed of its workers.
_NEXT, _NONE, _MAIN = -1, -2, -3


class Once:
    """A text that one iteration takes, each of its workers once."""

    def __init__(self) -> None:
        self._text = _shared(torch.zeros(_TEXT_BYTES, dtype=torch.uint8))
        #: Which iteration takes it.
        self._taker = _shared(torch.full((1,), _NONE, dtype=torch.int64))
        #: Which of its workers have.
        self._taken = _shared(torch.zeros(_WORKERS_MAX, dtype=torch.bool))

    def put(self, text: str) -> None:
        """A text for the next iteration."""
        content = text.encode()
        if len(content) > _TEXT_BYTES:
            raise _arguments.no_state(text)
        self._text.copy_(torch.tensor(list(content.ljust(_TEXT_BYTES, b"\0")), dtype=torch.uint8))
        self._taken.zero_()
        self._taker.fill_(_NEXT)

    def forget(self) -> None:
        """No iteration takes the text any more."""
        self._taker.fill_(_NONE)

    @property
    def text(self) -> str:
        """What was put last, whoever took it; at first empty."""
        return bytes(self._text.tolist()).rstrip(b"\0").decode()

    def take(self) -> bool:
        """Whether the text is for the iteration that begins here, in a worker or without any."""
        info = torch.utils.data.get_worker_info()
        # Workers of one iteration have a base seed in common.
        worker, taker = (0, _MAIN) if info is None else (info.id, info.seed - info.id)
        if self._taker.item() not in (_NEXT, taker):
            return False
        if worker >= _WORKERS_MAX:
            raise InvalidArgument(
                f"the DataLoader has a worker {worker}",
                f"a state can be loaded for {_WORKERS_MAX} workers",
                "say a smaller num_workers",
            )
        if self._taken[worker]:
            return False
        self._taken[worker] = True
        self._taker.fill_(taker)
        return True


def _shared(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.share_memory_()  # type: ignore[no-untyped-call,no-any-return]
