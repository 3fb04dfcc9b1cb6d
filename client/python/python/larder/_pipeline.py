"""Batches pulled and transformed in order: each when it is asked for, or ahead by some workers.

Each worker is a thread that pulls a batch, transforms it and puts it where the consumer takes them
in order. How far they run ahead is bounded.

Thread rule: one consumer. The workers end by themselves when the batches do, or when the iteration
is closed; a transform that hangs holds up neither Ctrl-C nor the end of the program.
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

#: Makes the value to hand out of a batch that was pulled.
Job: TypeAlias = Callable[[Any], Any]


class _Outcome(NamedTuple):
    value: Any
    error: BaseException | None
    seconds: float


class Took(NamedTuple):
    """Seconds of a batch."""

    #: In which it was worked on.
    working: float
    #: For which the consumer waited because of that, at most: as batches are handed out in order,
    #: one that was waited for longer was not there to be worked on.
    delaying: float
    #: For which the consumer waited.
    waiting: float


class AtOnce(Iterator[Any]):
    """Batches of ``source``, each handed to ``job`` when the consumer asks for it. ``record`` gets
    each result, and the seconds that it took.
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
        """End the source."""
        self._source.close()


class Ahead(Iterator[Any]):
    """The same by several threads, which are started at once. At most ``depth`` batches are begun
    and not yet handed out.
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
        """End the threads after their present batches."""
        self._run.close()

    def __del__(self) -> None:
        # An interrupt may come before the iteration could close it, or before it has a run.
        if hasattr(self, "_run"):
            self.close()


def _done(job: Job, batch: Any) -> Any:
    """Returns the result of a job on a batch."""
    try:
        return job(batch)
    except StopIteration as stray:
        # It would be taken for the end of the epoch.
        raise RuntimeError("a transform raised StopIteration") from stray


class _Run:
    """The state that the threads share."""

    def __init__(self, source: _larder.Epoch, job: Job, depth: int) -> None:
        self._source = source
        self._job = job
        self._owner = os.getpid()
        self._depth = depth
        #: Held while a batch is pulled, so that numbers are given in order.
        self._pulling = threading.Lock()
        #: Guards all below.
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
        """Waits for its threads, each so long at most: a transform may hang."""
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
                if self._ended:  # Closed meanwhile: no job begins any more.
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
        """The next in order, or ``None`` after the last."""
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
        # A forked child has none of the threads, and a lock may be held by one of them for ever.
        if self._owner == os.getpid():
            self._end()
            self._source.close()


#: Runs of this process, for its end. Threads add to it while it is listed, so it is a plain set.
_running: set[weakref.ref[_Run]] = set()
#: How long the end of the program waits for a thread: one that waits for a batch looks up sooner.
_END_SECONDS = 0.5


@atexit.register
def _close_all() -> None:
    """Ends what still runs, while threads in native code can still come back from it."""
    runs = [run for known in list(_running) if (run := known()) is not None]
    for run in runs:
        run.close()
    for run in runs:
        run.join(_END_SECONDS)
