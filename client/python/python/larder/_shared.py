"""What the main process tells a DataLoader's workers once, also those that run already.

A worker is a copy of the main process: of what changes there later it learns through memory that
both see.

Thread rule: the main process writes while no worker begins an iteration, or workers that are late
refuse to begin; a worker writes only in its own place, what all workers of its iteration write
alike, and that a text is lost.
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
#: Bits of the name of an iteration: which workers, which text, which of these workers' iterations.
_WORKERS_BITS, _TEXT_BITS, _COUNT_BITS = 34, 12, 16

#: Which iteration takes the text, where it is not that of some workers.
_NEXT, _NONE, _MAIN = -1, -2, -3


class Once:
    """A text that one iteration takes, each of its workers once."""

    def __init__(self) -> None:
        self._text = _shared(torch.zeros(_TEXT_BYTES, dtype=torch.uint8))
        #: How many texts there were, and which process put the last.
        self._number = _shared(torch.zeros(1, dtype=torch.int64))
        self._putter = _shared(torch.zeros(1, dtype=torch.int64))
        #: Which iteration takes it.
        self._taker = _shared(torch.full((1,), _NONE, dtype=torch.int64))
        #: The number of the text that each of its workers took last.
        self._taken = _shared(torch.zeros(_WORKERS_MAX, dtype=torch.int64))
        #: The number of a text that a worker could not use: then others have, and nobody can again.
        self._lost = _shared(torch.zeros(1, dtype=torch.int64))
        #: How many texts there were when this copy of it was made.
        self._known = 0
        #: And when the iteration began that began last.
        self._seen = 0
        #: Iterations that were begun in this worker.
        self._begun = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A deep copy, and one that was pickled by whoever knows nothing of torch, is not shared.
        self.__dict__.update(state)
        for value in state.values():
            if isinstance(value, torch.Tensor):
                _shared(value)

    def put(self, text: str) -> None:
        """A text for the next iteration."""
        content = text.encode()
        if len(content) > _TEXT_BYTES:
            raise _arguments.no_state(text)
        self._text.copy_(torch.tensor(list(content.ljust(_TEXT_BYTES, b"\0")), dtype=torch.uint8))
        self._known = int(self._number.item()) + 1
        self._number.fill_(self._known)
        self._putter.fill_(os.getpid())
        self._taker.fill_(_NEXT)

    @property
    def pending(self) -> bool:
        """Whether the next iteration would take a text."""
        return bool(self._taker.item() == _NEXT)

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
            self._taken[0] = 0
            self._taker.fill_(_NEXT)
        else:
            self._lost.fill_(self._seen)

    @property
    def text(self) -> str:
        """What was put last, whoever took it; at first empty."""
        return bytes(self._text.tolist()).rstrip(b"\0").decode()

    def begin(self) -> None:
        """An iteration begins here. A worker refuses to, if by then its parent has put another text
        than there was when the worker started: that is for the next iteration, but others of its
        own may have taken it.
        """
        self._seen = int(self._number.item())
        if torch.utils.data.get_worker_info() is None:
            return
        self._begun += 1
        parent = multiprocessing.parent_process()
        if self._begun == 1 and parent is not None and self._putter.item() == parent.pid:
            self._refuse_if_later_than(self._known)

    def take(self, check: Callable[[], None]) -> bool:
        """Whether the text is for the iteration that has begun here, in a worker or without any. If
        ``check`` raises, it is not taken.
        """
        info = torch.utils.data.get_worker_info()
        worker, taker = (0, _MAIN) if info is None else (info.id, self._name(info))
        if worker >= _WORKERS_MAX:
            raise InvalidArgument(
                f"the DataLoader has a worker {worker}",
                f"a state can be loaded for {_WORKERS_MAX} workers",
                "say a smaller num_workers",
            )
        self._refuse_if_later_than(self._seen)
        now, took = int(self._taker.item()), self._taken[worker].item() == self._seen
        # A name of another text is that of a late worker, which did not see the one there is now.
        free = now == _NEXT or (now >= 0 and _text_of(now) != self._seen % (1 << _TEXT_BITS))
        if (free or now == taker) and not took:
            check()
            self._taken[worker] = self._seen
            self._taker.fill_(taker)
            return True
        workers = 1 if info is None else info.num_workers
        if now >= 0 and _workers_of(now) == _workers_of(taker) and not took:
            # Others of these workers were late in an iteration before, and took it.
            self._lost.fill_(self._seen)
        elif now == taker and not (self._taken[:workers] == self._seen).all():
            # Workers that were seeded alike took it before these, but not all of them.
            self._lost.fill_(self._seen)
        if self._seen and self._lost.item() == self._seen:
            raise InvalidArgument(
                "the epoch of the loaded state could not begin in a worker",
                "others have begun theirs, so what is left of it can't be divided again",
                "load the state again",
            )
        return False

    def _refuse_if_later_than(self, number: int) -> None:
        if self._number.item() != number:
            raise InvalidArgument(
                "a state was loaded while this iteration began",
                "some of its workers might go by it and some not",
                "load a state before the iterator is made, or after it has ended",
            )

    def _name(self, info: Any) -> int:
        """The name of an iteration in view of a text: its workers have it in common, and no other
        has it.
        """
        # Workers of one loader have a base seed in common.
        workers = hash((info.seed - info.id, info.num_workers)) % (1 << _WORKERS_BITS)
        text, count = self._seen % (1 << _TEXT_BITS), self._begun % (1 << _COUNT_BITS)
        return (workers << _TEXT_BITS | text) << _COUNT_BITS | count


def _text_of(name: int) -> int:
    """The number of the text in the name of an iteration."""
    return name >> _COUNT_BITS & (1 << _TEXT_BITS) - 1


def _workers_of(name: int) -> int:
    """What names its workers; of a taker that is none, a negative number."""
    return name >> _COUNT_BITS + _TEXT_BITS


def _shared(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.share_memory_()  # type: ignore[no-untyped-call,no-any-return]
