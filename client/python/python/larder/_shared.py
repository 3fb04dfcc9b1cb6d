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
        #: How many texts there were, and how many when this copy was made.
        self._puts = _shared(torch.zeros(1, dtype=torch.int64))
        self._known_puts = 0
        #: Whether this copy, a worker's, has begun an iteration.
        self._begun = False
        #: Whether one of them could not use it: then the others have, and nobody can take it again.
        self._lost = _shared(torch.zeros(1, dtype=torch.bool))

    def put(self, text: str) -> None:
        """A text for the next iteration."""
        content = text.encode()
        if len(content) > _TEXT_BYTES:
            raise _arguments.no_state(text)
        self._text.copy_(torch.tensor(list(content.ljust(_TEXT_BYTES, b"\0")), dtype=torch.uint8))
        self._known_puts += 1
        self._puts.fill_(self._known_puts)
        self._taken.zero_()
        self._lost.zero_()
        self._taker.fill_(_NEXT)

    def forget(self) -> None:
        """No iteration takes the text any more."""
        self._lost.zero_()
        self._taker.fill_(_NONE)

    def put_back(self, *, alike: bool) -> None:
        """What was taken here could not be used: it is for the next iteration. Where there are
        other workers, and they do not fail ``alike``, iterations fail until there is another text:
        those have begun, and only all together could take it.
        """
        info = torch.utils.data.get_worker_info()
        if info is None or info.num_workers == 1 or alike:
            self._taken[0 if info is None else info.id] = False
            self._taker.fill_(_NEXT)
        else:
            self._lost.fill_(True)

    @property
    def text(self) -> str:
        """What was put last, whoever took it; at first empty."""
        return bytes(self._text.tolist()).rstrip(b"\0").decode()

    def refuse_late(self) -> None:
        """Raises in a worker that begins its first iteration when there is another text already: it
        would take part in that of the next one, or others of its own go another way.
        """
        in_worker = torch.utils.data.get_worker_info() is not None
        begun, self._begun = self._begun, in_worker
        if in_worker and not begun and self._puts.item() != self._known_puts:
            raise InvalidArgument(
                "a state was loaded while this iteration began",
                "some of its workers might go by it and some not",
                "load a state before the iterator is made, or after it has ended",
            )

    def take(self) -> bool:
        """Whether the text is for the iteration that begins here, in a worker or without any."""
        info = torch.utils.data.get_worker_info()
        # Workers of one iteration have a base seed in common.
        worker, taker = (0, _MAIN) if info is None else (info.id, info.seed - info.id)
        if self._taker.item() not in (_NEXT, taker):
            return self._none()
        if worker >= _WORKERS_MAX:
            raise InvalidArgument(
                f"the DataLoader has a worker {worker}",
                f"a state can be loaded for {_WORKERS_MAX} workers",
                "say a smaller num_workers",
            )
        if self._taken[worker]:
            return self._none()
        self._taken[worker] = True
        self._taker.fill_(taker)
        return True

    def _none(self) -> bool:
        """That there is no text, unless there should be one."""
        if self._lost.item():
            raise InvalidArgument(
                "the epoch of the loaded state could not begin in a worker",
                "others have begun theirs, so what is left of it can't be divided again",
                "load the state again",
            )
        return False


def _shared(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.share_memory_()  # type: ignore[no-untyped-call,no-any-return]
