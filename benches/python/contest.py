"""Contenders that take turns: each in a process of its own, each round one epoch of each.

A contender first goes through an epoch that nobody clocks and in which every byte is compared
with what was written; then caches are warm, its worker processes run, and rounds begin. While one
has its turn the others sleep.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Self

import usage

#: A dict from each tensor's name to a torch tensor whose first axis is the samples.
Batch = dict[str, Any]

#: Seconds between two looks at the memory of whoever has its turn.
LOOK_SECONDS = 0.02


@dataclass
class Contender(ABC):
    """A way of loading batches; made in the runner, opened in its own process."""

    name: str
    #: Whether it is what Larder is compared with, Larder itself, or only there to be seen.
    role: str
    #: Processes that work for it besides its own.
    helpers: list[int] = field(default_factory=list, kw_only=True)

    @abstractmethod
    def open(self) -> None:
        """Makes it ready."""

    @abstractmethod
    def epoch(self, number: int) -> Iterable[Batch]:
        """The batches of an epoch, all samples once."""

    def notes(self) -> dict[str, float]:
        """What it counted over all its epochs."""
        return {}


@dataclass(frozen=True)
class Subject:
    """What is compared.

    Attributes:
        key: its name for `--only` and in the JSON.
        title: its name for people.
        samples: of an epoch.
        use: what a training loop does with a batch.
        check: compares a batch with what was written; raises if it differs.
        goal: what the ratio should be.
    """

    key: str
    title: str
    samples: int
    contenders: list[Contender]
    use: Callable[[Batch], object]
    check: Callable[[Batch], int]
    goal: float


@dataclass(frozen=True)
class Round:
    """One epoch of one contender."""

    seconds: float
    cpu_seconds: float
    notes: dict[str, float]


@dataclass
class Result:
    """All rounds of one contender."""

    contender: Contender
    rounds: list[Round] = field(default_factory=list)
    memory: usage.Memory = usage.Memory()


class _Seat:
    """The process of a contender."""

    def __init__(self, subject: Subject, contender: Contender) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.result = Result(contender)
        self._pipe, theirs = spawn.Pipe()
        arguments = (contender, subject.use, subject.check, subject.samples, theirs)
        self._process = spawn.Process(target=_contend, args=arguments)
        self._process.start()
        theirs.close()

    def take_turn(self) -> Round:
        """Let it go through an epoch, watching its memory."""
        self._pipe.send(True)
        while not self._pipe.poll(LOOK_SECONDS):
            self._look()
        self._look()
        return self._answer()

    def wait_until_ready(self) -> None:
        """Let it open and go through the epoch that is compared and not clocked."""
        self._pipe.send(True)
        self._answer()

    def _look(self) -> None:
        pids = usage.tree(self._process.pid or 0) + self.result.contender.helpers
        self.result.memory = self.result.memory.peak(usage.memory(pids))

    def _answer(self) -> Any:
        try:
            answer = self._pipe.recv()
        except EOFError:
            answer = f"its process ended with exit code {self._process.exitcode}"
        if isinstance(answer, str):
            raise RuntimeError(f"{self.result.contender.name}: {answer}")
        return answer

    def __enter__(self) -> Self:
        return self

    def leave(self) -> None:
        """End it, and wait until it has ended."""
        self._pipe.close()
        self._process.join(60)
        if self._process.is_alive():
            self._process.kill()


def hold(subject: Subject, rounds: int) -> list[Result]:
    """Lets the contenders of a subject take turns, each round in another order."""
    seats: list[_Seat] = []
    try:
        for contender in subject.contenders:
            seats.append(_Seat(subject, contender))
            seats[-1].wait_until_ready()
        for number in range(rounds):
            first = number % len(seats)
            turns = {id(seat): seat.take_turn() for seat in seats[first:] + seats[:first]}
            for seat in seats:
                seat.result.rounds.append(turns[id(seat)])
    finally:
        for seat in seats:
            seat.leave()
    return [seat.result for seat in seats]


def _contend(
    contender: Contender,
    use: Callable[[Batch], object],
    check: Callable[[Batch], int],
    samples: int,
    pipe: Any,
) -> None:
    """The life of a contender's process; the runner ends it by closing the pipe."""
    try:
        pipe.recv()
        contender.open()
        if (checked := sum(map(check, contender.epoch(0)))) != samples:
            raise AssertionError(f"an epoch brought {checked} samples instead of {samples}")
        pipe.send(None)
        number = 1
        while pipe.recv():
            pipe.send(_round(contender, use, number))
            number += 1
    except EOFError:
        pass
    except Exception:
        pipe.send(traceback.format_exc())


def _round(contender: Contender, use: Callable[[Batch], object], number: int) -> Round:
    pids = usage.tree(os.getpid()) + contender.helpers
    cpu, start = usage.cpu_seconds(pids), time.perf_counter()
    for batch in contender.epoch(number):
        use(batch)
    seconds = time.perf_counter() - start
    return Round(seconds, usage.cpu_seconds(pids) - cpu, contender.notes())
