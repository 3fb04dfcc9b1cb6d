"""Loaders: batches of a dataset, epoch after epoch."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict

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

    Frameworks that rebuild a batch of its items (``type(batch)(items)``) get one without the
    attributes; :meth:`to`, ``copy.copy`` and pickling keep them.

    Attributes:
        samples: the number in the dataset of each row's sample (int64).
        padding: how many rows at the end only fill up the last batch: leave them out of metrics.
    """

    samples: np.ndarray[Any, Any]
    padding: int
    _state: str

    @classmethod
    def of(cls, native: _larder.Batch, convert: Convert) -> Self:
        """A native batch as arrays of a framework."""
        batch = cls(convert_all(native.tensors, convert))
        batch.samples = to_numpy(native.samples)
        batch.padding = native.padding
        batch._state = native.state()
        return batch

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """The batch on another device or of another type: ``to`` of each of its torch tensors."""
        batch = copy(self)
        batch.update({name: tensor.to(*args, **kwargs) for name, tensor in self.items()})
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Where the job stands once this batch was used; for :meth:`Loader.load_state_dict`."""
        return {"larder": self._state}

    def __getattr__(self, name: str) -> Any:
        if name in ("samples", "padding", "_state"):
            raise AttributeError(
                f"this batch has lost its {name.lstrip('_')}: it was put together anew of another "
                "batch's items (by a framework, on its way to a device)"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


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
        """The batches of the next epoch.

        It begins when the first batch is asked for: an iterator that is only made, as frameworks
        do to see whether they can iterate, begins none.
        """
        if self._coordinates is not None:
            _distributed.confirm(self._coordinates)
        self._epoch = self._next_epoch
        self._next_epoch += 1
        for batch in self._native.epoch(self._epoch):
            yield Batch.of(batch, self._convert)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch is iterated next.

        The epoch that a loaded state stands in goes on where it stands.
        """
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

    def explain(self) -> Explanation:
        """For the slowest batches, what each waited for: print it."""
        return Explanation(self.stats(), self._native.slowest())

    def __repr__(self) -> str:
        return f"<larder.Loader of {len(self)} batches an epoch, shuffle {self._native.shuffle!r}>"


@dataclass(frozen=True)
class Explanation:
    """Why a training loop waits for data.

    Attributes:
        stats: as :meth:`Loader.stats`.
        slowest: for the slowest batches, the slowest first: epoch, batch, seconds for which it was
            waited, seconds of fetching, where those went hop by hop, and the longest single wait.
    """

    stats: dict[str, float]
    slowest: list[dict[str, Any]]

    def __str__(self) -> str:
        stats = self.stats
        lines = [
            f"{stats['batches']:.0f} batches of {stats['samples']:.0f} samples: "
            f"waited {stats['waiting_seconds']:.3f} s for them, "
            f"fetching took {stats['fetching_seconds']:.3f} s beside that",
        ]
        for batch in self.slowest[:_EXPLAINED]:
            hops = sorted(batch["hops"].items(), key=lambda hop: -hop[1])
            spent = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in hops if seconds > 0)
            line = (
                f"epoch {batch['epoch']} batch {batch['batch']}: "
                f"waited {batch['waiting_seconds']:.3f} s, "
                f"fetched in {batch['fetching_seconds']:.3f} s"
            )
            line += f" ({spent})" if spent else ""
            if batch["longest"] is not None:
                hop, seconds, shard, node = batch["longest"]
                line += f"; longest {hop} {seconds:.3f} s, shard {shard}"
                line += "" if node is None else f", node {node}"
            lines.append(line)
        return "\n".join(lines)


#: Batches in the text of an explanation.
_EXPLAINED = 8


def begin(
    dataset: _larder.Dataset,
    settings: Settings,
    output: Output,
    coordinates: _distributed.Coordinates | None = None,
) -> Loader:
    """The loader of a native dataset; `coordinates` must still hold when it is iterated."""
    return Loader(native_loader(dataset, settings), converter(output), coordinates)


def native_loader(dataset: _larder.Dataset, settings: Settings) -> _larder.Loader:
    """The native loader for settings as a user gives them."""
    shuffle = settings["shuffle"]
    if isinstance(shuffle, bool):
        settings = {**settings, "shuffle": "auto" if shuffle else "none"}
    return dataset.loader(settings)
