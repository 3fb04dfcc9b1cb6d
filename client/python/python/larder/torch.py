"""Datasets for ``torch.utils.data.DataLoader`` and torchdata's ``StatefulDataLoader``.

- :class:`Dataset`: map style, samples by their number.
- :class:`BatchSampler`: Larder's order for a map-style dataset, instead of ``DistributedSampler``.
- :class:`IterableDataset`: batches in Larder's order, divided among the workers of each rank.

A loader of :meth:`larder.Dataset.loader` needs no such class. It fetches ahead on its own threads,
and its tensors reach the training loop without a copy. The tensors of a DataLoader's worker process
are copied once more on their way to the main process.

Thread rule: one thread for each iteration. Everything can be forked and pickled, before and during
an iteration.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Unpack

import torch
import torch.utils.data
from torch.utils.data._utils.collate import default_collate_fn_map

from larder import _arguments, _distributed
from larder._batch import Batch
from larder._by_number import ByNumber, require_numbers
from larder._errors import InvalidArgument
from larder._larder import Iteration
from larder._loader import (
    Loads,
    check_bad,
    settings_of,
    shown_shuffle,
    state_after,
    warn_if_dropped,
    warn_if_empty,
)
from larder._options import BatchOptions, OrderOptions, checked, documented
from larder._output import convert_all, converter, each_row
from larder._worker_state import (
    AGAIN,
    ONCE,
    SET,
    SharedState,
    WorkerPlace,
    check_fits,
    current_worker,
    place_in,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import larder
    from larder import _larder

__all__ = ["BatchSampler", "Dataset", "IterableDataset"]

Sample = dict[str, torch.Tensor]

_to_torch = converter("torch")

_log = logging.getLogger("larder")

_EPOCH_AGAIN = (
    "epoch {} is iterated again, in the same order: call set_epoch(epoch) before each epoch"
)


def _refuse_batches(batches: Sequence[Batch], **_: Any) -> NoReturn:
    """Refuses to collate whole batches into a batch of batches."""
    raise InvalidArgument(
        f"the DataLoader collates {len(batches)} whole batches into one",
        "larder.torch.IterableDataset makes the batches itself",
        "pass the DataLoader batch_size=None, and the batch_size to IterableDataset",
    )


default_collate_fn_map[Batch] = _refuse_batches


class Dataset(ByNumber, torch.utils.data.Dataset[Sample]):
    """The samples of a dataset by their number, as dicts of tensors.

    A DataLoader reads each batch by one request. Rows of a ragged tensor differ in length, so they
    need a ``collate_fn``, or whole batches. For whole batches, pass a DataLoader
    ``batch_size=None`` and a :class:`BatchSampler` as its ``sampler``. An index that is a list then
    reads a whole batch without collation, with ragged tensors as :class:`larder.Ragged`.

    Args:
        dataset: a dataset from :func:`larder.open`; a mixture raises
            :class:`larder.InvalidArgument`.
        tensors: names of the wanted tensors; by default all.
    """

    _output = "torch"

    def __getitem__(self, index: int | Sequence[int]) -> Sample:
        """One sample; for a list of numbers, a batch of these samples."""
        if isinstance(index, Sequence):
            return self._stacked(index)
        return self._each([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Several samples by one read; they share their memory."""
        return self._each(indices)

    def __repr__(self) -> str:
        return f"larder.torch.Dataset({self._dataset!r})"


class _Plan:
    """The settings of a job on this rank. All processes with these settings have one order."""

    def __init__(self, dataset: Loads, batch_size: int, options: dict[str, Any]) -> None:
        if not isinstance(dataset, Loads):
            raise _arguments.wrong("dataset", dataset, "a dataset, or a mixture of some")
        settings, self.coordinates = settings_of(dataset, batch_size, options)
        self.dataset = dataset
        self.settings = settings
        self.said = settings["shuffle"]
        native = self.native(0, 1)
        # "auto" is resolved here, once: workers could find other nodes alive.
        self.settings = {**settings, "shuffle": native.shuffle, "quiet": True}
        self.batches = native.batches_per_epoch
        warn_if_empty(self.batches, len(dataset._native), settings, stacklevel=4)
        warn_if_dropped(self.batches, len(dataset._native), settings, options["last"])

    @property
    def shuffle(self) -> str:
        """The shuffle in use."""
        return str(self.settings["shuffle"])

    def native(self, worker: int, workers: int) -> _larder.Loader:
        settings = {**self.settings, "worker": worker, "workers": workers}
        return self.dataset._native_loader(settings)

    def resume(self, state: str) -> int:
        """Takes seed and shuffle from a state; returns its epoch."""
        native = self.native(0, 1)
        epoch = native.resume(state)
        self.settings = {**self.settings, "seed": native.seed, "shuffle": native.shuffle}
        return epoch

    def samples(self) -> int:
        """Samples of this rank in a whole epoch."""
        if self.batches == 0:
            return 0
        native = self.native(0, 1)
        last, _, _ = native.schedule(native.state()).batch(self.batches - 1)
        return (self.batches - 1) * int(self.settings["batch_size"]) + len(last)

    def __repr__(self) -> str:
        shown = {name: repr(self.settings[name]) for name in ("batch_size", "seed", "last")}
        shown["shuffle"] = shown_shuffle(self.said, self.shuffle)
        settings = ", ".join(f"{name}={value}" for name, value in shown.items())
        return f"{self.dataset!r}, {settings}, {self.coordinates}"


class IterableDataset(torch.utils.data.IterableDataset[Any]):
    """Batches of a dataset in Larder's order, for a DataLoader with any number of workers.

    The workers of a rank take turns: worker ``w`` of ``n`` reads batches ``w``, ``w + n``,
    ``w + 2n``, and so on. The DataLoader takes one batch of each worker in turn, so batches arrive
    in the same order as without workers. Pass ``batch_size=None``, because this class makes the
    batches::

        data = larder.torch.IterableDataset(larder.open(uri), batch_size=256)
        for epoch in range(90):
            data.set_epoch(epoch)
            for batch in DataLoader(data, batch_size=None, num_workers=4):
                train(batch["image"], batch["label"])

    As with ``DistributedSampler``, :meth:`set_epoch` sets the epoch, also in persistent workers.

    A batch's ``state_dict()`` is the state of the whole job after it. :meth:`load_state_dict` takes
    it with any number of ranks and workers. The next iteration begins there, and those after it at
    the start of their epochs. Load a state before workers start: iterations of workers that already
    ran raise :class:`larder.InvalidArgument`. torchdata's StatefulDataLoader saves and loads by
    itself, with the same number of ranks and workers.

    Args:
        dataset: a dataset from :func:`larder.open`, or a mixture from :func:`larder.mix`.
        batch_size: samples of a batch on each rank.
        shuffle, seed, last, tensors, decode, bad: as for :meth:`larder.Dataset.loader`.
        rank, world_size, group: likewise; resolved here, not in a worker.
        prefetch: batches that each worker fetches ahead.
        locality: as for :meth:`larder.Dataset.loader`.
        job: as for :meth:`larder.Dataset.loader`.
        batched: whether batches are delivered, or samples for the DataLoader to collate. For
            samples, the DataLoader's ``batch_size`` must be this one. Otherwise batches mix samples
            of different workers.
    """

    @documented(BatchOptions, prefetch=2)
    def __init__(
        self,
        dataset: larder.Dataset | larder.Mixture,
        batch_size: int = 256,
        *,
        batched: bool = True,
        **options: Unpack[BatchOptions],
    ) -> None:
        say = checked(BatchOptions, {"prefetch": 2, **options}, "IterableDataset")
        check_bad(say["bad"], say["decode"])
        self._plan = _Plan(dataset, batch_size, say)
        self._batched = batched
        self._shared = SharedState()
        #: The place that this worker loaded. Its next iteration begins there.
        self._resume: WorkerPlace | None = None
        #: The place of the iteration begun last in this process.
        self._place: WorkerPlace | None = None

    @property
    def epoch(self) -> int:
        """The number of the next epoch, unless a loaded state names another."""
        return self._shared.epoch

    @property
    def shuffle(self) -> str:
        """The shuffle in use: as set, or the one that ``"auto"`` became."""
        return self._plan.shuffle

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch.

        A loaded state of another epoch is forgotten, with a warning if no batch of it was iterated.
        """
        epoch = _arguments.integer("epoch", epoch, most=2**63 - 1)
        if epoch != self.epoch:
            if self._shared.pending is not None:
                _warn_forgotten(self.epoch, epoch, ended=self._shared.pending.ended)
            self._shared.forget()
        self._shared.set_epoch(epoch)

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch, or samples if it delivers samples."""
        return self._plan.batches if self._batched else self._plan.samples()

    def __iter__(self) -> Iterator[Any]:
        try:
            return Iteration(self._begun(), None)
        except Exception as error:
            if torch.utils.data.get_worker_info() is None:
                raise
            # A persistent worker would end, and the main process would not learn the reason.
            return Iteration(_raising(error), None)

    def _begun(self) -> Generator[Any, None, None]:
        """The items of the next iteration. If it can't begin, its loaded state is kept."""
        _distributed.confirm(self._plan.coordinates)
        # Read before take() checks for a load: a load changes the epoch.
        epoch = self.epoch
        shared = self._shared.take()
        own, self._resume = self._resume, None
        try:
            return self._items(own, shared, epoch)
        except BaseException:
            self._resume = own
            if shared is not None:
                self._shared.fail()
            raise

    def _items(
        self, own: WorkerPlace | None, shared: WorkerPlace | None, epoch: int
    ) -> Generator[Any, None, None]:
        """The items from a state on: this worker's own state, or one shared by all workers."""
        resume = own or shared
        place = self._begin(resume, epoch)
        self._place = place
        native = self._plan.native(place.worker, place.workers)
        if resume is not None:
            epoch = native.resume(place.state)
        deliver = self._batches if self._batched else self._samples
        if not place.ended:
            items = deliver(native.epoch(epoch, None), place, state_after(native, epoch))
            return self._told_if_again(items, epoch, resumed=resume is not None)
        if resume is shared:
            # This is the rest of the epoch before. The state's own epoch comes next.
            self._shared.epoch = epoch
        return deliver((), place, place.state)

    def _told_if_again(
        self, items: Generator[Any, None, None], epoch: int, *, resumed: bool
    ) -> Generator[Any, None, None]:
        """The items of an epoch. Warns if a shuffled epoch has begun before.

        The main process warns. A worker sends the warning there with its first batch.
        """
        warning = None
        if self.shuffle != "none" and self._shared.begins_again(resumed=resumed):
            warning = _EPOCH_AGAIN.format(epoch)
        for item in items:
            if warning is not None:
                if isinstance(item, Batch) and torch.utils.data.get_worker_info() is not None:
                    item._warning = warning
                else:
                    _log.warning(warning)
                warning = None
            yield item

    def _begin(self, resume: WorkerPlace | None, epoch: int) -> WorkerPlace:
        """The place at which this process begins, alone or as one of several workers."""
        if resume is None:
            state = self._plan.native(0, 1).state_at(epoch)
        elif resume.is_the_jobs():
            state = resume.state
        else:
            check_fits(resume)
            return resume
        return WorkerPlace(state, *current_worker(), 0, ended=False)

    def _batches(
        self, batches: _larder.Epoch | tuple[()], place: WorkerPlace, end: str
    ) -> Generator[Batch, None, None]:
        count = len(batches)
        for number, native in enumerate(batches, start=1):
            # Only a complete batch counts.
            batch = Batch.of(native, _to_torch)
            self._place = place.past(native) if number < count else place.at_end(end, seen=False)
            yield batch
        self._place = place.at_end(end, seen=True)

    def _samples(
        self, batches: _larder.Epoch | tuple[()], place: WorkerPlace, end: str
    ) -> Generator[Sample, None, None]:
        count = len(batches)
        for number, native in enumerate(batches, start=1):
            rows = native.samples.shape[0]
            samples = each_row(convert_all(native.tensors, _to_torch), rows)
            for row in range(place.samples, rows):
                if row + 1 < rows:
                    place = place._replace(samples=row + 1)
                else:
                    place = place.past(native) if number < count else place.at_end(end, seen=False)
                self._place = place
                yield samples[row]
        self._place = place.at_end(end, seen=True)

    def state_dict(self) -> dict[str, Any]:
        """The state of the iteration in this process, for a StatefulDataLoader.

        It is the state of one worker. To save the state of a job that iterates a plain DataLoader,
        take :meth:`larder.Batch.state_dict` of the batch used last.

        Between the last batch of an epoch and the end of its iteration, the state says that the
        epoch is done. The first iteration from such a state yields nothing.

        Raises:
            InvalidArgument: this process has not iterated the dataset.
        """
        if self._place is None:
            raise InvalidArgument(
                "a dataset that is not iterated in this process has no state",
                "it is the DataLoader's workers who iterate it",
                "save batch.state_dict() of the batch used last, or use torchdata's "
                "StatefulDataLoader",
            )
        state, *rest = self._place
        return {"larder": state, "place": [*rest, *self._cut()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at a state of a batch, of a loader or of this class.

        In the main process, load it before the DataLoader's workers start. Workers that already run
        raise in their next iteration.

        Raises:
            InvalidArgument: ``state`` is no state, is one of other data, or is that of one worker
                and does not fit the present workers.
        """
        text = _arguments.state(state)
        if state.get("place") is None:
            place = WorkerPlace(text, 0, 1, 0, ended=False)
        else:
            place, cut = place_in(state, text)
            if not place.is_the_jobs() and cut != self._cut():
                raise _other_cut(cut, self._cut())
        in_worker = torch.utils.data.get_worker_info() is not None
        if place.workers > 1 and not in_worker:
            raise InvalidArgument(
                f"the state was saved by one of {place.workers} workers",
                "each worker's state says only what that worker has done",
                "let a StatefulDataLoader load it, or load batch.state_dict() of the batch used "
                "last",
            )
        epoch = self._plan.resume(text)
        if epoch < place.ended:
            raise _arguments.no_state(state)
        if in_worker:
            self._resume = place
            return
        self._shared.load(place)
        # The state of an ended place is that of the next epoch. set_epoch() names this epoch.
        self._shared.epoch = epoch - place.ended

    def _cut(self) -> list[int]:
        """The settings that decide how batches are divided among workers."""
        return [self._plan.settings["batch_size"], self._plan.settings["world_size"]]

    def __repr__(self) -> str:
        return f"larder.torch.IterableDataset({self._plan!r})"


def _raising(error: Exception) -> Generator[Any, None, None]:
    raise error
    yield


def _warn_forgotten(stands: int, said: int, *, ended: bool) -> None:
    """Warns that a loaded state is forgotten, unless its epoch had ended and nothing is lost."""
    if ended and said == stands + 1:
        return
    warnings.warn(
        f"the loaded state stands in epoch {stands}, and set_epoch({said}) forgets it; to go on "
        f"where it stands, begin with epoch {stands}",
        stacklevel=3,
    )


def _other_cut(saved: list[int], now: list[int]) -> InvalidArgument:
    return InvalidArgument(
        f"the state was saved with batch_size {saved[0]} on {saved[1]} ranks, and now they are "
        f"{now[0]} and {now[1]}",
        "each worker's state says only what that worker has done",
        "resume with the same ones, or from batch.state_dict() of the batch used last",
    )


class _Stand(NamedTuple):
    """The position of a batch sampler."""

    #: The job's state after the batch that was named last, or at the start. After this rank's last
    #: batch it is the state at the epoch's end, even if other ranks have one more batch.
    state: str
    #: Whether that batch was this rank's last, and the consumer has not seen the end yet.
    ended: bool


class BatchSampler(torch.utils.data.Sampler[list[int]]):
    """Larder's order for a map-style dataset: yields the numbers of each batch of this rank.

    It replaces ``DistributedSampler``. The order is that of a loader with the same settings: each
    sample once an epoch, on any number of ranks. Pass it to a DataLoader as ``batch_sampler``, or
    as ``sampler`` together with ``batch_size=None``::

        samples = larder.torch.Dataset(ds)
        order = larder.torch.BatchSampler(ds, batch_size=256)
        loader = DataLoader(samples, sampler=order, batch_size=None, num_workers=4)

    Args:
        dataset, batch_size, shuffle, seed, rank, world_size, group, last, locality: as for
            :meth:`larder.Dataset.loader`. Padding of ``last="pad"`` is not marked.
    """

    @documented(OrderOptions)
    def __init__(
        self, dataset: larder.Dataset, batch_size: int = 256, **options: Unpack[OrderOptions]
    ) -> None:
        require_numbers(dataset)
        self._plan = _Plan(dataset, batch_size, checked(OrderOptions, options, "BatchSampler"))
        self._epoch = 0
        #: The epoch of set_epoch(), until an iteration begins with it.
        self._said = 0
        #: The start of the next iteration; None for the start of the epoch.
        self._resume: _Stand | None = None
        #: The position of the iteration begun last.
        self._stand: _Stand | None = None
        #: Whether the epoch has begun since it was set, as in `SharedState`.
        self._begun = SET

    @property
    def shuffle(self) -> str:
        """The shuffle in use: as set, or the one that ``"auto"`` became."""
        return self._plan.shuffle

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch.

        A loaded state of another epoch is forgotten, with a warning if no batch of it was iterated.

        If a state is loaded afterwards, the rest of its epoch comes first. Then comes the epoch of
        this call, if it is later.
        """
        epoch = _arguments.integer("epoch", epoch)
        if epoch != self._epoch and self._resume is not None:
            _warn_forgotten(self._epoch, epoch, ended=self._resume.ended)
            self._resume = None
        self._epoch = self._said = epoch
        if self._begun == ONCE:
            self._begun = SET

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch."""
        return self._plan.batches

    def __iter__(self) -> Iterator[list[int]]:
        _distributed.confirm(self._plan.coordinates)
        begin = self._resume or self._start()
        self._stand = begin
        native = self._plan.native(0, 1)
        schedule, end = native.schedule(begin.state), state_after(native, self._epoch)
        return Iteration(self._batches(schedule, begin, end), None)

    def _batches(
        self, schedule: _larder.Schedule, begin: _Stand, end: str
    ) -> Generator[list[int], None, None]:
        # Not before the first batch: a DataLoader with workers makes two iterators and begins the
        # second.
        if self._begun == ONCE and self._resume is not begin and self.shuffle != "none":
            _log.warning(_EPOCH_AGAIN.format(self._epoch))
            self._begun = AGAIN
        self._begun = max(self._begun, ONCE)
        if self._resume is begin:
            self._resume = None
            # A StatefulDataLoader loads a state when it is iterated, and so after set_epoch(). If
            # the state's epoch had ended, it first iterates the batches after its snapshot.
            self._epoch = max(self._epoch + begin.ended, self._said)
        self._said = 0
        count = 0 if begin.ended else len(schedule)
        for number in range(1, count + 1):
            samples, _, state = schedule.batch(number - 1)
            ended = number == count
            self._stand = _Stand(end if ended else state, ended)
            yield samples
        self._stand = _Stand(end, ended=False)

    def _start(self) -> _Stand:
        """The start of the epoch."""
        return _Stand(self._plan.native(0, 1).state_at(self._epoch), ended=False)

    def state_dict(self) -> dict[str, Any]:
        """The state of the job after the batch that was named last.

        Between the last batch of an epoch and the end of its iteration, the state says that the
        epoch is done. The first iteration from such a state yields nothing.
        """
        stand = self._stand or self._resume or self._start()
        return {"larder": stand.state, **({"ended": True} if stand.ended else {})}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at a state, also with another number of ranks or batch size.

        Raises:
            InvalidArgument: ``state`` is no state, or is one of other data.
        """
        text = _arguments.state(state)
        ended = state.get("ended", False)
        epoch = self._plan.resume(text)
        if not isinstance(ended, bool) or epoch < ended:
            raise _arguments.no_state(state)
        # If it ended, the state is that of the next epoch. set_epoch() names this epoch.
        self._epoch = epoch - ended
        self._resume, self._stand = _Stand(text, ended), None

    def __repr__(self) -> str:
        return f"larder.torch.BatchSampler({self._plan!r})"
