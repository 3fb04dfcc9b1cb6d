"""A data source for Grain, the loader of the JAX users.

Thread rule: any number of threads; picklable, also for Grain's worker processes. Never imports
Grain: its protocol is structural.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from larder._output import convert_all, to_numpy
from larder._ragged import unstack

if TYPE_CHECKING:
    from collections.abc import Sequence

    import larder

__all__ = ["DataSource"]

Sample = dict[str, Any]


class DataSource:
    """A dataset as Grain's ``RandomAccessDataSource``: samples by their number, as numpy arrays.

    ``grain.MapDataset.source(DataSource(ds)).shuffle(seed=0).batch(256)`` shuffles in Grain's way,
    each read of several samples being one request.

    Args:
        dataset: what :func:`larder.open` returned.
        tensors: names of the tensors wanted; by default all.
    """

    def __init__(self, dataset: larder.Dataset, *, tensors: Sequence[str] | None = None) -> None:
        self._dataset = dataset
        self._tensors = None if tensors is None else list(tensors)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Sample:
        return self._getitems([index])[0]

    def _getitems(self, indices: Sequence[int]) -> list[Sample]:
        """Several samples by one read, as Grain asks for them where it batches."""
        taken = self._dataset._take(indices, self._tensors)
        return unstack(convert_all(taken, to_numpy), len(indices))

    def __repr__(self) -> str:
        """The same wherever the same snapshot is read: Grain compares it when it resumes."""
        tensors = "" if self._tensors is None else f", tensors={self._tensors}"
        return f"larder.grain.DataSource({self._dataset.uri!r}@{self._dataset.snapshot}{tensors})"
