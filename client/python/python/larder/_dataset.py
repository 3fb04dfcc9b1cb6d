"""Datasets: opening one, and reading its samples."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from larder import _distributed, _larder
from larder._loader import Last, Loader, Shuffle, begin
from larder._output import Output, convert_all, to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

#: For ``cluster``: read the origin directly.
NO_CLUSTER = "none"


@dataclass(frozen=True)
class TensorSpec:
    """A named column of a dataset: the type of an element, and the shape of one sample."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class _Source:
    """What a dataset is opened from: all that a copy in another process needs."""

    uri: str
    cluster: str | None
    manifest: str | None
    local: bool
    patience: float

    def open(self) -> _larder.Dataset:
        cluster = None if self.cluster == NO_CLUSTER else self.cluster
        return _larder.Dataset.open(self.uri, cluster, self.manifest, self.local, self.patience)


def open(  # noqa: A001
    uri: str,
    *,
    cluster: str | None = None,
    manifest: str | None = None,
    local: bool = True,
    patience: float = 120.0,
) -> Dataset:
    """Open a dataset where it lies: ``s3://bucket/prefix``, ``gs://``, ``az://``, ``file:///folder``.

    Args:
        uri: the prefix, with ``@tag`` or without. A prefix that was never indexed is indexed now.
        cluster: nodes to read through, ``http://host:port``, several separated by commas; by default
            what ``LARDER_CLUSTER`` says. ``"none"`` reads the origin directly.
        manifest: where the manifest lies when it is not beside the data.
        local: whether to map the memory of a node on this host.
        patience: seconds for which one read goes on trying while nodes or the origin say "try again".
    """
    cluster = cluster or os.environ.get("LARDER_CLUSTER") or NO_CLUSTER
    return Dataset(_Source(uri, cluster, manifest, local, patience))


class Dataset:
    """One snapshot of a dataset; made by :func:`larder.open`."""

    def __init__(self, source: _Source) -> None:
        self._native = source.open()
        self._source = source

    @property
    def uri(self) -> str:
        """The prefix it lies under."""
        return self._native.uri

    @property
    def snapshot(self) -> str:
        """The name of the snapshot: the same bytes, for ever."""
        return self._native.snapshot

    @property
    def tensors(self) -> dict[str, TensorSpec]:
        """The tensors of each sample."""
        return {
            name: TensorSpec(dtype, tuple(shape)) for name, dtype, shape in self._native.tensors
        }

    def __len__(self) -> int:
        return len(self._native)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Several samples by one read, as PyTorch's data loader asks for them."""
        columns = convert_all(self._take(indices, None), to_numpy)
        return [
            {name: column[row] for name, column in columns.items()} for row in range(len(indices))
        ]

    def _take(
        self, indices: Sequence[int], tensors: Sequence[str] | None
    ) -> dict[str, _larder.Array]:
        """Samples by one read, stacked: one array a tensor."""
        return self._native.take([self._position(index) for index in indices], tensors)

    def _position(self, index: int) -> int:
        samples = len(self)
        position = index + samples if index < 0 else index
        if not 0 <= position < samples:
            raise IndexError(f"there is no sample {index}: the dataset has {samples}")
        return position

    def loader(
        self,
        batch_size: int = 256,
        *,
        shuffle: Shuffle | bool = "auto",
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        group: Any = None,  # noqa: ANN401
        last: Last = "drop",
        tensors: Sequence[str] | None = None,
        prefetch: int = 2,
        output: Output = "auto",
    ) -> Loader:
        """A loader of batches, each a dict of arrays: every sample once an epoch.

        Args:
            batch_size: samples of a batch on each rank.
            shuffle: ``"global"`` shuffles all samples, ``"window"`` or ``"window:64"`` those of some
                shards at a time, ``"none"`` nothing; ``"auto"`` takes ``"global"`` if the dataset fits
                the memory of the cluster, else ``"window"``.
            seed: names the order, together with the epoch. The same on all ranks.
            rank: which of how many ranks this is: each sample comes on one of them. By default what
                torch.distributed, jax.distributed or the launcher's environment say, else 0 of 1.
            world_size: how many ranks there are.
            group: instead of both, a torch ``DeviceMesh`` or ``ProcessGroup`` of data parallelism:
                ranks that are replicas in its other dimensions get the same batches.
            last: what becomes of a last batch that is not full: ``"drop"`` it, ``"pad"`` it, or
                deliver it ``"uneven"`` (under DDP ranks then wait for each other for ever).
            tensors: names of the tensors wanted; by default all.
            prefetch: batches fetched ahead.
            output: whose arrays: ``"numpy"``, ``"torch"`` or ``"jax"``; ``"auto"`` is torch if the
                program has imported it, else numpy.
        """
        coordinates = _distributed.resolve(rank, world_size, group)
        return begin(
            self._native,
            {
                "batch_size": batch_size,
                "shuffle": shuffle,
                "seed": seed,
                "rank": coordinates.rank,
                "world_size": coordinates.world_size,
                "worker": 0,
                "workers": 1,
                "last": last,
                "tensors": None if tensors is None else list(tensors),
                "prefetch": prefetch,
            },
            output,
            coordinates,
        )

    def __reduce__(self) -> tuple[type[Dataset], tuple[_Source]]:
        return Dataset, (self._source,)

    def __repr__(self) -> str:
        return f"<larder.Dataset {self.uri!r} of {len(self)} samples, snapshot {self.snapshot[:12]}>"
