"""Loaders: batches of a dataset, epoch after epoch."""

from __future__ import annotations

import json
import logging
import os
import warnings
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

import numpy as np

from larder import _arguments, _decode, _distributed, _locality, _metrics, _pinned
from larder._batch import Batch
from larder._device import Place, Target, place_of, refuse_in_worker
from larder._errors import InvalidArgument
from larder._explain import Explanation
from larder._larder import Iteration
from larder._options import BatchOptions, Last, LoaderOptions, checked, documented, options_of
from larder._output import Output, converter, resolve
from larder._pinned import PinMemory, Pinning
from larder._progress import reporter
from larder._seconds import Spent, Timed
from larder._transform import Transform
from larder._transformed import Transformed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence, Set

    from larder import _larder
    from larder._decode import Audio, Bad, Image
    from larder._larder import Locality

_log = logging.getLogger("larder")

#: Options of the native loader, by its names of them, and a locality.
Settings = dict[str, Any]


def settings_of(
    loads: Loads, batch_size: int, options: Mapping[str, Any]
) -> tuple[Settings, _distributed.Coordinates]:
    """The settings of a loader without workers, by checked options."""
    group = options["group"]
    coordinates = _distributed.resolve(options["rank"], options["world_size"], group)
    native = options_of(BatchOptions).keys() - {"group", "bad"}
    settings = {name: value for name, value in options.items() if name in native}
    decode = options.get("decode")
    settings |= {
        "batch_size": _arguments.integer("batch_size", batch_size, 1, _arguments.BATCH_SIZE_MAX),
        "rank": coordinates.rank,
        "world_size": coordinates.world_size,
        "rank_hosts": _distributed.rank_hosts(coordinates),
        "last": options["last"] or "drop",
        "decode": _decode.native(decode, loads._upright() if decode else ()),
        "skip_bad": options.get("bad") == "skip",
        "prefetch": options.get("prefetch") or _decode.prefetch_for(decode),
        "locality": _locality.agreed(options["locality"], loads, coordinates, group),
    }
    return settings, coordinates


def check_bad(bad: Bad, decode: Mapping[str, Image | Audio] | None) -> None:
    """Raises `InvalidArgument` for ``bad="skip"`` where nothing is decoded or transformed."""
    if bad == "skip" and not decode:
        raise InvalidArgument(
            "bad='skip' has nothing to skip",
            "it skips samples that decode= can't decode, or for which transform= raises",
            "give one of them, or leave bad out",
        )


def warn_if_empty(batches: int, samples: int, settings: Settings, *, stacklevel: int = 3) -> None:
    """Warns, at the user's line, if epochs have no batches although there are samples."""
    if batches > 0 or samples == 0 or settings["last"] != "drop":
        return
    size, ranks = settings["batch_size"], settings["world_size"]
    batch = f"batch_size={size}" + (f" on each of {ranks} ranks" if ranks > 1 else "")
    warnings.warn(
        f"each epoch has 0 batches: {samples:,} samples do not fill a batch of {batch}, and "
        "last='drop' drops them; say last='uneven', or a smaller batch_size",
        stacklevel=stacklevel,
    )


def warn_if_dropped(batches: int, samples: int, settings: Settings, last: Last | None) -> None:
    """Warns if an unshuffled epoch leaves samples out, and the user has not asked for that.

    A shuffled epoch leaves other samples out each time, as training loaders usually do.
    """
    if last is not None or settings["shuffle"] != "none" or settings["rank"] > 0 or batches == 0:
        return
    ranks = settings["world_size"]
    row_count = settings["batch_size"] * ranks
    dropped = samples - batches * row_count
    if dropped > 0:
        remedy = "last='uneven'" if ranks == 1 else "last='pad', or 'uneven' without DDP,"
        _log.warning(
            f"each epoch drops the last {dropped:,} of {samples:,} samples, which do not fill a "
            f"batch of {row_count:,}: say {remedy} to get them, or last='drop' to be told nothing"
        )


def state_after(native: _larder.Loader, epoch: int) -> str:
    """The state at the end of an epoch: the start of the next epoch."""
    return native.state_at((epoch + 1) & _arguments.COUNT_MAX)


@dataclass
class _Turn:
    """An iteration. Only batches that it handed out count as done, not fetched or failed ones."""

    #: The job's state after the last batch that it handed out; empty before it has begun.
    state: str = ""
    #: The number of its epoch.
    epoch: int = 0
    #: The time at which the consumer asked for its first batch.
    asked: float = 0.0


@dataclass(frozen=True)
class _Source:
    """All that a copy of a loader in another process needs."""

    loads: Loads
    settings: Settings
    coordinates: _distributed.Coordinates
    output: Output
    target: Target | None
    pin_memory: PinMemory
    transform: Callable[..., Any] | None
    batch_transform: Callable[..., Any] | None
    workers: int


class Loader:
    """Batches of a dataset, each sample once an epoch; made by :meth:`Dataset.loader`.

    Each iteration is the next epoch. Threads that iterate side by side get an epoch each. One
    iteration serves one thread at a time: a second thread gets a ``RuntimeError``.

    A loader pickles if its transforms do. The copy has the same settings, and its next iteration
    begins at :meth:`state_dict`.
    """

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._coordinates = source.coordinates
        self._pinning = Pinning(source.pin_memory, source.output)
        skips = source.settings["skip_bad"]
        transform = Transform(source.transform, source.batch_transform, source.output, skips)
        self._spent = Spent()
        self._transformed = Transformed.of(transform, source.workers, self._spent)
        self._native = source.loads._native_loader(source.settings)
        self._place: Place | None = None
        if source.target is None:
            self._convert = converter(source.output)
        else:
            refuse_in_worker(source.target)
        if source.target is not None and self._transformed is None:
            self._place = place_of(source.target, self._native, source.output)
        #: The process that made this loader; None for a copy.
        self._owner: int | None = os.getpid()
        self._epoch = 0
        #: The iteration begun last; None after a state was loaded.
        self._turn: _Turn | None = None
        counts = partial(_counts, self._native, self._spent, self._transformed)
        _metrics.watch(self, source.settings.get("job", ""), counts)

    @property
    def epoch(self) -> int:
        """The number of the epoch that was begun last."""
        return self._epoch

    @property
    def shuffle(self) -> str:
        """The shuffle in use: as set, or the one that ``"auto"`` became."""
        return self._native.shuffle

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch."""
        return self._native.batches_per_epoch

    def __getitem__(self, index: object) -> NoReturn:
        """Refuses batches by number, for which a torch ``DataLoader`` asks."""
        raise InvalidArgument(
            f"a larder.Loader has no item {index!r}",
            "it hands out whole batches in its own order, and needs no DataLoader",
            "iterate it directly: it fetches ahead by itself; for worker processes use DataLoader("
            f"larder.torch.IterableDataset(ds, batch_size={self._source.settings['batch_size']}), "
            "batch_size=None, num_workers=...)",
        )

    def __iter__(self) -> Iteration[Batch]:
        """The batches of the next epoch.

        The epoch begins when the consumer asks for the first batch. Frameworks make iterators only
        to see whether they can iterate; such an iterator begins no epoch.
        """
        turn = _Turn()
        return Iteration(self._batches(turn), turn)

    def _batches(self, turn: _Turn) -> Generator[Batch, None, None]:
        turn.asked = perf_counter()
        _distributed.confirm(self._coordinates)
        if self._owner != os.getpid():
            _distributed.refuse_inside_worker("made outside and iterated")
        if self._transformed is None:
            yield from self._plain(turn)
        else:
            yield from self._transforming(self._transformed, turn)
        turn.state = state_after(self._native, turn.epoch)

    def _plain(self, turn: _Turn) -> Generator[Batch, None, None]:
        """The batches of an epoch, not transformed."""
        make: Callable[[_larder.Batch], Batch]
        if self._place is not None:
            epoch = self._begin(turn, partial(self._place.epoch, self._native))
            make = partial(Batch.on_device, place=self._place)
        else:
            pin = self._pinning.on
            epoch = self._begin(turn, self._on_host(_pinned.allocate if pin else None))
            convert = _pinned.to_pinned if pin else self._convert
            make = partial(Batch.of, convert=convert, left_out=self._source.loads.left_out)
        # Nothing here keeps a batch, native or not: only the consumer holds its memory.
        yield from self._timed(turn, map(make, epoch))

    def _on_host(self, allocate: Callable[[int], Any] | None) -> Callable[[int], _larder.Epoch]:
        return lambda number: self._native.epoch(number, allocate)

    def _transforming(self, transformed: Transformed, turn: _Turn) -> Generator[Batch, None, None]:
        """The batches of an epoch, transformed."""
        target = self._source.target
        pin = _pinned.pinned if self._pinning.on or target is not None else None
        epoch = self._begin(turn, self._on_host(None))
        try:
            batches = transformed.batches(epoch, self._native.seed, turn.epoch, pin)
        except BaseException:
            self._begin_again(turn)
            raise
        # Closed with this iteration, not when it is collected.
        with closing(batches):
            made = map(Batch.of_transformed, batches)
            if target is not None:
                # A transform returns tensors of torch, and torch copies them to the device.
                made = map(target.move, made)
            yield from self._timed(turn, made)

    def _timed(self, turn: _Turn, batches: Iterable[Batch]) -> Timed[Batch]:
        return Timed(batches, self._spent.add_loop, turn.asked)

    def _begin(self, turn: _Turn, begin: Callable[[int], _larder.Epoch]) -> _larder.Epoch:
        """Begins the next epoch. If it can't begin, it stays the next."""
        number = self._native.turn()
        try:
            epoch = begin(number)
        except BaseException:
            self._native.turn_back(number)
            raise
        turn.epoch, turn.state = number, self._native.state()
        self._epoch, self._turn = number, turn
        return epoch

    def _begin_again(self, turn: _Turn) -> None:
        """Takes back an epoch that will yield no batch. It is the next again, at its old state."""
        if self._turn is turn:
            self._turn = None
            self._native.resume(turn.state)
        else:
            self._native.turn_back(turn.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch.

        The epoch of a loaded state continues at that state.
        """
        self._native.turn_to(_arguments.integer("epoch", epoch))

    def state_dict(self) -> dict[str, Any]:
        """The state of the job after the batch that was handed out last: a few integers as text."""
        turn = self._turn
        return {"larder": self._native.state() if turn is None else turn.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at a saved state, also with another batch size or number of ranks.

        Raises:
            InvalidArgument: ``state`` is no state, or is one of other data.
        """
        self._native.resume(_arguments.state(state))
        self._turn = None

    def stats(self) -> dict[str, float]:
        """Counts of the batches handed out so far, their rows by source, and waits in seconds."""
        return _counts(self._native, self._spent, self._transformed)

    def explain(self) -> Explanation:
        """Why the loop waits for batches, and the waits of the slowest batches: print it."""
        kept = self._native if self._transformed is None else self._transformed
        refused = None if self._place is None else self._place.refused
        return Explanation(self.stats(), kept.slowest(), refused)

    def __reduce__(self) -> tuple[Callable[..., Loader], tuple[object, ...]]:
        return _copy, (self._source, self.state_dict())

    def __repr__(self) -> str:
        shuffle = shown_shuffle(self._source.settings["shuffle"], self.shuffle)
        batches = f"{len(self)} batches an epoch"
        return f"<larder.Loader of {batches}, shuffle {shuffle}, {self._coordinates}>"


def _counts(
    native: _larder.Loader, spent: Spent, transformed: Transformed | None
) -> dict[str, float]:
    """The counts of a loader of these parts."""
    counts = {**native.stats(), **spent.stats()}
    if transformed is not None:
        counts["skipped"] += transformed.skipped
    return counts


def shown_shuffle(said: str, shuffle: str) -> str:
    """The shuffle in use, and whether ``"auto"`` chose it."""
    return f"{shuffle!r} by 'auto'" if said == "auto" else repr(shuffle)


def _copy(source: _Source, state: dict[str, Any]) -> Loader:
    """Makes the copy of a pickled loader."""
    loader = Loader(replace(source, settings={**source.settings, "quiet": True}))
    loader._owner = None
    loader.load_state_dict(state)
    return loader


def _plain(number: Any) -> Any:
    """A number of numpy as one of Python."""
    if isinstance(number, np.generic):
        return number.item()
    raise TypeError(f"{number!r} is no option of a loader")


class Loads:
    """The common part of datasets and mixtures: loaders."""

    _native: _larder.Dataset | _larder.Mixture

    @property
    def left_out(self) -> dict[str, str]:
        """The columns that the index left out, each with the reason: of a mixture none."""
        return {}

    def _data(self) -> _larder.Mixture:
        """The data of a loader: a dataset is a mixture of one."""
        raise NotImplementedError

    def _native_loader(self, settings: Settings) -> _larder.Loader:
        """The native loader, which takes settings as JSON. Objects have no text."""
        settings = dict(settings)
        locality, on_progress = settings.pop("locality"), settings.pop("progress", None)
        options = json.dumps(settings, default=_plain)
        return self._data().loader(options, locality, reporter(on_progress))

    def _upright(self) -> Set[str]:
        """The tensors whose pictures are turned upright unless the user says otherwise."""
        raise NotImplementedError

    @property
    def nodes_here(self) -> list[str]:
        """The names of the cluster's nodes on the host of this process: their sockets answer here.

        Asks all nodes for their sockets, which takes two seconds at most.
        """
        return self._data().nodes_here()

    def locality(self, hosts: Sequence[str | Sequence[str]]) -> Locality:
        """A division of the job's batches among its ranks, by the present placement of the data.

        Call it only for ranks that do not run under torch.distributed: there ``locality=True`` of a
        loader does all of it. Make it in one process and send it to all (it pickles). Two processes
        may know the cluster differently, and rows would be lost and repeated.

        Args:
            hosts: for each rank its :attr:`nodes_here`, the name of a node on its host, or the
                host's name in the cluster. Empty for a host without a node.
        """
        wanted = "for each rank the names of its nodes"
        ranks = _arguments.listed("hosts", hosts, wanted)
        named = [_arguments.texts("hosts", names, wanted) for names in ranks]
        return self._data().locality(named)

    @documented(LoaderOptions)
    def loader(self, batch_size: int = 256, **options: Unpack[LoaderOptions]) -> Loader:
        """A loader of batches, each a dict of arrays: every sample once an epoch.

        An array has the shape ``[batch_size, *shape]`` of its tensor.

        Args:
            batch_size: samples of a batch on each rank, 65,536 at most.
            options: those of :class:`larder.LoaderOptions`.

        Raises:
            InvalidArgument: an argument is outside its range, or does not fit another.
            NotFound: there is no such tensor.
            Unavailable: ``"auto"`` needs a node that does not answer.
        """
        say = checked(LoaderOptions, options)
        transforms = (say["transform"], say["batch_transform"])
        output = resolve(say["output"], on_device=say["device"] is not None)
        pin_memory = say["pin_memory"]
        target = Target.of(say["device"], say["device_way"], output=output, pin_memory=pin_memory)
        if target is not None:
            pin_memory = False
            target.check_transforms(output, *transforms)
        if say["transform"] is None:
            check_bad(say["bad"], say["decode"])
        settings, coordinates = settings_of(self, batch_size, say)
        loader = Loader(
            _Source(
                loads=self,
                settings=settings,
                coordinates=coordinates,
                output=output,
                target=target,
                pin_memory=pin_memory,
                transform=say["transform"],
                batch_transform=say["batch_transform"],
                workers=say["workers"],
            )
        )
        warn_if_empty(len(loader), len(self._native), settings)
        warn_if_dropped(len(loader), len(self._native), settings, say["last"])
        return loader
