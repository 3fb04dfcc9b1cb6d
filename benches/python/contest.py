"""Contenders that take turns, in another order each round, while the others sleep.

Warm (`hold`): each contender has its own process. It first runs an epoch without a clock, in which
every byte is compared with the written data. Afterwards caches are warm and worker processes run.
Then rounds begin, each of one epoch.

Cold (`hold_cold`): each round is a new process without data. Its modules are imported before the
clock starts. The clock stops at the end of its first epoch.

In both, the training loop sums up each epoch. The sums of all contenders and rounds must be equal.
A sample that is lost, repeated or wrong ends the contest.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, SupportsInt, TypeVar

import usage

#: A dict from each tensor's name to a torch tensor. Its first axis is the samples.
Batch = dict[str, Any]

T = TypeVar("T")

#: Seconds between two samples of the memory of the contender that runs.
LOOK_SECONDS = 0.02

#: Seconds in which a contender's processes must have ended.
END_SECONDS = 60

#: Sums of integers wrap as those of numpy and torch do, so that their order does not matter.
WRAP = 1 << 64


@dataclass
class Contender(ABC):
    """A way to load batches. It is made in the runner and opened in its own process."""

    name: str
    #: Its role: the baseline, Larder itself, or shown only.
    role: str
    #: Ids of other processes that work for it.
    helpers: list[int] = field(default_factory=list, kw_only=True)

    def load(self) -> None:
        """Imports the modules that a training program imports before it opens its data."""

    @abstractmethod
    def open(self) -> None:
        """Makes it ready."""

    @abstractmethod
    def epoch(self, number: int) -> Iterable[Batch]:
        """The batches of an epoch, all samples once."""

    def notes(self) -> dict[str, float]:
        """Its counts over all its epochs."""
        return {}

    def forget(self) -> None:
        """Deletes the data that it keeps from one process to the next."""


def _nothing() -> dict[str, float]:
    return {}


@dataclass(frozen=True)
class Subject:
    """A subject of comparison.

    Attributes:
        key: its name for `--only` and in the JSON.
        title: its name for people.
        samples: samples of an epoch.
        use: the work of a training loop on a batch; returns an integer, which is summed over an
            epoch.
        check: compares a batch with the written data; raises if it differs.
        goal: the wanted ratio.
        store: returns the counts of the common store, if there is one.
    """

    key: str
    title: str
    samples: int
    contenders: list[Contender]
    use: Callable[[Batch], SupportsInt]
    check: Callable[[Batch], int]
    goal: float
    store: Callable[[], dict[str, float]] = _nothing


@dataclass(frozen=True)
class Round:
    """One epoch of one contender.

    Attributes:
        seconds: seconds from its begin to its last batch.
        first: seconds to its first batch.
        cpu_seconds: CPU time of all processes of the contender.
        total: the sum of the training loop.
        notes: the counts of the contender at its end.
        store: the counts of the store meanwhile.
    """

    seconds: float
    first: float
    cpu_seconds: float
    total: int
    notes: dict[str, float]
    store: dict[str, float] = field(default_factory=dict)


@dataclass
class Result:
    """All rounds of one contender."""

    contender: Contender
    rounds: list[Round] = field(default_factory=list)
    memory: usage.Memory = usage.Memory()


class _Seat:
    """A process of a contender."""

    def __init__(self, subject: Subject, result: Result, *, cold: bool = False) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.result = result
        self._store = subject.store
        self._helpers = result.contender.helpers
        self._pipe, theirs = spawn.Pipe()
        check = None if cold else _Check(subject.check, subject.samples)
        arguments = (result.contender, subject.use, check, theirs)
        self._process = spawn.Process(target=_contend, args=arguments)
        self._process.start()
        theirs.close()

    def take_turn(self) -> Round:
        """Lets it run an epoch, and watches its memory."""
        before = self._store()
        self._pipe.send(True)
        one = self._answer(self._look)
        after = self._store()
        return replace(one, store={name: after[name] - before[name] for name in after})

    def wait_until_ready(self) -> None:
        """Waits for its preparation, before the first clock."""
        self._pipe.send(True)
        self._answer(lambda: None)

    def _look(self) -> None:
        pids = usage.tree(self._process.pid or 0) + self._helpers
        self.result.memory = self.result.memory.peak(usage.memory(pids))

    def _answer(self, meanwhile: Callable[[], None]) -> Any:
        while True:
            while not self._pipe.poll(LOOK_SECONDS):
                meanwhile()
            meanwhile()
            try:
                answer = self._pipe.recv()
            except EOFError:
                answer = f"its process ended with exit code {self._process.exitcode}"
            if isinstance(answer, str):
                raise RuntimeError(f"{self.result.contender.name}: {answer}")
            if not isinstance(answer, list):
                return answer
            self._helpers = answer

    def leave(self) -> None:
        """Ends it and its child processes, and waits for their end."""
        self._pipe.close()
        self._process.join(END_SECONDS)
        if self._process.is_alive():
            self._process.kill()
        started = set(self._helpers) - set(self.result.contender.helpers)
        if not usage.wait_until_ended(started, END_SECONDS):
            raise RuntimeError(f"{self.result.contender.name}: {started} did not end")


def hold(subject: Subject, rounds: int) -> list[Result]:
    """Warm epochs, after one epoch that is compared with the written data."""
    seats: list[_Seat] = []
    try:
        for contender in subject.contenders:
            seats.append(_Seat(subject, Result(contender)))
            seats[-1].wait_until_ready()
        for number in range(rounds):
            for seat in _turns(seats, number):
                seat.result.rounds.append(seat.take_turn())
    finally:
        for seat in seats:
            seat.leave()
    return _agreed([seat.result for seat in seats])


def hold_cold(subject: Subject, rounds: int) -> list[Result]:
    """First epochs of processes, with no data on this host."""
    results = [Result(contender) for contender in subject.contenders]
    for number in range(rounds):
        for result in _turns(results, number):
            result.contender.forget()
            seat = _Seat(subject, result, cold=True)
            try:
                seat.wait_until_ready()
                result.rounds.append(seat.take_turn())
            finally:
                seat.leave()
                result.contender.forget()
    return _agreed(results)


def _turns(contenders: list[T], number: int) -> list[T]:
    """The order of a round."""
    first = number % len(contenders)
    return contenders[first:] + contenders[:first]


def _agreed(results: list[Result]) -> list[Result]:
    totals = {(result.contender.name, one.total) for result in results for one in result.rounds}
    if len({total for _, total in totals}) > 1:
        raise AssertionError(f"epochs did not bring the same samples: {sorted(totals)}")
    return results


@dataclass(frozen=True)
class _Check:
    """Compares all samples of an epoch with the written data."""

    batch: Callable[[Batch], int]
    samples: int

    def epoch(self, batches: Iterable[Batch]) -> None:
        if (checked := sum(map(self.batch, batches))) != self.samples:
            raise AssertionError(f"an epoch brought {checked} samples instead of {self.samples}")


def _contend(
    contender: Contender, use: Callable[[Batch], SupportsInt], check: _Check | None, pipe: Any
) -> None:
    """The main function of a contender's process. The runner ends it by closing the pipe.

    A warm contender opens its data and is checked before its first round.
    """

    def open_then(number: int) -> Iterator[Batch]:
        contender.open()
        pipe.send(contender.helpers)
        yield from contender.epoch(number)

    try:
        pipe.recv()
        # Workers use the default start method, as in a program that was not spawned.
        multiprocessing.set_start_method(None, force=True)
        contender.load()
        epoch = open_then
        if check is not None:
            check.epoch(open_then(0))
            epoch = contender.epoch
        pipe.send(None)
        number = int(check is not None)
        while pipe.recv():
            pipe.send(_round(contender, epoch, use, number))
            number, epoch = number + 1, contender.epoch
    except EOFError:
        pass
    except Exception:
        pipe.send(traceback.format_exc())


def _round(
    contender: Contender,
    epoch: Callable[[int], Iterable[Batch]],
    use: Callable[[Batch], SupportsInt],
    number: int,
) -> Round:
    def cpu_seconds() -> float:
        return usage.cpu_seconds(usage.tree(os.getpid()) + contender.helpers)

    total, first = 0, 0.0
    cpu, start = cpu_seconds(), time.perf_counter()
    for batch in epoch(number):
        first = first or time.perf_counter() - start
        total += int(use(batch))
    seconds = time.perf_counter() - start
    cpu = cpu_seconds() - cpu
    return Round(seconds, first, cpu, total % WRAP, contender.notes())
