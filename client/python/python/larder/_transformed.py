"""Batches of the native loader, transformed: where transforms run, and what they took.

Thread rule: iterations may run side by side, each with workers of its own; processes are kept for
the next one.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterator
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np

from larder import _process
from larder._errors import InvalidArgument
from larder._output import convert_all, from_numpy, to_numpy
from larder._pipeline import ahead
from larder._ragged import Ragged
from larder._transform import Rows, Transform

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

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


Transformation = tuple[dict[str, Any], Facts]


class Transformed:
    """A transform, and the workers that apply it."""

    def __init__(self, transform: Transform, workers: int, payload: bytes | None) -> None:
        self._transform = transform
        self._workers = workers
        #: For processes, what they are sent.
        self._payload = payload
        #: Processes that run and have nothing to do.
        self._idle: list[_process.Worker] = []
        #: Seconds that transforms took, and for which the consumer waited.
        self.spent = (0.0, 0.0)
        self._lock = threading.Lock()

    @classmethod
    def of(cls, transform: Transform, workers: int, kind: WorkerKind) -> Self | None:
        """What applies a transform; `None` if it does nothing."""
        workers = operator.index(workers)
        if not 0 <= workers <= WORKERS_MAX:
            raise InvalidArgument(f"{workers} workers where 0 to {WORKERS_MAX} are possible")
        if kind not in ("thread", "process"):
            raise InvalidArgument(
                f"there is no worker kind {kind!r}", hint="say 'thread' or 'process'"
            )
        if transform.each is None and transform.whole is None:
            if workers == 0:
                return None
            raise InvalidArgument(
                f"{workers} workers have nothing to do",
                "they apply transforms, and there is none",
                "leave them out: batches are fetched ahead without; or set prefetch",
            )
        in_processes = workers > 0 and kind == "process"
        return cls(transform, workers, _process.pack(transform) if in_processes else None)

    def batches(
        self, epoch: _larder.Epoch, seed: int, number: int
    ) -> Generator[Transformation, None, None]:
        """The batches of an epoch, in order."""
        if self._workers == 0:
            return self._at_once(epoch, seed, number)
        jobs = [self._job(seed, number) for _ in range(self._workers)]
        return ahead(epoch, jobs, _AHEAD * self._workers, self._record)

    def _at_once(
        self, epoch: Iterator[_larder.Batch], seed: int, number: int
    ) -> Generator[Transformation, None, None]:
        for batch in epoch:
            begun = perf_counter()
            done = self._apply(self._transform.apply, seed, number, batch)
            seconds = perf_counter() - begun
            self._record(seconds, seconds)
            yield done

    def _job(self, seed: int, number: int) -> _Job:
        if self._payload is None:
            return _Job(partial(self._apply, self._transform.apply, seed, number), None, self._idle)
        worker = self._idle_worker() or _process.Worker(self._payload)
        return _Job(partial(self._apply, worker.apply, seed, number), worker, self._idle)

    def _idle_worker(self) -> _process.Worker | None:
        """A process that was kept; in a forked child there is none, since they are its parent's."""
        while self._idle:
            worker = self._idle.pop()
            if worker.usable:
                return worker
        return None

    def _apply(
        self, apply: Callable[[Rows], dict[str, Any]], seed: int, number: int, native: _larder.Batch
    ) -> Transformation:
        facts = Facts.of(native)
        columns = convert_all(native.tensors, to_numpy)
        values = apply(Rows(columns, facts.samples, facts.sources, facts.passes, seed, number))
        output = self._transform.output
        return {name: _converted(value, output) for name, value in values.items()}, facts

    def _record(self, working: float, waiting: float) -> None:
        with self._lock:
            self.spent = (self.spent[0] + working, self.spent[1] + waiting)


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
            self._idle.append(self._worker)
        else:
            self._worker.close()


def _converted(value: Any, output: Any) -> Any:
    """An array of numpy as one of the output; what a transform made otherwise stays as it is."""
    if isinstance(value, Ragged):
        return Ragged(*(_converted(part, output) for part in value))
    return from_numpy(value, output) if isinstance(value, np.ndarray) else value
