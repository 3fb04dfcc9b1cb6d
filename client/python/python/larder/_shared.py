"""What the main process tells a DataLoader's workers once, also those that run already.

A worker is a copy of the main process: of what changes there later it learns through memory that
both see.

Thread rule: the main process writes while no worker begins an iteration; a worker writes only in
its own place, and what all workers of its iteration write alike.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.data

from larder import _arguments
from larder._errors import InvalidArgument

#: Bytes of a text: a state is some hundred at most.
_TEXT_BYTES = 4096
#: Workers of a DataLoader: many times the cores of any host.
_WORKERS_MAX = 4096
#: Of the name of an iteration, those that say which of its workers' it is.
_COUNT_BITS = 16

#: Which iteration takes the text, where it is not that of some workers.
_NEXT, _NONE, _MAIN = -1, -2, -3


class Once:
    """A text that one iteration takes, each of its workers once."""

    def __init__(self) -> None:
        self._text = _shared(torch.zeros(_TEXT_BYTES, dtype=torch.uint8))
        #: Which iteration takes it.
        self._taker = _shared(torch.full((1,), _NONE, dtype=torch.int64))
        #: Which of its workers have.
        self._taken = _shared(torch.zeros(_WORKERS_MAX, dtype=torch.bool))
        #: Whether one of them could not use it: then the others have, and nobody can take it again.
        self._lost = _shared(torch.zeros(1, dtype=torch.bool))
        #: Which process put it, and how many it had put by then.
        self._put = _shared(torch.zeros(2, dtype=torch.int64))
        #: How many this process had put, or that of which this is a copy when it was made.
        self._known_puts = 0
        #: Iterations that were begun in this worker.
        self._begun = 0

    def put(self, text: str) -> None:
        """A text for the next iteration."""
        content = text.encode()
        if len(content) > _TEXT_BYTES:
            raise _arguments.no_state(text)
        self._text.copy_(torch.tensor(list(content.ljust(_TEXT_BYTES, b"\0")), dtype=torch.uint8))
        self._known_puts += 1
        self._put.copy_(torch.tensor([os.getpid(), self._known_puts]))
        self._taken.zero_()
        self._lost.zero_()
        self._taker.fill_(_NEXT)

    def forget(self) -> None:
        """No iteration takes the text any more."""
        self._lost.zero_()
        self._taker.fill_(_NONE)

    def put_back(self) -> None:
        """What was taken here could not be used: it is for the next iteration. Where there are
        other workers, iterations fail until there is another text: those may have begun, and only
        all together could take it.
        """
        info = torch.utils.data.get_worker_info()
        if info is None or info.num_workers == 1:
            self._taken[0] = False
            self._taker.fill_(_NEXT)
        else:
            self._lost.fill_(True)

    @property
    def text(self) -> str:
        """What was put last, whoever took it; at first empty."""
        return bytes(self._text.tolist()).rstrip(b"\0").decode()

    def begin(self) -> None:
        """An iteration begins here. A worker refuses to, if by then its parent has put another text
        than there was when the worker started: that is for the next iteration, but others of its
        own may have taken it.
        """
        if torch.utils.data.get_worker_info() is None:
            return
        self._begun += 1
        parent = multiprocessing.parent_process()
        if self._begun > 1 or parent is None:
            return
        process, puts = self._put.tolist()
        if process == parent.pid and puts != self._known_puts:
            raise InvalidArgument(
                "a state was loaded while this iteration began",
                "some of its workers might go by it and some not",
                "load a state before the iterator is made, or after it has ended",
            )

    def take(self, check: Callable[[], None]) -> bool:
        """Whether the text is for the iteration that begins here, in a worker or without any. If
        ``check`` raises, it is not taken.
        """
        info = torch.utils.data.get_worker_info()
        worker, taker = (0, _MAIN) if info is None else (info.id, self._name(info))
        now = int(self._taker.item())
        if now in (_NEXT, taker):
            if worker >= _WORKERS_MAX:
                raise InvalidArgument(
                    f"the DataLoader has a worker {worker}",
                    f"a state can be loaded for {_WORKERS_MAX} workers",
                    "say a smaller num_workers",
                )
            if not self._taken[worker]:
                check()
                self._taken[worker] = True
                self._taker.fill_(taker)
                return True
        elif now >= 0 and now >> _COUNT_BITS == taker >> _COUNT_BITS and not self._taken[worker]:
            # Others of these workers were late in an iteration before, and took it.
            self._lost.fill_(True)
        if self._lost.item():
            raise InvalidArgument(
                "the epoch of the loaded state could not begin in a worker",
                "others have begun theirs, so what is left of it can't be divided again",
                "load the state again",
            )
        return False

    def _name(self, info: Any) -> int:
        """The name of an iteration, which its workers have in common, and no other has."""
        name = hash((info.seed - info.id, info.num_workers)) % (1 << 62 - _COUNT_BITS)
        return name << _COUNT_BITS | self._begun % (1 << _COUNT_BITS)


def _shared(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.share_memory_()  # type: ignore[no-untyped-call,no-any-return]
