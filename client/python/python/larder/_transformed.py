"""Batches of the native loader, transformed: where transforms run, and what they took.

Thread rule: iterations may run side by side, each with workers of its own; processes are kept for
the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, get_args

import numpy as np

from larder import _arguments, _process
from larder._errors import InvalidArgument
from larder._explain import Slowest
from larder._output import convert_all, to_numpy
from larder._pipeline import Ahead, AtOnce, Took
from larder._seconds import Spent
from larder._transform import Rows, Transform

if TYPE_CHECKING:
    from larder import _larder

#: Where transforms run.
WorkerKind = Literal["thread", "process"]

#: More would need more memory for batches than they could bring in speed.
WORKERS_MAX = 256
#: Batches begun and not yet handed out, for each worker: it need not wait for a slower one.
_AHEAD = 2


class Facts(NamedTuple):
    """What a batch is, whatever its values have become."""

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
    #: What it took to fetch it.
    fetched: dict[str, Any]


#: What is done to a value last.
Finish = Callable[[Any], Any]


class Transformed:
    """A transform, and the workers that apply it."""

    def __init__(
        self, transform: Transform, workers: int, payload: bytes | None, spent: Spent
    ) -> None:
        self._transform = transform
        self._workers = workers
        #: For processes, what they are sent.
        self._payload = payload
        #: Processes that run and have nothing to do.
        self._idle: list[_process.Worker] = []
        self._spent = spent
        self._slowest = Slowest()

    @classmethod
    def of(cls, transform: Transform, workers: int, kind: WorkerKind, spent: Spent) -> Self | None:
        """What applies a transform; `None` if it does nothing."""
        workers = _arguments.integer("workers", workers, 0, WORKERS_MAX)
        kind = _arguments.choice("worker_kind", kind, get_args(WorkerKind))
        if transform.each is None and transform.whole is None:
            if workers == 0:
                return None
            raise InvalidArgument(
                f"{workers} workers have nothing to do",
                "they apply transforms, and there is none",
                "leave them out: batches are fetched ahead without; or set prefetch",
            )
        in_processes = workers > 0 and kind == "process"
        payload = _process.pack(transform) if in_processes else None
        return cls(transform, workers, payload, spent)

    def batches(
        self, epoch: _larder.Epoch, seed: int, number: int, finish: Finish | None
    ) -> Ahead | AtOnce:
        """The batches of an epoch, in order; ``finish`` is what is done to each value last.

        If the workers can't be started it raises.
        """
        steps = _Steps(seed, number, self._transform, finish)
        record = partial(self._record, number, count())
        if self._workers == 0:
            return AtOnce(epoch, partial(steps.take, self._transform.apply), record)
        jobs = [self._job(steps) for _ in range(self._workers)]
        return Ahead(epoch, jobs, _AHEAD * self._workers, record)

    def slowest(self) -> list[dict[str, Any]]:
        """The batches that took longest, the slowest first."""
        return self._slowest.list()

    def _job(self, steps: _Steps) -> _Job:
        if self._payload is None:
            return _Job(partial(steps.take, self._transform.apply), None, self._idle)
        worker = self._idle_worker() or _process.Worker(self._payload)
        return _Job(partial(steps.take, worker.apply), worker, self._idle)

    def _idle_worker(self) -> _process.Worker | None:
        """A process that was kept; in a forked child there is none, since they are its parent's."""
        with suppress(IndexError):
            # Another iteration may take the last one.
            while not (worker := self._idle.pop()).usable:
                pass
            return worker
        return None

    def _record(self, epoch: int, numbers: Iterator[int], done: Transformation, took: Took) -> None:
        self._spent.add_transform(took.working, took.delaying)
        hops = {**done.fetched["hops"], "transform": took.working}
        batch = {"epoch": epoch, "batch": next(numbers), "waiting_seconds": took.waiting}
        self._slowest.offer({**done.fetched, **batch, "hops": hops})


@dataclass(frozen=True)
class _Steps:
    """What becomes of each batch of an epoch, whoever transforms it."""

    seed: int
    number: int
    transform: Transform
    finish: Finish | None

    def take(
        self, apply: Callable[[Rows], dict[str, Any]], native: _larder.Batch
    ) -> Transformation:
        """A native batch, transformed by ``apply``."""
        facts = Facts.of(native)
        columns = convert_all(native.tensors, to_numpy)
        rows = Rows(columns, facts.samples, facts.sources, facts.passes, self.seed, self.number)
        values = self.transform.as_output(apply(rows), rows)
        if self.finish is not None:
            values = {name: self.finish(value) for name, value in values.items()}
        return Transformation(values, facts, native.fetched())


class _Job:
    """What one worker does to batches of one epoch."""

    def __init__(
        self,
        apply: Callable[[_larder.Batch], Transformation],
        worker: _process.Worker | None,
        idle: list[_process.Worker],
    ) -> None:
        self._apply = apply
        self._worker = worker
        self._idle = idle

    def __call__(self, batch: _larder.Batch, /) -> Transformation:
        return self._apply(batch)

    def close(self, *, finished: bool) -> None:
        if self._worker is None:
            return
        if finished and self._worker.usable:
            # Kept once, however often it is closed.
            worker, self._worker = self._worker, None
            self._idle.append(worker)
        else:
            self._worker.close()
