"""Transforms batches of the native loader, and counts the seconds.

Thread rule: iterations may run side by side, each with its own workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from larder import _arguments
from larder._errors import InvalidArgument
from larder._explain import Slowest
from larder._output import convert_all, to_numpy
from larder._pipeline import Ahead, AtOnce, Took
from larder._seconds import Spent, counting
from larder._transform import Rows, Transform

if TYPE_CHECKING:
    from larder import _larder

#: The most workers. More would need more memory for batches than their speed is worth.
WORKERS_MAX = 256
#: Batches begun and not yet handed out, for each worker. So it need not wait for a slower worker.
_AHEAD = 2


class Facts(NamedTuple):
    """Facts of a batch that a transform does not change."""

    samples: np.ndarray[Any, Any]
    sources: np.ndarray[Any, Any] | None
    passes: np.ndarray[Any, Any] | None
    padding: int
    state: str

    @classmethod
    def of(cls, native: _larder.Batch) -> Self:
        """The facts of a native batch."""
        sources = None if native.sources is None else to_numpy(native.sources)
        passes = None if native.passes is None else to_numpy(native.passes)
        return cls(to_numpy(native.samples), sources, passes, native.padding, native.state())


class Transformation(NamedTuple):
    """A batch, transformed."""

    values: dict[str, Any]
    facts: Facts
    #: The native loader's record of the fetch.
    fetched: dict[str, Any]
    #: Samples that the transform skipped.
    skipped: int


#: The last step on each value.
Finish = Callable[[Any], Any]


class Transformed:
    """A transform, and the number of threads that apply it."""

    def __init__(self, transform: Transform, workers: int, spent: Spent) -> None:
        self._transform = transform
        self._workers = workers
        self._spent = spent
        self._slowest = Slowest()
        self._skipped = 0

    @classmethod
    def of(cls, transform: Transform, workers: int, spent: Spent) -> Self | None:
        """Checks the workers of a transform; returns `None` if there is no transform."""
        workers = _arguments.integer("workers", workers, 0, WORKERS_MAX)
        if transform.each is None and transform.whole is None:
            if workers == 0:
                return None
            raise InvalidArgument(
                f"{workers} workers have nothing to do",
                "they apply transforms, and there is none",
                "leave them out: batches are fetched ahead without; or set prefetch",
            )
        return cls(transform, workers, spent)

    def batches(
        self, epoch: _larder.Epoch, seed: int, number: int, finish: Finish | None
    ) -> Ahead | AtOnce:
        """The batches of an epoch, in order; ``finish`` is the last step on each value.

        Raises if the workers can't be started.
        """
        job = partial(self._take, seed, number, finish)
        record = partial(self._record, number, count())
        if self._workers == 0:
            return AtOnce(epoch, job, record)
        depth = _AHEAD * self._workers
        return Ahead(epoch, job, record, workers=self._workers, depth=depth)

    def slowest(self) -> list[dict[str, Any]]:
        """The slowest batches, the slowest first."""
        return self._slowest.list()

    @property
    def skipped(self) -> int:
        """Samples of the batches handed out that the transform skipped."""
        return self._skipped

    def _take(
        self, seed: int, number: int, finish: Finish | None, native: _larder.Batch
    ) -> Transformation:
        """A native batch of an epoch, transformed."""
        facts = Facts.of(native)
        columns = convert_all(native.tensors, to_numpy)
        rows = Rows(columns, facts.samples, facts.sources, facts.passes, seed, number)
        applied, rows, skipped = self._transform.apply(rows)
        if skipped:
            facts = facts._replace(samples=rows.samples, sources=rows.sources, passes=rows.passes)
        values = self._transform.as_output(applied, rows)
        if finish is not None:
            values = {name: finish(value) for name, value in values.items()}
        return Transformation(values, facts, native.fetched(), skipped)

    def _record(self, epoch: int, numbers: Iterator[int], done: Transformation, took: Took) -> None:
        self._spent.add_transform(took.working, took.delaying)
        if done.skipped:
            with counting():
                self._skipped += done.skipped
        hops = {**done.fetched["hops"], "transform": took.working}
        batch = {"epoch": epoch, "batch": next(numbers), "waiting_seconds": took.waiting}
        self._slowest.offer({**done.fetched, **batch, "hops": hops})
