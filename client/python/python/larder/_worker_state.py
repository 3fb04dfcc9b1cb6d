"""The places of a DataLoader's workers in an epoch, and the state that they share.

Thread rule: one thread of each process; the words of :class:`SharedState` are in shared memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.utils.data

from larder import _arguments
from larder._errors import InvalidArgument

if TYPE_CHECKING:
    from larder import _larder


class WorkerPlace(NamedTuple):
    """The position of one worker of a rank: the state of the job, and the worker's turn."""

    #: The job's state after this worker's last batch, or at the start. It is the state at the
    #: epoch's end if the epoch has no more batches for this worker.
    state: str
    #: From that state on, this worker's batches are every `workers`-th, beginning with `worker`.
    worker: int
    workers: int
    #: Samples of its next batch that are delivered.
    samples: int
    #: Whether the epoch has no more batches for this worker.
    ended: bool

    def past(self, batch: _larder.Batch) -> WorkerPlace:
        """The place after a batch of this worker.

        The other workers' batches before it are delivered by then, so this worker's turn is last.
        """
        return WorkerPlace(batch.state(), self.workers - 1, self.workers, 0, ended=False)

    def at_end(self, end: str, *, seen: bool) -> WorkerPlace:
        """The place after the last batch of an epoch that ends in state ``end``.

        After the consumer has seen the end, a single worker stands at the start of the next epoch.
        """
        return WorkerPlace(
            end, self.workers - 1, self.workers, 0, ended=not seen or self.workers > 1
        )

    def is_the_jobs(self) -> bool:
        """Whether the state alone is the position of this rank."""
        return self.workers == 1 and self.samples == 0 and not self.ended


#: The most workers of a DataLoader: many times the cores of any host.
_WORKERS_MAX = 4096
#: The shared words: the epoch, the number of loads, the iteration that takes the state loaded last,
#: whether the epoch has begun since it was set, and for each worker the number of the load that it
#: took.
_EPOCH, _LOADS, _TAKER, _BEGUN, _TAKEN = range(5)
#: Values of `_BEGUN`: the epoch was set, it has begun, and it was told that it began again.
SET, ONCE, AGAIN = range(3)
#: Values of `_TAKER`: the next iteration, one of the main process, one that failed, one of workers.
_NEXT, _MAIN, _FAILED, _WORKERS = range(4)


class SharedState:
    """The epoch, and a state that the main process loaded for its next iteration.

    A worker is a copy of the main process, so it has the state from its start. Shared memory tells
    the main process, and so later workers, that an iteration has taken the state.

    Thread rule: the main process writes the epoch and the number of loads. The first worker writes
    the `_BEGUN` word. A worker writes its own word and the `_TAKER` word. All workers of an
    iteration write the same `_TAKER`.
    """

    def __init__(self) -> None:
        self._words = torch.zeros(_TAKEN + _WORKERS_MAX, dtype=torch.int64)
        self._words.share_memory_()  # type: ignore[no-untyped-call]
        #: The place loaded last, and the number of loads at that time.
        self._loaded: WorkerPlace | None = None
        self._loads = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A deep or pickled copy has its own words, which its workers share.
        self.__dict__.update(state)
        self._words.share_memory_()  # type: ignore[no-untyped-call]

    @property
    def epoch(self) -> int:
        """The number of the next epoch."""
        return int(self._words[_EPOCH].item())

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._words[_EPOCH] = epoch

    def begins_again(self, *, resumed: bool) -> bool:
        """Notes that an iteration begins the epoch; returns whether that is to be told.

        It is told once, if nothing has set the epoch since it began. A worker that is not the first
        tells nothing.
        """
        begun = self._words[_BEGUN].item()
        if current_worker()[0] > 0 or begun == AGAIN:
            return False
        again = begun == ONCE and not resumed
        self._words[_BEGUN] = AGAIN if again else ONCE
        return again

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch as the user says."""
        self.epoch = epoch
        if self._words[_BEGUN].item() == ONCE:
            self._words[_BEGUN] = SET

    def load(self, place: WorkerPlace) -> None:
        """Sets the place at which the next iteration begins."""
        self._loads = int(self._words[_LOADS].item()) + 1
        self._words[_LOADS] = self._loads
        self._loaded = place

    @property
    def pending(self) -> WorkerPlace | None:
        """The loaded place, if the next iteration would take it."""
        return self._loaded if self._taker == _NEXT else None

    def forget(self) -> None:
        """Forgets the loaded place: no iteration takes it."""
        self._loaded = None

    def take(self) -> WorkerPlace | None:
        """The loaded place, if this is the first iteration since the load; else None.

        Raises `InvalidArgument` in a worker that was started before the load.
        """
        info = torch.utils.data.get_worker_info()
        if info is not None and self._words[_LOADS].item() != self._loads:
            raise InvalidArgument(
                "a state was loaded after the workers of this DataLoader were started",
                "they are copies of the dataset as it was, and do not know the state",
                "load the state before you iterate, or make a new DataLoader",
            )
        taker = self._taker
        if self._loaded is None:
            return None
        if taker == _FAILED:
            raise InvalidArgument(
                "the epoch of the loaded state could not begin in a worker",
                "the other workers have begun, so the rest of it can't be divided again",
                "load the state again",
            )
        worker, mine = 0, _MAIN
        if info is not None:
            # The workers of an iteration have a base seed in common.
            name = hash((info.seed - info.id, info.num_workers))
            worker, mine = info.id, _WORKERS + name % (2**32 - _WORKERS)
        # A later iteration may have the same seed. Its workers see that the state was taken.
        taken = self._words[_TAKEN + worker].item() == self._loads
        if taken or taker not in (_NEXT, mine):
            return None
        check_fits(self._loaded)
        self._words[_TAKEN + worker] = self._loads
        self._taker = mine
        return self._loaded

    def fail(self) -> None:
        """Notes that the iteration that took the place could not begin.

        With a single worker, the next iteration takes the place. Other workers may have begun; then
        iterations fail until another load.
        """
        worker, workers = current_worker()
        self._words[_TAKEN + worker] = 0
        self._taker = _NEXT if workers == 1 else _FAILED

    @property
    def _taker(self) -> int:
        loads, taker = divmod(int(self._words[_TAKER].item()), 2**32)
        return taker if loads == self._loads else _NEXT

    @_taker.setter
    def _taker(self, taker: int) -> None:
        self._words[_TAKER] = self._loads * 2**32 + taker


def current_worker() -> tuple[int, int]:
    """The number of this worker, and the count of workers."""
    info = torch.utils.data.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def check_fits(place: WorkerPlace) -> None:
    """Raises `InvalidArgument` for a place among another number of workers than now."""
    _, workers = current_worker()
    if not place.is_the_jobs() and place.workers != workers:
        raise InvalidArgument(
            f"the state was saved by one of {place.workers} workers, and now there are {workers}",
            "each worker's state says only what that worker has done",
            "resume with the same num_workers, or from batch.state_dict() of the batch used last",
        )


def place_in(state: dict[str, Any], text: str) -> tuple[WorkerPlace, list[int]]:
    """The place in a state of one worker, and the batch size and world size of its batches."""
    match state["place"]:
        case [int(worker), int(workers), int(samples), bool(ended), int(size), int(world)]:
            return WorkerPlace(text, worker, workers, samples, ended), [size, world]
    raise _arguments.no_state(state)
