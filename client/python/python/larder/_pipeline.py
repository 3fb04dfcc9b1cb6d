"""Pulls and transforms batches in order: on demand, or ahead by workers.

Each worker is a thread. It pulls a batch, transforms it and stores the result. The consumer takes
the results in order. The workers run a bounded number of batches ahead.

Thread rule: one consumer. The workers end after the last batch, or when the iteration is closed. A
transform that hangs delays neither Ctrl-C nor the end of the program.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from larder._errors import InvalidArgument

if TYPE_CHECKING:
    from larder import _larder

#: Makes the value to hand out from a pulled batch.
Job: TypeAlias = Callable[[Any], Any]


class _Outcome(NamedTuple):
    value: Any
    error: BaseException | None
    seconds: float


class Took(NamedTuple):
    """Seconds of a batch."""

    #: Seconds of its transform.
    working: float
    #: The most that the consumer can have waited for the transform: `waiting`, but no more than
    #: `working`. In a longer wait the batch was not there yet.
    delaying: float
    #: Seconds for which the consumer waited.
    waiting: float


class AtOnce(Iterator[Any]):
    """Batches of ``source``, each passed to ``job`` when the consumer asks for it.

    ``record`` gets each result, and its seconds.
    """

    def __init__(
        self, source: _larder.Epoch, job: Job, record: Callable[[Any, Took], None]
    ) -> None:
        self._source = source
        self._job = job
        self._record = record

    def __next__(self) -> Any:
        begun = perf_counter()
        batch = next(self._source)
        pulled = perf_counter()
        value = _done(self._job, batch)
        ended = perf_counter()
        self._record(value, Took(ended - pulled, ended - pulled, ended - begun))
        return value

    def close(self) -> None:
        """Ends the source."""
        self._source.close()


class Ahead(Iterator[Any]):
    """The same on several threads, which start at once.

    At most ``depth`` batches are begun and not yet handed out.
    """

    def __init__(
        self,
        source: _larder.Epoch,
        job: Job,
        record: Callable[[Any, Took], None],
        *,
        workers: int,
        depth: int,
    ) -> None:
        self._record = record
        self._run = _Run(source, job, depth)
        try:
            self._run.start(workers)
        except BaseException:
            self.close()
            raise

    def __next__(self) -> Any:
        begun = perf_counter()
        outcome = self._run.take()
        if outcome is None:
            raise StopIteration
        if outcome.error is not None:
            raise outcome.error
        waited = perf_counter() - begun
        self._record(outcome.value, Took(outcome.seconds, min(waited, outcome.seconds), waited))
        return outcome.value

    def close(self) -> None:
        """Ends the threads after their present batches."""
        self._run.close()

    def __del__(self) -> None:
        # An interrupt may arrive before the iteration can close this, or before there is a run.
        if hasattr(self, "_run"):
            self.close()


def _done(job: Job, batch: Any) -> Any:
    """Returns the result of a job on a batch."""
    try:
        return job(batch)
    except StopIteration as stray:
        # The consumer would take it for the end of the epoch.
        raise RuntimeError("a transform raised StopIteration") from stray


class _Run:
    """The state that the threads share."""

    def __init__(self, source: _larder.Epoch, job: Job, depth: int) -> None:
        self._source = source
        self._job = job
        self._owner = os.getpid()
        self._depth = depth
        #: Held while a batch is pulled, so that batches are numbered in order.
        self._pulling = threading.Lock()
        #: Guards all fields below.
        self._changed = threading.Condition()
        self._outcomes: dict[int, _Outcome] = {}
        self._pulled = 0
        self._taken = 0
        self._ended = False
        self._threads: list[threading.Thread] = []

    def start(self, workers: int) -> None:
        _running.add(weakref.ref(self, _running.discard))
        for number in range(workers):
            name = f"larder-transform-{number}"
            thread = threading.Thread(target=self.work, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def join(self, seconds: float) -> None:
        """Waits for each thread for ``seconds`` at most: a transform may hang."""
        for thread in self._threads:
            thread.join(seconds)

    def work(self) -> None:
        while (pulled := self._pull()) is not None:
            number, batch = pulled
            begun = perf_counter()
            try:
                value, error = _done(self._job, batch), None
            except BaseException as failure:
                value, error = None, failure
            del batch, pulled
            self._put(number, _Outcome(value, error, perf_counter() - begun))
            del value, error

    def _pull(self) -> tuple[int, Any] | None:
        with self._pulling:
            with self._changed:
                while not self._ended and self._pulled >= self._taken + self._depth:
                    self._changed.wait()
                if self._ended:
                    return None
            try:
                batch = next(self._source)
            except StopIteration:
                self._end()
                return None
            except BaseException as failure:
                with self._changed:
                    number, self._pulled = self._pulled, self._pulled + 1
                self._put(number, _Outcome(None, failure, 0.0))
                self._end()
                return None
            with self._changed:
                if self._ended:  # Closed meanwhile: no further job begins.
                    return None
                number, self._pulled = self._pulled, self._pulled + 1
            return number, batch

    def _put(self, number: int, outcome: _Outcome) -> None:
        with self._changed:
            self._outcomes[number] = outcome
            self._changed.notify_all()

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def take(self) -> _Outcome | None:
        """The next outcome in order, or ``None`` after the last."""
        if self._owner != os.getpid():
            raise InvalidArgument(
                "this epoch was begun in the parent process, whose threads a fork leaves behind",
                hint="begin the epoch after the fork; a loader itself can be used on both sides",
            )
        with self._changed:
            while self._taken not in self._outcomes:
                if self._ended and self._taken == self._pulled:
                    return None
                self._changed.wait()
            outcome = self._outcomes.pop(self._taken)
            self._taken += 1
            self._changed.notify_all()
            return outcome

    def close(self) -> None:
        # A forked child has no such thread, but one of its locks may be held for ever.
        if self._owner == os.getpid():
            self._end()
            self._source.close()


#: Runs of this process, to close at its end. Threads add to it while it is listed, so it is a plain
#: set.
_running: set[weakref.ref[_Run]] = set()
#: Seconds that the end of the program waits for a thread. A thread that waits for a batch notices
#: the end sooner.
_END_SECONDS = 0.5


@atexit.register
def _close_all() -> None:
    """Ends the runs that are left, while threads can still return from native code."""
    runs = [run for known in list(_running) if (run := known()) is not None]
    for run in runs:
        run.close()
    for run in runs:
        run.join(_END_SECONDS)
