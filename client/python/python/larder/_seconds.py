"""Measures the time of a loop.

Thread rule: any thread adds to a sum; one thread iterates a :class:`Timed`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from time import perf_counter
from typing import TypeVar

Item = TypeVar("Item")


class Spent:
    """Seconds that a loader's loops and transforms spent."""

    def __init__(self) -> None:
        kinds = ("loop_waiting", "loop_using", "transform", "transform_waiting")
        self._seconds = {f"{kind}_seconds": 0.0 for kind in kinds}

    def add_loop(self, waiting: float, using: float) -> None:
        """Adds seconds in which a loop waited for a batch, and used the batch before."""
        self._add(loop_waiting_seconds=waiting, loop_using_seconds=using)

    def add_transform(self, working: float, waiting: float) -> None:
        """Adds seconds of a batch's transform, and of the loop's wait for it."""
        self._add(transform_seconds=working, transform_waiting_seconds=waiting)

    def _add(self, **more: float) -> None:
        with counting():
            for kind, seconds in more.items():
                self._seconds[kind] += seconds

    def stats(self) -> dict[str, float]:
        """All sums, under the names of :meth:`Loader.stats`."""
        with counting():
            return dict(self._seconds)


#: Reentrant: a signal handler may read the figures while its own thread counts.
_lock = threading.RLock()


def counting() -> AbstractContextManager[object]:
    """The lock to hold while counting, for microseconds."""
    return _lock


def _after_fork() -> None:
    """Makes a new lock. A thread that is not in this child may hold the parent's lock."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


class Timed(Iterator[Item]):
    """The items of an iterable, with their times.

    ``record`` gets two durations in seconds for each item: the consumer's wait, and its time with
    the item before. The consumer ``asked`` for the first item before there was an iterable.
    """

    def __init__(
        self, items: Iterable[Item], record: Callable[[float, float], None], asked: float
    ) -> None:
        self._items = iter(items)
        self._record = record
        self._asked: float | None = asked
        self._left = asked

    def __next__(self) -> Item:
        asked, left = self._asked or perf_counter(), self._left
        self._asked = None
        try:
            # Not bound to a name: only the consumer holds its memory.
            return next(self._items)
        finally:
            self._left = perf_counter()
            self._record(self._left - asked, asked - left)
