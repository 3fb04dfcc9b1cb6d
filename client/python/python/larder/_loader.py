"""Loaders: batches of a dataset, epoch after epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from larder import _distributed
from larder._output import Convert, Output, convert_all, converter, to_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from larder import _larder

#: How far samples are shuffled; also ``"window:SHARDS"``.
Shuffle = Literal["auto", "none", "window", "global"] | str
#: What becomes of a last batch that is not full.
Last = Literal["drop", "pad", "uneven"]


class Settings(TypedDict):
    """The settings of a loader, all of them."""

    batch_size: int
    shuffle: str | bool
    seed: int
    rank: int
    world_size: int
    worker: int
    workers: int
    last: Last
    tensors: list[str] | None
    prefetch: int


class Batch(dict[str, Any]):
    """The rows of some samples: a dict from each tensor's name to its array.

    Attributes:
        samples: the number in the dataset of each row's sample (int64).
        padding: how many rows at the end only fill up the last batch: leave them out of metrics.
    """

    samples: np.ndarray[Any, Any]
    padding: int

    def __init__(self, native: _larder.Batch, convert: Convert) -> None:
        super().__init__(convert_all(native.tensors, convert))
        self.samples = to_numpy(native.samples)
        self.padding = native.padding
        self._state = native.state()

    def state_dict(self) -> dict[str, Any]:
        """Where the job stands once this batch was used; for :meth:`Loader.load_state_dict`."""
        return {"larder": self._state}


class Loader:
    """Batches of a dataset, each sample once an epoch; made by :meth:`Dataset.loader`.

    Iterating it goes through one epoch; iterating it again goes through the next.
    """

    def __init__(
        self,
        native: _larder.Loader,
        convert: Convert,
        coordinates: _distributed.Coordinates | None = None,
    ) -> None:
        self._native = native
        self._convert = convert
        self._coordinates = coordinates
        self._next_epoch = 0
        self._epoch = 0

    @property
    def epoch(self) -> int:
        """The epoch that is iterated, or was iterated last."""
        return self._epoch

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch."""
        return self._native.batches_per_epoch

    def __iter__(self) -> Iterator[Batch]:
        if self._coordinates is not None:
            _distributed.confirm(self._coordinates)
        self._epoch = self._next_epoch
        self._next_epoch += 1
        convert = self._convert
        return (Batch(batch, convert) for batch in self._native.epoch(self._epoch))

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch is iterated next."""
        self._next_epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """Where the job stands after the batch that was handed out last: a few integers as text."""
        return {"larder": self._native.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a saved state stands, also with another batch size or number of ranks."""
        self._next_epoch = self._native.resume(state["larder"])

    def stats(self) -> dict[str, float]:
        """What was handed out so far, where it came from, and what it waited for (in seconds)."""
        return self._native.stats()


def begin(
    dataset: _larder.Dataset, settings: Settings, output: Output,
    coordinates: _distributed.Coordinates | None = None,
) -> Loader:
    """The loader of a native dataset; `coordinates`, if given, must still hold when it is iterated."""
    return Loader(native_loader(dataset, settings), converter(output), coordinates)


def native_loader(dataset: _larder.Dataset, settings: Settings) -> _larder.Loader:
    """The native loader for settings as a user gives them."""
    shuffle = settings["shuffle"]
    if isinstance(shuffle, bool):
        settings = {**settings, "shuffle": "auto" if shuffle else "none"}
    return dataset.loader(settings)
