"""Iterators that one thread at a time advances.

A generator that two threads advance raises in one of them; without a GIL it may end the program
instead. Thread rule: any thread may ask; if another one is waiting already, that is an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

Item = TypeVar("Item")
_Result = TypeVar("_Result")


class Iteration(Iterator[Item]):
    """What a generator brings, to one thread at a time; closed when nobody has it any more."""

    def __init__(self, items: Generator[Item, None, None]) -> None:
        self._items = items
        # Nobody ever waits for it, so a forked child does not either.
        self._busy = threading.Lock()

    def __next__(self) -> Item:
        return self._alone(self._items.__next__)

    def close(self) -> None:
        """End it: nothing more comes."""
        self._alone(self._items.close)

    def _alone(self, step: Callable[[], _Result]) -> _Result:
        if not self._busy.acquire(blocking=False):
            raise RuntimeError(
                "another thread is waiting for the next item of this iteration: iterate it in one "
                "thread, or begin an iteration in each"
            )
        try:
            return step()
        finally:
            self._busy.release()
